/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a load leaves behind: tasks in queues of its groups, and what CPUs still count of tasks that are gone.
 */
#ifndef REMAINS_H
#define REMAINS_H

#include "common.h"
#include "debug.h"

/* Waits up to a second, until the children of forkers are gone. */
static void await_empty(const struct group *group)
{
	char path[PATH + 32], text[128];

	snprintf(path, sizeof(path), "%s/cgroup.events", group->path);
	for (int tried = 0; tried < 100; tried++) {
		if (!get(path, text, sizeof(text)) || !strstr(text, "populated 1"))
			return;
		pause_us(10000);
	}
}

struct left {
	long on[CPU_SETSIZE], sum;
	char field[32];
};

/* What without tasks is 0 in a queue (print_cfs_rq(), 5.10 to 7.3). */
static int counts_tasks(const char *field)
{
	return !strcmp(field, "nr_running") || !strcmp(field, "nr_queued") || !strncmp(field, "h_nr_", 5) ||
	       !strncmp(field, "idle_", 5) || !strncmp(field, "throttle", 8);
}

/* A queue that is no longer printed, as the kernel does not update it, keeps what it had. */
static int read_left(struct left *left)
{
	FILE *file = open_debug();
	int at = -1, cpu = 0, any = 0;
	char line[PATH + 64];

	while (file && fgets(line, sizeof(line), file)) {
		char field[32];
		long value;

		at = group_at(line, at);
		if (at < 0)
			continue;
		if (sscanf(line, "cfs_rq[%d]", &cpu) == 1 && cpu >= 0 && cpu < CPU_SETSIZE) {
			left[at].sum -= left[at].on[cpu];
			left[at].on[cpu] = 0;
		} else if (sscanf(line, " .%31s : %ld", field, &value) == 2 && value && counts_tasks(field)) {
			left[at].on[cpu] += labs(value);
			left[at].sum += labs(value);
			strcpy(left[at].field, field);
		}
	}
	if (file)
		fclose(file);
	for (int i = 0; i < group_count; i++)
		any |= left[i].sum != 0;
	return any;
}

/* What the queues of groups hold 5 s after their last tasks; throttled ones need periods. */
static void tell_left(int load)
{
	static struct left left[MOST_GROUPS];

	if (!group_count || access("/proc/self/sched", F_OK))
		return;
	memset(left, 0, sizeof(left));
	for (int i = 0; i < group_count; i++)
		await_empty(&groups[i]);
	pause_us(100000); /* an idle CPU forgets at once who sleeps */
	for (int tried = 0; tried < 50 && read_left(left); tried++)
		pause_us(100000);
	for (int i = 0; i < group_count; i++)
		printf("load %d group %s left %ld %s\n", load, groups[i].name, left[i].sum,
		       left[i].sum ? left[i].field : "nothing");
}

/* What is admitted for deadline tasks, once for each CPU of a root domain. */
static long long sum_admitted(void)
{
	return sum_of(" .dl_bw->total_bw : %lld");
}

/* Tasks in uninterruptible sleep: the sum only counts, as each wakes up on any CPU. */
static long long sum_blocked(void)
{
	return (int)sum_of(" .nr_uninterruptible : %lld"); /* 5.14 to 5.18 print it without a sign */
}

/* Tasks that wait for a device (proc(5)). */
static long long count_io(void)
{
	static char text[65536];

	return get("/proc/stat", text, sizeof(text)) ? line_of(text, "\nprocs_blocked ") : 0;
}

/* What a count is more than before, up to 2 s later: it may take periods until all is given back. */
static long long left_of(long long (*count)(void), long long before)
{
	long long left = 0;

	for (int tried = 0; tried < 20 && (left = count() - before); tried++)
		pause_us(100000);
	return left;
}

/* Not where CPUs have gone: each has a part of the count. */
static void tell_blocked(int load)
{
	static long cpus_before;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), blocked = left_of(sum_blocked, blocked_before);
	long io = left_of(count_io, io_before);

	blocked_before += blocked;
	io_before += io;
	if (load >= 0 && cpus == cpus_before)
		printf("load %d end blocked %ld\nload %d end blocked_by_io %ld\n", load, blocked, load, io);
	cpus_before = cpus;
}

#endif
