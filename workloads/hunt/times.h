/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU time that clocks tell, that limits allow, and that time slices give (clock_gettime(2), getrlimit(2)).
 */
#ifndef TIMES_H
#define TIMES_H

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "expect.h"

#define READINGS 8
#define SPIN_NS 300000
#define SHORT_TASKS 16
#define RR_SLICE "/proc/sys/kernel/sched_rr_timeslice_ms"

/* CPU time is exact when it is read: that of a process grows with that of the thread that reads it, and is the same
 * if that is `alone` (thread_group_cputime(), task_sched_runtime(), kernel/sched).
 */
static void read_clocks(int alone)
{
	uint64_t before, first, process, after;
	int stale = 0;

	for (int reading = 0; reading < READINGS; reading++) {
		uint64_t end = clock_ns(CLOCK_MONOTONIC) + SPIN_NS;

		before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		first = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		while (clock_ns(CLOCK_MONOTONIC) < end)
			;
		process = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		after = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		if (alone)
			expect("process-time", before <= process && process <= after, 1);
		stale += process - first < (after - before) / 4; /* one may be, if the CPU stops just then */
	}
	expect(alone ? "time-since-tick" : "time-in-thread", stale < READINGS / 2, 1);
}

static void *read_in_thread(void *unused)
{
	read_clocks(0);
	return unused;
}

/* And that of a child grows while it runs. */
static void probe_clocks(void)
{
	uint64_t before;
	clockid_t clock;
	pthread_t thread;
	pid_t child;

	read_clocks(1);
	if (!pthread_create(&thread, NULL, read_in_thread, NULL))
		pthread_join(thread, NULL);
	child = fork_hog();
	if (child < 0)
		return;
	expect("clock-of-child", clock_getcpuclockid(child, &clock), 0);
	before = clock_ns(clock);
	for (int tried = 0; tried < 100 && clock_ns(clock) == before; tried++)
		sleep_ns(5000000);
	expect("time-of-child", clock_ns(clock) > before, 1);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static volatile sig_atomic_t limited;

static void at_limit(int number)
{
	limited = number;
}

/* A real-time task that does not sleep gets a signal after RLIMIT_RTTIME us (watchdog(), kernel/sched/rt.c). */
static void probe_time_limit(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		uint64_t end;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGXCPU, at_limit);
		setrlimit(RLIMIT_RTTIME, &(struct rlimit){ 20000, RLIM_INFINITY });
		if (set_policy(SCHED_RR, 1, 0))
			_exit(1);
		for (end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 80 * MS_NS; !limited;)
			if (clock_ns(CLOCK_THREAD_CPUTIME_ID) > end)
				_exit(2);
		_exit(0);
	}
	if (child > 0 && waitpid(child, &status, 0) == child)
		expect("time-limit", status, 0);
}

/* After it has yielded, a deadline task runs again with its whole runtime (update_curr_dl(), 6.12). */
static void probe_runtime(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		uint64_t end, ran;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (set_deadline(20 * MS_NS, 40 * MS_NS, 40 * MS_NS))
			_exit(0); /* not admitted */
		sched_yield();
		ran = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		for (end = clock_ns(CLOCK_MONOTONIC) + 120 * MS_NS; clock_ns(CLOCK_MONOTONIC) < end;)
			;
		_exit(clock_ns(CLOCK_THREAD_CPUTIME_ID) - ran < 30 * MS_NS);
	}
	if (child > 0 && waitpid(child, &status, 0) == child)
		expect("runtime-after-yield", status, 0);
}

/* Most time of a loop that seldom reads zeros is user time (cputime_adjust(), 6.12). */
static void probe_user_time(void)
{
	char zeros[4096];
	pid_t child = fork();
	int status, file;

	if (!child) {
		struct rusage used;
		uint64_t now, begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
		while ((now = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) < 40 * MS_NS) {
			for (volatile int turn = 0; turn < 10000; turn++)
				;
			if (now % (2 * MS_NS) < 300000 && read(file, zeros, sizeof(zeros)) <= 0)
				_exit(2);
		}
		getrusage(RUSAGE_SELF, &used);
		_exit(used.ru_utime.tv_usec < used.ru_stime.tv_usec);
	}
	if (child > 0 && waitpid(child, &status, 0) == child)
		expect("user-time", status, 0);
}

/* Computes for a millisecond; returns whether that was user time. */
static int has_user_time(void)
{
	struct rusage used;
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + MS_NS; /* which is no system call (vdso(7)) */

	while (clock_ns(CLOCK_MONOTONIC) < end)
		;
	getrusage(RUSAGE_SELF, &used);
	return used.ru_utime.tv_usec >= used.ru_stime.tv_usec;
}

/* After fork(2), which copies page tables, a child's start takes as long as its work, and a tick often comes meanwhile. */
static __attribute__((noinline)) pid_t start_short_task(void)
{
	pid_t child = vfork();

	if (!child)
		_exit(!has_user_time());
	return child;
}

/* Also the time of tasks that end before a tick is user time, where they seldom call the kernel. */
static void probe_short_times(void)
{
	int right = 0, status;

	for (int number = 0; number < SHORT_TASKS; number++) {
		pid_t child = start_short_task();

		right += child > 0 && waitpid(child, &status, 0) == child && !status;
	}
	expect("short-user-times", right > SHORT_TASKS / 2, 1);
}

/* sched_rr_handler(), kernel/sched/rt.c. Those of sched_rt_handler() are left out: on 6.12, also reading one forgets
 * what is admitted for the servers of fair tasks.
 */
static void probe_time_slice(void)
{
	long slice = read_number(RR_SLICE);

	if (slice == 100) {
		expect("slice-40", put(RR_SLICE, "40"), 0);
		expect("rr", set_policy(SCHED_RR, 1, 0), 0);
		expect("interval-of-40", interval_ms() / 4, 10);
		expect("slice-0", put(RR_SLICE, "0"), 0);
		expect("usual-slice", interval_ms() >= 99 && interval_ms() <= 100, 1);
		expect("slice-100", put(RR_SLICE, "100"), 0);
		expect("usual-of-rr", set_policy(SCHED_OTHER, 0, 0), 0);
	}
}

#endif
