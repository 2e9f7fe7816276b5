/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Masks of CPUs (sched_setaffinity(2)).
 */
#ifndef MASKS_H
#define MASKS_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "expect.h"

#define TURNS 40

static void turn(pid_t pid, int first, int second)
{
	int failed = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int number = 0; number < TURNS; number++)
		failed += set_cpu(pid, number % 2 ? first : second) != 0;
	_exit(failed);
}

/* Tasks whose mask loses their CPU are distributed over the new one (cpumask_any_and_distribute(), lib/cpumask.c). */
static void probe_distribution(const cpu_set_t *all, int first)
{
	cpu_set_t rest = *all, used;

	CPU_CLR(first, &rest);
	if (CPU_COUNT(&rest) < 2)
		return;
	CPU_ZERO(&used);
	for (int number = 0; number < TURNS / 2; number++) {
		expect("bind", set_cpu(0, first), 0);
		expect("set-rest", sched_setaffinity(0, sizeof(rest), &rest), 0);
		CPU_SET(sched_getcpu(), &used);
	}
	expect("cpus-of-rest", CPU_COUNT(&used) > 1, 1);
	expect("set-all", sched_setaffinity(0, sizeof(*all), all), 0);
}

/* A mask holds when the call returns, for a running task, too, and when two others set its mask at once
 * (affine_move_task(), kernel/sched/core.c).
 */
static void probe_masks(void)
{
	pid_t hog, turners[2];
	cpu_set_t all;
	int first = -1, last = -1, status;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		first = first < 0 ? cpu : first;
		last = cpu;
		expect("set-mask", set_cpu(0, cpu), 0);
		expect("cpu-of-mask", sched_getcpu(), cpu);
	}
	expect("set-masks", sched_setaffinity(0, sizeof(all), &all), 0);
	if (first == last)
		return;
	probe_distribution(&all, first);
	hog = fork_hog();
	if (hog < 0)
		return;
	for (int number = 0; number < 2; number++) {
		turners[number] = fork();
		if (!turners[number])
			turn(hog, number ? last : first, number ? first : last);
	}
	for (int number = 0; number < 2; number++)
		if (turners[number] > 0 && waitpid(turners[number], &status, 0) > 0)
			expect("set-mask-in-turn", status, 0);
	expect("set-mask-of-hog", set_cpu(hog, last), 0);
	expect("cpu-of-hog", read_stat(hog, 39, -1), last); /* its CPU (proc(5)) */
	kill(hog, SIGKILL);
	waitpid(hog, NULL, 0);
}

#endif
