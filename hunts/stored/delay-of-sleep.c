// SPDX-License-Identifier: GPL-2.0-only
// A task sleeps 500 ms beside four hogs on CPU 0. Meanwhile it may also be bound to CPU 1, while the kernel still delays
// its dequeue. How long, by /proc/PID/schedstat, has it waited in run queues (run_delay)?
// gcc -O2 -static delay-of-sleep.c -o delay-of-sleep; three CPUs, as root.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static void bind(pid_t pid, int cpu)
{
	cpu_set_t mask;

	CPU_ZERO(&mask);
	CPU_SET(cpu, &mask);
	if (sched_setaffinity(pid, sizeof(mask), &mask))
		perror("sched_setaffinity"), exit(2);
}

static void work(double ms)
{
	for (clock_t end = clock() + ms * 1000; clock() < end;)
		;
}

static double waited_ms(pid_t pid)
{
	unsigned long long ran, waited = 0;
	char path[40];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%llu %llu", &ran, &waited) != 2)
		perror(path), exit(2);
	fclose(file);
	return waited / 1e6;
}

static void begin(pid_t pid)
{
	if (pid < 0)
		perror("fork"), exit(2); /* kill(-1) would kill everybody */
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bind(0, 0);
}

int main(void)
{
	pid_t hogs[4], sleeper;
	int ends[2];

	bind(0, 2);
	for (int hog = 0; hog < 4; hog++) {
		begin(hogs[hog] = fork());
		while (!hogs[hog])
			;
	}
	for (int moved = 0; moved < 2; moved++)
		for (int turn = 0; turn < 6; turn++) {
			double before;
			char byte;

			if (pipe(ends))
				return 2;
			begin(sleeper = fork());
			if (!sleeper) {
				work(12 + turn);
				if (write(ends[1], "", 1) != 1)
					_exit(2);
				usleep(500000);
				work(1);
				pause();
			}
			if (read(ends[0], &byte, 1) != 1)
				return 2;
			before = waited_ms(sleeper);
			if (moved)
				bind(sleeper, 1);
			usleep(700000);
			printf("%s: waited %.0f ms before, %.0f ms while it slept 500 ms and worked 1 ms\n",
			       moved ? "bound to CPU 1 in its sleep" : "stays on CPU 0", before,
			       waited_ms(sleeper) - before);
			kill(sleeper, SIGKILL);
		}
	for (int hog = 0; hog < 4; hog++)
		kill(hogs[hog], SIGKILL);
}
