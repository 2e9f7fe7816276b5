/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all of the driver uses: what it shares with its tasks, its processes, what it keeps, and what it does often.
 */
#ifndef COMMON_H
#define COMMON_H

#include <pthread.h>
#include <sys/prctl.h>

#include "expect.h"
#include "load.h"
#include "settings.h"
#include "shared.h"

#define MOST_PROCESSES 1024

/* What a task tells; in memory that all share. */
struct told {
	volatile int running;
	pid_t thread;
	volatile unsigned long touched; /* pages, one after the other and again */
	volatile unsigned long turns;
	volatile long worst; /* the longest wait for the lock, in ns */
	int pages[MOST_NODES];
};

static struct shared {
	volatile int begun, resting, stop, woken; /* how many wakees have their start mask */
	volatile int refused; /* policies, masks and nice levels that the kernel did not set */
	int denied; /* files of groups that it did not write, tasks that did not move, and CPUs */
	volatile int unbound; /* tasks whose memory did not get bound to its node, as before 5.12 */
	unsigned long long usual_slice;
	volatile int changes, alone; /* changes: odd while one happens; and those of one task alone */
	struct compared compared[MOST_PARTS];
	struct probes probes;
	pthread_mutex_t lock;
	volatile int wakes[MOST_PROCESSES]; /* futexes, one for each wakee */
	struct told tasks[MOST_TASKS];
} *shared;

static pid_t pids[MOST_PROCESSES];
static int pid_count, task_count;
static struct timespec groups_made;
static long long admitted_before; /* for deadline tasks, before the load */
static long long blocked_before, io_before; /* tasks, after the load before */
static int part_of[MOST_PROCESSES], is_wakee[MOST_PROCESSES];

static void mark_load(const char *format, int load)
{
	char text[64];

	snprintf(text, sizeof(text), format, load);
	mark(text);
}

/* The begin of a file as text, without more than fits; 0 if it cannot be opened. */
static int get(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC), length;

	*text = '\0';
	if (file < 0)
		return 0;
	length = read(file, text, size - 1);
	close(file);
	text[length > 0 ? length : 0] = '\0';
	return 1;
}

static void work(long us)
{
	if (us > 0)
		__asm__ volatile("1:\t" TURN "sub $1, %0\n\tjnz 1b" : "+r"(us) : : "cc");
}

static void pause_us(long us)
{
	sleep_ns(us * 1000LL);
}

static void rename_task(const char *kind, int part, int number)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%d.%d", kind, part, number);
	prctl(PR_SET_NAME, name);
}

#endif
