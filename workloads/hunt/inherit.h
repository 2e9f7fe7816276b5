/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What becomes of a policy in children, with nice levels and with locks (sched(7), futex(2)).
 */
#ifndef INHERIT_H
#define INHERIT_H

#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "expect.h"

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

#endif
