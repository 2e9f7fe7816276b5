/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call and what it must return, and calls that several files here make.
 */
#ifndef EXPECT_H
#define EXPECT_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "load.h"

#define RESET 1
#define SMALLEST 48 /* SCHED_ATTR_SIZE_VER0 */
#define MS_NS 1000000ULL

/* In memory that all share. */
struct probes {
	int calls, wrong;
	volatile int read, word, other;
	volatile int ran, ready, go, done, visited, level; /* of ranks.h */
	char name[32];
	long result;
};

static struct probes *probes;

static void expect(const char *name, long result, long expected)
{
	if (result == -1)
		result = -errno;
	probes->calls++;
	if (result == expected)
		return;
	if (!probes->wrong++) {
		snprintf(probes->name, sizeof(probes->name), "%s", name);
		probes->result = result;
	}
}

static long set_policy(unsigned int policy, unsigned int priority, uint64_t flags)
{
	struct attributes attributes = { .size = SMALLEST, .policy = policy, .priority = priority, .flags = flags };

	return syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static long set_nice(int nice)
{
	struct attributes attributes = { .size = SMALLEST, .nice = nice };

	return syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static long set_deadline(uint64_t runtime, uint64_t deadline, uint64_t period)
{
	struct attributes attributes = {
		.size = SMALLEST, .policy = DEADLINE, .runtime = runtime, .deadline = deadline, .period = period,
	};

	return syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* The policy, and 1000 times the priority. */
static long policy_now(void)
{
	struct attributes attributes = { 0 };

	if (syscall(SYS_sched_getattr, 0, &attributes, SMALLEST, 0))
		return -1;
	return attributes.policy + 1000L * attributes.priority;
}

static long interval_ms(void)
{
	struct timespec time = { .tv_sec = -1 };

	return sched_rr_get_interval(0, &time) ? -1 : time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int set_cpu(pid_t pid, int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(pid, sizeof(one), &one);
}

static long futex_call(volatile int *word, int command, int value, long second, volatile int *other, int third)
{
	return syscall(SYS_futex, word, command, value, second, other, third);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec time = { 0 };

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static pid_t fork_hog(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		;
}

static long read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	long number = -1000;

	if (file && fscanf(file, "%ld", &number) != 1)
		number = -1000;
	if (file)
		fclose(file);
	return number;
}

#endif
