/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel says of the settings of a task, and what children inherit of them.
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <sys/resource.h>
#include <sys/syscall.h>

#include "load.h"

#define RESETS 1 /* SCHED_FLAG_RESET_ON_FORK */
#define NORMAL_WEIGHT (1L << 20) /* of nice level 0, on 64 bits (scale_load(), kernel/sched/sched.h) */

struct settings {
	struct attributes attributes; /* without the nice level */
	int nice;
	cpu_set_t cpus;
};

static const char *const inherited[] = { "mask", "policy", "nice", "priority", "slice", "flags", "weight",
					 "rank" };
enum { MASK, POLICY, NICE, PRIORITY, SLICE, FLAGS, WEIGHT, RANK, INHERITED };

/* How many children were compared with their parents, and how many have another setting. */
struct compared {
	int children, differing[INHERITED];
};

/* A parent before a fork, how much had changed by then, and in how many cases of one task alone. */
struct birth {
	struct settings parent;
	int changes, alone;
};

/* Of process 0: the caller. 0 if the kernel does not tell. */
static int read_settings(pid_t pid, struct settings *settings)
{
	memset(settings, 0, sizeof(*settings));
	if (syscall(SYS_sched_getattr, pid, &settings->attributes, sizeof(settings->attributes), 0) ||
	    sched_getaffinity(pid, sizeof(settings->cpus), &settings->cpus))
		return 0;
	settings->attributes.size = settings->attributes.nice = 0;
	settings->nice = getpriority(PRIO_PROCESS, pid);
	return 1;
}

/* What follows a name and a colon in a file of a process; "" without it. */
static void read_field(pid_t pid, const char *file, const char *name, char *text, size_t size)
{
	char path[48], line[512];
	FILE *lines;

	*text = '\0';
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	lines = fopen(path, "re");
	while (lines && !*text && fgets(line, sizeof(line), lines))
		if (!strncmp(line, name, strlen(name)) && strchr(line, ':'))
			snprintf(text, size, "%.*s", (int)strcspn(strchr(line, ':') + 1, "\n"),
				 strchr(line, ':') + 1);
	if (lines)
		fclose(lines);
}

/* -1 without CONFIG_SCHED_DEBUG. */
static long read_weight(pid_t pid)
{
	char text[32];

	read_field(pid, "sched", "se.load.weight", text, sizeof(text));
	return *text ? atol(text) : -1;
}

/* Field 18 of /proc/PID/stat: nice levels from 0 on, below them priorities (proc(5)). */
static long read_rank(pid_t pid)
{
	return read_stat(pid, 18, 999);
}

static void tell_settings(pid_t pid, const char *whose)
{
	struct settings settings;
	char cpus[512];

	read_field(pid, "status", "Cpus_allowed_list", cpus, sizeof(cpus));
	if (!*cpus || !read_settings(pid, &settings))
		return;
	printf("%s policy %u nice %d priority %u flags %llu runtime %llu deadline %llu period %llu weight %ld"
	       " rank %ld cpus %s\n", whose, settings.attributes.policy, settings.nice,
	       settings.attributes.priority, (unsigned long long)settings.attributes.flags,
	       (unsigned long long)settings.attributes.runtime,
	       (unsigned long long)settings.attributes.deadline,
	       (unsigned long long)settings.attributes.period, read_weight(pid), read_rank(pid),
	       cpus + strspn(cpus, "\t "));
}

/* The kernel's slice of fair tasks, in ns (since 6.6); 0 if it does not tell. */
static unsigned long long read_usual_slice(void)
{
	FILE *file = fopen("/sys/kernel/debug/sched/base_slice_ns", "re");
	unsigned long long ns = 0;

	if (file && fscanf(file, "%llu", &ns) != 1)
		ns = 0;
	if (file)
		fclose(file);
	return ns;
}

static int is_ranked(const struct settings *settings)
{
	unsigned int policy = settings->attributes.policy;

	return policy == SCHED_FIFO || policy == SCHED_RR || policy == DEADLINE;
}

/* What the child of a parent has (SCHED_RESET_ON_FORK, sched(7); sched_fork(), kernel/sched/core.c, 6.12). */
static struct settings after_fork(const struct settings *parent)
{
	struct settings child = *parent;

	child.attributes.flags &= ~(uint64_t)RESETS;
	if (!(parent->attributes.flags & RESETS))
		return child;
	if (is_ranked(parent)) {
		memset(&child.attributes, 0, sizeof(child.attributes));
		child.nice = 0;
	} else if (child.nice < 0) {
		child.nice = 0;
	}
	return child;
}

/* A weight changes only with a nice level that is reset. */
static int differs_in_weight(const struct settings *parent, const struct settings *child)
{
	long weight = read_weight(getpid()), expected = read_weight(getppid());

	if (parent->nice != child->nice && child->attributes.policy != SCHED_IDLE)
		expected = NORMAL_WEIGHT;
	return weight != expected;
}

/* A lock lends its rank to the parent alone; that of policy idle is of the nice level given with it. */
static int differs_in_rank(const struct settings *child)
{
	unsigned int policy = child->attributes.policy;
	int has_priority = policy == SCHED_FIFO || policy == SCHED_RR;

	return policy != SCHED_IDLE &&
	       read_rank(getpid()) != (has_priority ? -1L - child->attributes.priority : 20L + child->nice);
}

/* A child whose parent resets has the kernel's slice, since kernels tell it (6.12). */
static int differs_in_slice(const struct settings *parent, const struct settings *child,
			    unsigned long long usual_slice)
{
	if (!(parent->attributes.flags & RESETS))
		return child->attributes.runtime != parent->attributes.runtime;
	return usual_slice && child->attributes.runtime && child->attributes.runtime != usual_slice;
}

/*
 * What differs between a child, the caller, and what its parent's settings say: 0 if nothing is told. Without
 * USUAL_SLICE, that of children whose parents reset may be any; WHOLE compares also what /proc has.
 */
static int compare_settings(const struct settings *parent, int whole, int hotplug,
			    unsigned long long usual_slice, int *differing)
{
	struct settings child, expected = after_fork(parent);

	if (!read_settings(0, &child))
		return 0;
	/* A hotplug may change the mask of a task that runs and not of one that sleeps, and slices. */
	differing[MASK] = !hotplug && !CPU_EQUAL(&child.cpus, &expected.cpus);
	differing[POLICY] = child.attributes.policy != expected.attributes.policy;
	differing[NICE] = child.nice != expected.nice;
	differing[PRIORITY] = child.attributes.priority != expected.attributes.priority;
	differing[SLICE] = !hotplug && differs_in_slice(parent, &child, usual_slice);
	differing[FLAGS] = child.attributes.flags != expected.attributes.flags;
	differing[WEIGHT] = whole && differs_in_weight(parent, &child);
	differing[RANK] = whole && differs_in_rank(&child);
	return 1;
}

static void add_compared(struct compared *sums, const int *differing)
{
	for (int i = 0; i < INHERITED; i++)
		__atomic_add_fetch(&sums->differing[i], differing[i], __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&sums->children, 1, __ATOMIC_SEQ_CST);
}

static void tell_compared(int load, int place, const struct compared *sums)
{
	printf("load %d part %d children %d", load, place, sums->children);
	for (int i = 0; i < INHERITED; i++)
		printf(" %s %d", inherited[i], sums->differing[i]);
	printf("\n");
}

#endif
