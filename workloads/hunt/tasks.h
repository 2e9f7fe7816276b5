/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What tasks of each kind do: hogs, sleepers, forkers and their children, wakers and wakees, and lockers.
 */
#ifndef TASKS_H
#define TASKS_H

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common.h"
#include "pages.h"

/* main() does the same as a child without exec. */
static void execute_child(struct part *part, int place, int number)
{
	char words[3][24];

	snprintf(words[0], sizeof(words[0]), "%d", place);
	snprintf(words[1], sizeof(words[1]), "%d", number);
	snprintf(words[2], sizeof(words[2]), "%ld", part->run);
	execl("/proc/self/exe", "hunt", "child", words[0], words[1], words[2], NULL);
	_exit(1);
}

static int has_hotplug(void)
{
	for (int i = 0; i < event_count; i++)
		if (events[i].what == OFF)
			return 1;
	return 0;
}

static struct birth read_birth(pid_t parent)
{
	struct birth birth = { .changes = shared->changes, .alone = shared->alone };

	if (!read_settings(parent, &birth.parent))
		birth.changes = 1;
	return birth;
}

/* Compares a child with its parent, of which nothing may have changed meanwhile: returns whether. */
static int compare_child(int place, const struct birth *birth, int whole)
{
	struct settings parent;
	int differing[INHERITED];

	if (!compare_settings(&birth->parent, whole, has_hotplug(), shared->usual_slice, differing) ||
	    !read_settings(getppid(), &parent) || memcmp(&parent, &birth->parent, sizeof(parent)))
		return 0;
	if (birth->changes % 2 || shared->changes != birth->changes)
		return 0;
	add_compared(&shared->compared[place], differing);
	return 1;
}

/* A child has the settings of its parent at once, and later on, if only its cpuset has changed. */
static void be_child(struct part *part, int place, int number, const struct birth *birth)
{
	enum { PIECE = 50000 };
	int same = compare_child(place, birth, !number); /* /proc takes its time */

	if (part->exec)
		execute_child(part, place, number);
	rename_task("child", place, number);
	for (long left = part->run; left > 0; left -= PIECE) {
		struct birth later;

		work(left < PIECE ? left : PIECE);
		later = read_birth(getppid());
		if (same && later.alone == birth->alone)
			compare_child(place, &later, 0);
	}
	_exit(0);
}

static void fork_children(struct part *part, int place)
{
	/* Where parents enter a cpuset or a group, their children are to begin in it. */
	while ((*cpuset_from || *part->group) && !shared->begun)
		pause_us(1000);
	for (;;) {
		for (int i = 0; i < part->burst; i++) {
			struct birth birth = read_birth(0);

			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				be_child(part, place, i, &birth);
			}
		}
		while (wait(NULL) > 0)
			;
		pause_us(part->sleep);
	}
}

static long futex(volatile int *word, int operation, int value)
{
	return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void be_woken(struct part *part, int from, volatile int *word)
{
	int seen = 0;
	char byte;

	for (;;) {
		if (part->over == FUTEX) {
			while (*word == seen)
				futex(word, FUTEX_WAIT, seen);
			seen = *word;
		} else if (read(from, &byte, 1) != 1) {
			_exit(0);
		}
		work(part->run);
	}
}

/* The ends of its wakees' pipes, or their futexes. */
static void wake_in_turns(struct part *part, const int *ends, volatile int *words)
{
	for (;;) {
		for (int i = 0; i < part->burst; i++) {
			if (part->over == FUTEX) {
				__atomic_add_fetch(&words[i], 1, __ATOMIC_SEQ_CST);
				futex(&words[i], FUTEX_WAKE, 1);
			} else if (write(ends[i], "x", 1) != 1) {
				_exit(0);
			}
		}
		work(part->run);
		pause_us(part->sleep);
	}
}

static void lock_in_turns(struct part *part, struct told *told)
{
	struct timespec before, after;
	long waited;

	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &before);
		pthread_mutex_lock(&shared->lock);
		clock_gettime(CLOCK_MONOTONIC, &after);
		waited = (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
		if (waited > told->worst)
			told->worst = waited;
		work(part->run);
		pthread_mutex_unlock(&shared->lock);
		told->turns++;
		pause_us(part->sleep);
	}
}

static void run_task(struct part *part, int place, int number, int task, const int *ends, volatile int *words)
{
	struct told *told = &shared->tasks[task];

	if (part->kind == MEMORY) {
		struct user user = { part, number, place, task, NULL, part->mib * 256 };

		if (part->threads)
			use_memory_together(part, place, task);
		user.memory = new_memory(part, user.pages);
		use_memory(&user);
	}
	rename_task(names[part->kind], place, number);
	told->running = 1;
	switch (part->kind) {
	case HOG:
		while (part->yield) {
			work(200);
			sched_yield();
		}
		__asm__ volatile("1:\t" TURN "add $1, %%r12\n\tjmp 1b" : : : "r12", "cc");
		break;
	case SLEEPER:
		for (;;) {
			work(part->run);
			pause_us(part->sleep);
		}
	case WAKER:
		wake_in_turns(part, ends, words);
		break;
	case LOCKER:
		lock_in_turns(part, told);
		break;
	default:
		fork_children(part, place);
	}
}

#endif
