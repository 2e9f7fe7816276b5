// SPDX-License-Identifier: GPL-2.0-only
/*
 * numalab-shake COMMAND...: brings the machine into a state that depends on the seed, then runs
 * COMMAND.
 *
 * Two kernels that differ in a few instructions end their boot in different states: init and kernel
 * threads are on other CPUs, and the next tick is at another distance. All runs of one kernel share
 * much of that state, whatever their seed, so a change without any effect on scheduling looks like
 * one. For example, vmstat_shepherd() wakes a worker on every CPU once a second, always at the same
 * distance from the boot. So this program waits for a random part of some seconds, and then short
 * tasks on random CPUs leave a state that is as random in both kernels. The random numbers are the
 * guest's, which follow from the seed.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 30
#define MOST_TASKS 6
#define MOST_US 3000
#define MOST_WAIT_US 2000000 /* twice the period of vmstat_shepherd() */

static cpu_set_t allowed;

static unsigned int random_below(unsigned int limit)
{
	unsigned int value;

	if (getrandom(&value, sizeof(value), 0) != sizeof(value))
		err(1, "getrandom");
	return value % limit;
}

static void bind_to_random_cpu(void)
{
	int skip = random_below(CPU_COUNT(&allowed));
	cpu_set_t only;

	CPU_ZERO(&only);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &allowed) && !skip--) {
			CPU_SET(cpu, &only);
			sched_setaffinity(0, sizeof(only), &only);
			return;
		}
	}
}

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

/* usleep() may refuse a second and more. */
static void wait_us(long us)
{
	struct timespec time = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&time, NULL);
}

static void shake_once(void)
{
	int tasks = 1 + random_below(MOST_TASKS);

	for (int i = 0; i < tasks; i++) {
		pid_t pid = fork();

		if (pid < 0)
			err(1, "fork");
		if (!pid) {
			bind_to_random_cpu();
			for (long end = now_us() + random_below(MOST_US); now_us() < end;)
				;
			_exit(0);
		}
	}
	bind_to_random_cpu();
	wait_us(random_below(MOST_US));
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		errx(2, "usage: numalab-shake COMMAND...");
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		err(1, "sched_getaffinity");
	wait_us(random_below(MOST_WAIT_US));
	for (int round = 0; round < ROUNDS; round++)
		shake_once();
	sched_setaffinity(0, sizeof(allowed), &allowed);
	wait_us(random_below(4 * MOST_US));
	execvp(argv[1], argv + 1);
	err(1, "%s", argv[1]);
}
