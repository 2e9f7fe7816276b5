/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the processes of a load start, and how one changes with all its threads.
 */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "common.h"
#include "pages.h"
#include "tasks.h"

static void set_attributes(pid_t pid, const struct attributes *attributes)
{
	/* Only what was asked for: older kernels refuse a slice of 0. */
	if (syscall(SYS_sched_setattr, pid, attributes, 0)) {
		printf("policy %s refused: %s\n", policies[attributes->policy], strerror(errno));
		__atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
	}
}

static void begin_task(struct part *part)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpriority(PRIO_PROCESS, 0, part->nice);
	if (sched_setaffinity(0, sizeof(part->start), &part->start))
		_exit(1);
}

static pid_t start_process(int place)
{
	pid_t pid;

	if (pid_count == MOST_PROCESSES)
		die("too many processes");
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (pid) {
		pids[pid_count] = pid;
		part_of[pid_count++] = place;
	}
	return pid;
}

/* Starts the wakees of a waker; returns the ends through which it wakes them, and the first futex. */
static int start_wakees(struct part *part, int place, int number, int *ends)
{
	int first = pid_count;

	for (int i = 0; i < part->burst; i++) {
		int both[2] = { -1, -1 };

		if (part->over == SOCKET ? socketpair(AF_UNIX, SOCK_STREAM, 0, both) : pipe(both))
			die("no pipe");
		is_wakee[pid_count] = 1;
		if (!start_process(place)) {
			begin_task(part);
			rename_task("wakee", place, number * part->burst + i);
			__atomic_add_fetch(&shared->woken, 1, __ATOMIC_SEQ_CST);
			close(both[1]);
			be_woken(part, both[0], &shared->wakes[first + i]);
		}
		close(both[0]);
		ends[i] = both[1];
	}
	return first;
}

/* Whether a count reaches a number within 5 s. */
static int await(volatile int *count, int number)
{
	for (int waited = 0; *count < number; waited++) {
		if (waited > 2500)
			return 0;
		pause_us(2000);
	}
	return 1;
}

/* Whether its tasks start. */
static int start_part(int place)
{
	struct part *part = &parts[place];
	int processes = part->kind == MEMORY && part->threads ? 1 : part->n, wakees = shared->woken;

	if (task_count + part->n > MOST_TASKS)
		die("too many tasks");
	if (part->kind == MEMORY && part->shared)
		part->memory = map_memory(part, MAP_SHARED);
	for (int i = 0; i < processes; i++) {
		int ends[MOST_WAKEES], first = 0;

		if (part->kind == WAKER)
			first = start_wakees(part, place, i, ends);
		is_wakee[pid_count] = 0;
		if (!start_process(place)) {
			if (part->kind == FORKER)
				setpgid(0, 0); /* a signal to the group is one to its children, too */
			begin_task(part);
			run_task(part, place, i, task_count + i, ends, &shared->wakes[first]);
		}
		wakees += part->kind == WAKER ? part->burst : 0;
		for (int end = 0; part->kind == WAKER && end < part->burst; end++)
			close(ends[end]);
	}
	task_count += part->n;
	if (!await(&shared->woken, wakees))
		return 0;
	for (int i = task_count - part->n; i < task_count; i++)
		if (!await(&shared->tasks[i].running, 1))
			return 0;
	return 1;
}

/* A thread has attributes of its own, so the threads of a process are changed one by one. */
static void for_threads(int number, void (*change)(pid_t, const void *), const void *value)
{
	struct part *part = &parts[part_of[number]];
	int first = 0;

	change(pids[number], value);
	if (part->kind != MEMORY || !part->threads)
		return;
	for (int place = 0; place < part_of[number]; place++)
		first += parts[place].n;
	for (int i = 1; i < part->n; i++)
		change(shared->tasks[first + i].thread, value);
}

static void bind_thread(pid_t pid, const void *cpus)
{
	if (sched_setaffinity(pid, sizeof(cpu_set_t), cpus) && errno != ESRCH)
		__atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
}

static void renice_thread(pid_t pid, const void *nice)
{
	if (setpriority(PRIO_PROCESS, pid, *(const long *)nice) && errno != ESRCH)
		__atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
}

static void reclass_thread(pid_t pid, const void *attributes)
{
	set_attributes(pid, attributes);
}

/* Wakees with a mask of their own keep it. */
static void bind_process(int number, const cpu_set_t *cpus)
{
	struct part *part = &parts[part_of[number]];

	for_threads(number, bind_thread, is_wakee[number] && part->has_wakee ? &part->wakee : cpus);
}

/* When all have started: a task of a lower priority could not start beside one of a higher. */
static void classify_tasks(void)
{
	for (int i = 0; i < pid_count; i++) {
		const struct attributes *attributes = &parts[part_of[i]].attributes;

		if (attributes->policy || attributes->runtime || attributes->flags)
			for_threads(i, reclass_thread, attributes);
	}
}

/* To all tasks, also the children of forkers: what they run is in the accounts of groups. */
static void signal_all(int signal)
{
	for (int i = 0; i < pid_count; i++)
		kill(parts[part_of[i]].kind == FORKER ? -pids[i] : pids[i], signal);
}

#endif
