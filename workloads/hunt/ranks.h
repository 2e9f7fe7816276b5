/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In which order real-time tasks run, and where (sched(7), kernel/sched/rt.c): small scenes of two or three tasks
 * with one right outcome.
 */
#ifndef RANKS_H
#define RANKS_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "expect.h"

#define NOT_YET_MS 60 /* how long a task may wait for what happens at once */
#define AT_ONCE_MS 20 /* on CPUs that take turns */
#define YIELDS 100 /* for a priority */
#define MOST_TRIES 3 /* of a scene: a CPU may be busy with something else just then */

static void spin_until(volatile int *flag)
{
	while (!*flag)
		;
}

/* A task on one CPU. */
static pid_t begin_actor(int cpu, unsigned int policy, unsigned int priority, void (*act)(void))
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (set_policy(policy, priority, 0) || set_cpu(0, cpu)) /* where it may have to wait */
		_exit(100);
	act();
	_exit(0);
}

static int end_actor(pid_t pid)
{
	int status = -1;

	if (pid > 0)
		waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

static void run_once(void)
{
	probes->ran = 1;
}

static void hold(void)
{
	probes->ready = 1;
	spin_until(&probes->done);
}

static void visit(void)
{
	probes->visited = 1;
}

/* The result has 4 if the waiting task ran before the change, 2 if it had when the call returned, 1 if it had after a
 * visit of a task of higher priority.
 */
static void lead(void)
{
	int result;
	uint64_t end;

	hold();
	result = 4 * probes->ran;
	if (probes->level == YIELDS)
		sched_yield();
	else
		set_policy(probes->level ? SCHED_FIFO : SCHED_OTHER, probes->level, 0);
	result += 2 * probes->ran;
	end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + NOT_YET_MS * MS_NS;
	while (!probes->visited && clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		;
	_exit(result + probes->ran);
}

static void reset_scene(int level)
{
	probes->ran = probes->ready = probes->done = probes->visited = 0;
	probes->level = level;
}

static void await_start(void)
{
	for (int tried = 0; !probes->ready && tried < 1000; tried++)
		sleep_ns(100000);
}

/* Until a task has got to a CPU, where it waits. */
static void await_place(pid_t pid, int cpu)
{
	for (int tried = 0; read_stat(pid, 39, -1) != cpu && tried < 1000; tried++)
		sleep_ns(100000);
	sleep_ns(200000);
}

/* A running FIFO task of priority 20 changes its own to `level` while one of `waiting` waits for the CPU. */
static int lead_before(int cpu, int level, int waiting)
{
	pid_t leader, waiter, visitor;
	int result;

	reset_scene(level);
	leader = begin_actor(cpu, SCHED_FIFO, 20, lead);
	await_start();
	waiter = begin_actor(cpu, SCHED_FIFO, waiting, run_once);
	await_place(waiter, cpu);
	probes->done = 1;
	visitor = begin_actor(cpu, SCHED_FIFO, 50, visit);
	expect("visitor-ends", end_actor(visitor), 0);
	result = end_actor(leader);
	expect("waiter-ends", end_actor(waiter), 0);
	return result;
}

static void probe_order(int cpu, int level, int waiting, int expected)
{
	char name[32];
	int result, tried = 0;

	do
		result = lead_before(cpu, level, waiting);
	while (result != expected && ++tried < MOST_TRIES);
	snprintf(name, sizeof(name), "from-20-to-%d-before-%d", level, waiting);
	expect(name, result, expected);
}

static int runs_soon(void)
{
	for (int tried = 0; !probes->ran && tried < NOT_YET_MS; tried++)
		sleep_ns(1000000);
	return probes->ran;
}

/* Without sleep: a CPU that becomes idle looks for waiting tasks, and has them pushed to others (pull_rt_task()). */
static int is_at_once(volatile int *flag)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + AT_ONCE_MS * MS_NS;

	while (!*flag && clock_ns(CLOCK_MONOTONIC) < end)
		;
	return *flag;
}

/* A task that waits behind a real-time one, and gets another mask. */
static void probe_waiter_moves(int from, int to, unsigned int policy, const char *name)
{
	pid_t holder, waiter;

	reset_scene(0);
	holder = begin_actor(from, SCHED_FIFO, 20, hold);
	await_start();
	waiter = begin_actor(from, policy, policy == SCHED_FIFO ? 10 : 0, run_once);
	await_place(waiter, from);
	expect("waits", probes->ran, 0);
	expect("set-mask-of-waiter", set_cpu(waiter, to), 0);
	expect(name, runs_soon(), 1);
	probes->done = 1;
	end_actor(holder);
	end_actor(waiter);
}

static cpu_set_t pair_of(int cpu, int other)
{
	cpu_set_t both;

	CPU_ZERO(&both);
	CPU_SET(cpu, &both);
	CPU_SET(other, &both);
	return both;
}

enum { FAIR = 1, LOWER };

static void leave(void)
{
	spin_until(&probes->go);
	if (probes->level) {
		if (probes->level == LOWER)
			set_policy(SCHED_FIFO, 5, 0);
		else
			set_policy(SCHED_OTHER, 0, 0);
		spin_until(&probes->done);
	}
}

/* A task that waits behind another one moves to a CPU that a third one leaves, or on which that BECOMES fair or less
 * urgent.
 */
static int is_pulled(int cpu, int other, int becomes)
{
	pid_t holder, waiter, third;
	cpu_set_t both = pair_of(cpu, other);
	int pulled;

	reset_scene(becomes);
	probes->go = 0;
	third = begin_actor(other, SCHED_FIFO, 30, leave);
	holder = begin_actor(cpu, SCHED_FIFO, 20, hold);
	await_start();
	waiter = begin_actor(cpu, SCHED_FIFO, 10, run_once);
	await_place(waiter, cpu);
	expect("widen-mask", sched_setaffinity(waiter, sizeof(both), &both), 0);
	sleep_ns(1000000);
	expect("waits-for-both", probes->ran, 0);
	probes->go = 1;
	pulled = is_at_once(&probes->ran);
	probes->done = 1;
	end_actor(holder);
	end_actor(waiter);
	end_actor(third);
	return pulled;
}

static void stand_by(void)
{
	spin_until(&probes->go);
}

static void hold_as_second(void)
{
	probes->ran = 1;
	spin_until(&probes->done);
}

/* Of two tasks that wait for a CPU, the one that does not get it is pushed to another one. */
static int is_pushed(int cpu, int other, int second)
{
	pid_t blocker, pids[2];
	cpu_set_t both = pair_of(cpu, other);
	int pushed;

	reset_scene(0);
	probes->go = 0;
	blocker = begin_actor(cpu, SCHED_FIFO, 50, stand_by);
	await_place(blocker, cpu);
	pids[0] = begin_actor(cpu, SCHED_FIFO, 20, hold);
	await_place(pids[0], cpu);
	pids[1] = begin_actor(cpu, SCHED_FIFO, second, hold_as_second);
	await_place(pids[1], cpu);
	for (int number = 0; number < 2; number++)
		expect("widen-masks", sched_setaffinity(pids[number], sizeof(both), &both), 0);
	probes->go = 1;
	pushed = is_at_once(&probes->ran) && is_at_once(&probes->ready);
	probes->done = 1;
	for (int number = 0; number < 2; number++)
		end_actor(pids[number]);
	end_actor(blocker);
	return pushed;
}

static void probe_scene(const char *name, int (*scene)(int, int, int), const int *cpus, int detail)
{
	int done = 0;

	for (int tried = 0; !done && tried < MOST_TRIES; tried++)
		done = scene(cpus[1], cpus[2], detail);
	expect(name, done, 1);
}

/* 6.1 leaves the waiter of is_pulled() where it is; why was not examined. */
static void probe_ranks(int pulls)
{
	int cpus[3], count = 0;
	cpu_set_t all;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && count < 3; cpu++)
		if (CPU_ISSET(cpu, &all))
			cpus[count++] = cpu;
	if (count < 2)
		return;
	expect("stand-aside", set_cpu(0, cpus[0]), 0);
	probe_order(cpus[1], 15, 10, 0);
	probe_order(cpus[1], 10, 10, 0); /* it comes to the head of its list */
	probe_order(cpus[1], 5, 10, 3);
	probe_order(cpus[1], 0, 10, 3);
	probe_order(cpus[1], YIELDS, 20, 3);
	probe_order(cpus[1], YIELDS, 10, 0);
	probe_waiter_moves(cpus[1], cpus[0], SCHED_OTHER, "fair-waiter-moves");
	probe_waiter_moves(cpus[1], cpus[0], SCHED_FIFO, "fifo-waiter-moves");
	/* Set by who knows that an emulator lets a CPU wait beside a busy one for longer than AT_ONCE_MS. */
	if (getenv("LONG_TURNS"))
		count = 0;
	if (pulls && count > 2) {
		probe_scene("pulled", is_pulled, cpus, 0);
		probe_scene("pulled-from-fair", is_pulled, cpus, FAIR);
		probe_scene("pulled-from-lower", is_pulled, cpus, LOWER);
	}
	if (count > 2) {
		probe_scene("pushed-equal", is_pushed, cpus, 20);
		probe_scene("pushed", is_pushed, cpus, 10);
	}
	expect("any-cpu", sched_setaffinity(0, sizeof(all), &all), 0);
}

#endif
