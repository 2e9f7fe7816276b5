// SPDX-License-Identifier: GPL-2.0-only
/*
 * The heartbeat: numalab-beat SECONDS PHASE_FILE writes a line of JSON to standard output every
 * SECONDS of guest time, with the phase that init has put into PHASE_FILE.
 *
 * A shell loop would start a process for every beat, which the scheduler under test would have to
 * place. This sleeps, and runs for microseconds; its name tells it apart in a trace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Stay where the boot CPU is, away from the balancing that is being watched. */
static void stay_on_boot_cpu(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

int main(int argc, char **argv)
{
	char phase[32] = "boot", read_now[32], line[128];
	struct timespec now, next;
	int length, file;

	if (argc != 3)
		return 2;
	stay_on_boot_cpu();
	file = open(argv[2], O_RDONLY | O_CLOEXEC);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		next.tv_sec += atoi(argv[1]) ?: 1;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		clock_gettime(CLOCK_BOOTTIME, &now);
		length = pread(file, read_now, sizeof(read_now) - 1, 0);
		/* init truncates the file before it writes; an empty one says nothing new. */
		if (length > 0) {
			memcpy(phase, read_now, length);
			phase[length] = '\0';
		}
		length = snprintf(line, sizeof(line), "{\"phase\": \"%s\", \"uptime\": %lld.%02ld}\n",
				  phase, (long long)now.tv_sec, now.tv_nsec / 10000000);
		if (write(STDOUT_FILENO, line, length) != length)
			return 1;
	}
}
