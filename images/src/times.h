/* SPDX-License-Identifier: GPL-2.0-only */
/* What a command cost, for the host (parse_times(), lab/numalab/capture/counters.py). */
#ifndef TIMES_H
#define TIMES_H

#include <sys/resource.h>

#include "numalab.h"

/* Write elapsed, user and system time in seconds, one a line, as `name 1.25`. */
static inline void write_times(const char *path, int64_t elapsed, const struct rusage *cost)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (file < 0 || dprintf(file, "elapsed %lld.%09lld\nuser %lld.%06ld\nsystem %lld.%06ld\n",
				(long long)elapsed / 1000000000, (long long)elapsed % 1000000000,
				(long long)cost->ru_utime.tv_sec, (long)cost->ru_utime.tv_usec,
				(long long)cost->ru_stime.tv_sec, (long)cost->ru_stime.tv_usec) < 0)
		fprintf(stderr, "%s: cannot write %s\n", program_invocation_short_name, path);
	if (file >= 0)
		close(file);
}

#endif
