/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What becomes of a policy in children, with nice levels, locks and limits; how many tasks a futex wakes. probes.h
 * includes and calls it (sched(7), futex(2), getrlimit(2), setpriority(2)).
 */
#ifndef INHERIT_H
#define INHERIT_H

#include <linux/futex.h>
#include <signal.h>

#define WAITERS 4
#define SHORT_TASKS 16
#define RR_SLICE "/proc/sys/kernel/sched_rr_timeslice_ms"
#define OF_STAT_PRIORITY 18 /* its field in proc(5): 20 + nice, or -1 - the real-time priority */

static long own_priority(void)
{
	return read_stat(getpid(), OF_STAT_PRIORITY, -1000);
}

/* The policy of a child, and 1000 times its priority; with its nice level below -1000000 if it is not `nice`. */
static long policy_of_child(int nice)
{
	int status, ends[2];
	long policy = -1;
	pid_t child;

	if (pipe(ends))
		return -1;
	child = fork();
	if (!child) {
		policy = policy_now() - 1000000L * (getpriority(PRIO_PROCESS, 0) != nice);
		_exit(write(ends[1], &policy, sizeof(policy)) != sizeof(policy));
	}
	close(ends[1]);
	if (child > 0 && read(ends[0], &policy, sizeof(policy)) != sizeof(policy))
		policy = -1;
	close(ends[0]);
	if (child > 0)
		waitpid(child, &status, 0);
	return policy;
}

/* sched_fork(), kernel/sched/core.c */
static void probe_children(void)
{
	expect("fifo", set_policy(SCHED_FIFO, 7, 0), 0);
	expect("child-of-fifo", policy_of_child(0), SCHED_FIFO + 7000);
	expect("fifo-that-resets", set_policy(SCHED_FIFO, 7, RESET), 0);
	expect("child-of-reset", policy_of_child(0), SCHED_OTHER);
	expect("batch", set_policy(SCHED_BATCH, 0, 0), 0);
	expect("child-of-batch", policy_of_child(0), SCHED_BATCH);
	expect("nice", set_nice(-6), 0);
	expect("child-of-nice", policy_of_child(-6), SCHED_OTHER);
	expect("no-nice", set_nice(0), 0);
	expect("idle-policy", set_policy(SCHED_IDLE, 0, 0), 0);
	expect("child-of-idle", policy_of_child(0), SCHED_IDLE);
	expect("usual", set_policy(SCHED_OTHER, 0, 0), 0);
	if (!set_deadline(MS_NS, 100 * MS_NS, 100 * MS_NS)) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		expect("fork-of-deadline", child, -EAGAIN);
		expect("usual-again", set_policy(SCHED_OTHER, 0, 0), 0);
	}
}

/* A nice level that is set in the meantime is that of the fair task later (set_user_nice(), 6.12). */
static void probe_nice_of_ranked(void)
{
	struct sched_param none = { 0 }, seven = { 7 };

	expect("ranked", sched_setscheduler(0, SCHED_FIFO, &seven), 0);
	expect("nice-of-ranked", setpriority(PRIO_PROCESS, 0, 5), 0);
	expect("priority-of-ranked", own_priority(), -8);
	expect("policy-of-ranked", policy_now(), SCHED_FIFO + 7000);
	expect("fair-again", sched_setscheduler(0, SCHED_OTHER, &none), 0);
	expect("nice-kept", getpriority(PRIO_PROCESS, 0), 5);
	expect("priority-kept", own_priority(), 25);
	expect("nice-0", set_nice(0), 0);
	expect("priority-of-nice-0", own_priority(), 20);
}

static long futex_call(volatile int *word, int command, int value, long second, volatile int *other, int third)
{
	return syscall(SYS_futex, word, command, value, second, other, third);
}

/* How many wake, where all sleep (wake_up_q(), kernel/sched/core.c). */
static void probe_wake_queues(void)
{
	volatile int *word = &probes->word, *other = &probes->other;
	pid_t pids[WAITERS];
	int count = 0, status;

	*word = *other = 0;
	for (; count < WAITERS; count++) {
		pids[count] = fork();
		if (!pids[count]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(futex_call(word, FUTEX_WAIT, 0, 0, NULL, 0) != 0);
		}
		if (pids[count] < 0)
			break;
	}
	sleep_ns(20000000);
	if (count == WAITERS) {
		expect("wake-two", futex_call(word, FUTEX_WAKE, 2, 0, NULL, 0), 2);
		expect("requeue", futex_call(word, FUTEX_CMP_REQUEUE, 1, 1, other, 0), 2);
		expect("wake-requeued", futex_call(other, FUTEX_WAKE, 9, 0, NULL, 0), 1);
		sleep_ns(20000000);
	}
	while (count--) {
		if (waitpid(pids[count], &status, WNOHANG) == pids[count]) {
			expect("woken", status, 0);
			continue;
		}
		expect("wakes", 0, 1);
		kill(pids[count], SIGKILL);
		waitpid(pids[count], &status, 0);
	}
}

/* The holder of a lock has the priority of its waiter until it gives the lock back (rt_mutex_setprio(), 6.12). */
static void probe_lock(unsigned int policy, unsigned int priority, long expected)
{
	volatile int *word = &probes->word;
	pid_t child;
	int status;

	*word = getpid();
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (set_policy(policy, priority, 0) || futex_call(word, FUTEX_LOCK_PI, 0, 0, NULL, 0))
			_exit(1);
		_exit(futex_call(word, FUTEX_UNLOCK_PI, 0, 0, NULL, 0) != 0);
	}
	if (child < 0)
		return;
	sleep_ns(20000000);
	expect("priority-of-holder", own_priority(), expected);
	expect("policy-of-holder", set_policy(SCHED_BATCH, 0, 0), 0);
	expect("priority-still", own_priority(), expected);
	expect("usual-holder", set_policy(SCHED_OTHER, 0, 0), 0);
	expect("unlock", futex_call(word, FUTEX_UNLOCK_PI, 0, 0, NULL, 0), 0);
	expect("priority-without-lock", own_priority(), 20);
	waitpid(child, &status, 0);
	expect("locker", status, 0);
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

/* Also the time of tasks that end before a tick is user time, where they seldom call the kernel. */
static void probe_short_times(void)
{
	int right = 0, status;

	for (int number = 0; number < SHORT_TASKS; number++) {
		pid_t child = fork();

		if (!child) {
			struct rusage used;
			uint64_t end = clock_ns(CLOCK_MONOTONIC) + MS_NS; /* which is no system call (vdso(7)) */

			while (clock_ns(CLOCK_MONOTONIC) < end)
				;
			getrusage(RUSAGE_SELF, &used);
			_exit(used.ru_utime.tv_usec < used.ru_stime.tv_usec);
		}
		right += child > 0 && waitpid(child, &status, 0) == child && !status;
	}
	expect("short-user-times", right > SHORT_TASKS / 2, 1);
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
