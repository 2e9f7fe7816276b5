// SPDX-License-Identifier: GPL-2.0-only
/*
 * timed NAME COMMAND...: runs a command, ends as it does, and prints one line of what it took:
 *
 *   NAME real 1.234 user 0.500 system 0.250 minor_faults 1000 major_faults 0
 *
 * Seconds, and page faults (getrusage(2)), of the command and of the children it waited for.
 */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/wait.h>

#include "numalab.h"

static double seconds(struct timeval time)
{
	return time.tv_sec + time.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	int64_t began = now();
	struct rusage usage;
	int status;
	pid_t child;

	if (argc < 3)
		die("usage: timed NAME COMMAND...");
	child = fork();
	if (child < 0)
		die("cannot start %s: %s", argv[2], strerror(errno));
	if (child == 0) {
		execvp(argv[2], argv + 2);
		die("cannot start %s: %s", argv[2], strerror(errno));
	}
	if (wait4(child, &status, 0, &usage) < 0)
		die("cannot wait: %s", strerror(errno));
	printf("%s real %.6f user %.6f system %.6f minor_faults %ld major_faults %ld\n", argv[1],
	       (now() - began) / 1e9, seconds(usage.ru_utime), seconds(usage.ru_stime),
	       usage.ru_minflt, usage.ru_majflt);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
