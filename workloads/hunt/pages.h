/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Users of memory: they map it, touch its pages again and again, and count on which nodes these lie.
 */
#ifndef PAGES_H
#define PAGES_H

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "common.h"

#define PAGE 4096UL

static void count_pages(struct told *told, char *memory, unsigned long pages)
{
	enum { BATCH = 512 };
	static __thread void *where[BATCH];
	static __thread int status[BATCH];

	for (unsigned long done = 0; done < pages; done += BATCH) {
		unsigned long batch = pages - done < BATCH ? pages - done : BATCH;

		for (unsigned long i = 0; i < batch; i++)
			where[i] = memory + (done + i) * PAGE;
		if (syscall(SYS_move_pages, 0, batch, where, NULL, status, 0))
			return;
		for (unsigned long i = 0; i < batch; i++)
			if (status[i] >= 0 && status[i] < MOST_NODES)
				told->pages[status[i]]++;
	}
}

struct user {
	struct part *part;
	int number, place, task;
	char *memory;
	unsigned long pages;
};

/* The kernel merges mappings that lie side by side, but not if only one is left out of core dumps. */
static char *map_memory(struct part *part, int sharing)
{
	unsigned long bytes = part->mib << 20, area = bytes / part->areas / PAGE * PAGE;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory");
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (int i = 1; i < part->areas; i += 2)
		if (madvise(memory + i * area, area, MADV_DONTDUMP))
			die("no mapping of its own: %s", strerror(errno));
	return memory;
}

static char *new_memory(struct part *part, unsigned long pages)
{
	char *memory = part->memory;

	if (!memory)
		memory = map_memory(part, MAP_PRIVATE);
	if (part->node >= 0) { /* MPOL_PREFERRED (1): until it is touched, then as everywhere */
		unsigned long mask = 1UL << part->node;

		syscall(SYS_set_mempolicy, 1, &mask, MOST_NODES + 1);
		if (part->bound && syscall(SYS_mbind, memory, pages * PAGE, 2 | 1 << 13, &mask, MOST_NODES + 1, 0))
			__atomic_add_fetch(&shared->unbound, 1, __ATOMIC_SEQ_CST);
	}
	for (unsigned long page = 0; page < pages; page++)
		memory[page * PAGE] = 1;
	if (part->node >= 0)
		syscall(SYS_set_mempolicy, 0, NULL, 0);
	return memory;
}

/* With enough areas for all threads, each thread has every n-th one. */
static int is_own(const struct user *user, unsigned long page)
{
	const struct part *part = user->part;
	unsigned long area = page / (user->pages / part->areas);

	return !part->threads || part->areas < part->n || area % part->n == (unsigned long)user->number;
}

static void *use_memory(void *argument)
{
	struct user *user = argument;
	struct told *told = &shared->tasks[user->task];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rename_task(user->part->threads ? "thread" : "memory", user->place, user->number);
	told->thread = syscall(SYS_gettid);
	told->running = 1;
	while (!shared->stop) {
		if (user->part->rest && shared->resting) {
			work(500);
			continue;
		}
		for (unsigned long page = 0; page < user->pages && !shared->stop; page++) {
			volatile char *at = user->memory + page * PAGE;

			if (!is_own(user, page))
				continue;
			for (int line = 0; line < 8; line++)
				at[line * 64]++;
			told->touched++;
		}
	}
	if (!(user->part->threads || user->part->shared) || !user->number)
		count_pages(told, user->memory, user->pages);
	told->running = 2;
	for (;;)
		pause_us(1000000);
	return NULL;
}

/* All tasks of a part that are one process. */
static void use_memory_together(struct part *part, int place, int first)
{
	unsigned long pages = part->mib * 256;
	char *memory = new_memory(part, pages);
	struct user *users = calloc(part->n, sizeof(*users));

	for (int i = 0; i < part->n; i++) {
		pthread_t thread;

		users[i] = (struct user){ part, i, place, first + i, memory, pages };
		if (i && pthread_create(&thread, NULL, use_memory, &users[i]))
			die("cannot start a thread");
	}
	use_memory(&users[0]);
}

#endif
