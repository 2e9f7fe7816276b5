// SPDX-License-Identifier: GPL-2.0-only
// Tasks of SCHED_FIFO: 50 computes on CPU 0, 20 computes on CPU 1, and a third waits on CPU 0, which may use both. Its
// priority is 30 when it wakes up, or 10 then and 30 from 100 ms later. How long does it run in the next 500 ms?
// gcc -O2 -static raised-priority.c -o raised-priority; three CPUs, as root.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void bind(pid_t pid, int first, int last)
{
	cpu_set_t mask;

	CPU_ZERO(&mask);
	for (int cpu = first; cpu <= last; cpu++)
		CPU_SET(cpu, &mask);
	if (sched_setaffinity(pid, sizeof(mask), &mask))
		perror("sched_setaffinity"), exit(2);
}

static void rank(pid_t pid, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	if (sched_setscheduler(pid, SCHED_FIFO, &param))
		perror("sched_setscheduler"), exit(2);
}

static double ran_ms(pid_t pid)
{
	unsigned long long ran;
	char path[40];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%llu", &ran) != 1)
		perror(path), exit(2);
	fclose(file);
	return ran / 1e6;
}

static pid_t hog(int cpu, int priority, int go)
{
	pid_t pid = fork();
	char byte;

	if (pid < 0)
		perror("fork"), exit(2);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bind(0, cpu, cpu);
	rank(0, priority);
	if (go >= 0 && read(go, &byte, 1) != 1)
		_exit(2);
	for (;;)
		;
}

int main(void)
{
	bind(0, 2, 2);
	rank(0, 90);
	for (int raised = 0; raised < 2; raised++)
		for (int turn = 0; turn < 6; turn++) {
			int ends[2];
			pid_t tasks[3];
			double before;

			if (pipe(ends))
				return 2;
			tasks[0] = hog(0, raised ? 10 : 30, ends[0]);
			usleep(50000); /* it sleeps in read() */
			bind(tasks[0], 0, 1);
			tasks[1] = hog(0, 50, -1);
			tasks[2] = hog(1, 20, -1);
			usleep(50000);
			if (write(ends[1], "", 1) != 1)
				return 2;
			if (raised) {
				usleep(100000);
				rank(tasks[0], 30);
			}
			before = ran_ms(tasks[0]);
			usleep(500000);
			printf("%s: ran %.0f of 500 ms\n", raised ? "raised from 10 to 30" : "woken with 30",
			       ran_ms(tasks[0]) - before);
			for (int task = 0; task < 3; task++)
				kill(tasks[task], SIGKILL);
			close(ends[0]);
			close(ends[1]);
			usleep(50000);
		}
}
