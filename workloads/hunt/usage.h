/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What groups have used, and their load.
 */
#ifndef USAGE_H
#define USAGE_H

#include "common.h"
#include "debug.h"
#include "groups.h"

/*
 * The load of each group, and what of it queues have that the kernel still updates: all of it, but that
 * of throttled queues (list_add_leaf_cfs_rq(), kernel/sched/fair.c; print_cfs_rq(), kernel/sched/debug.c).
 */
static void sum_loads(long *loads, long *listed)
{
	FILE *file = open_debug();
	char line[PATH + 64];
	int at = -1;

	while (file && fgets(line, sizeof(line), file)) {
		long value;

		at = group_at(line, at);
		if (at >= 0 && sscanf(line, " .tg_load_avg_contrib : %ld", &value) == 1)
			listed[at] = (listed[at] == -1 ? 0 : listed[at]) + value;
		else if (at >= 0 && sscanf(line, " .tg_load_avg : %ld", &value) == 1)
			loads[at] = value;
	}
	if (file)
		fclose(file);
}

static unsigned long long used_before[MOST_GROUPS];
static struct timespec noted;
static long delay_us; /* from there to the begin: real-time tasks may take all CPUs */
static long long throttled_before[MOST_GROUPS];

/* Reads cpu.stat of a group. */
static int read_usage(int place, char *text, size_t size, unsigned long long *used)
{
	char path[PATH + 32];

	snprintf(path, sizeof(path), "%s/cpu.stat", groups[place].path);
	return get(path, text, size) && sscanf(text, "usage_usec %llu", used) == 1;
}

/* Tasks run in their groups before a load begins, on large machines for long. */
static void note_usage(void)
{
	char text[512];

	clock_gettime(CLOCK_MONOTONIC, &noted);
	for (int i = 0; i < group_count; i++) {
		used_before[i] = 0;
		throttled_before[i] = 0;
		if (read_usage(i, text, sizeof(text), &used_before[i]))
			throttled_before[i] = line_of(text, "\nnr_throttled ");
	}
}

/* What cpu.stat says of a quota since the groups were made, but LATE since the begin; -1 on older kernels. */
static void tell_limits(int load, int place, const char *text)
{
	long long throttled = line_of(text, "\nnr_throttled ");
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("load %d group %s since_us %lld used_us %lld user_us %lld system_us %lld periods %lld throttled %lld"
	       " throttled_us %lld bursts %lld burst_us %lld late %lld\n",
	       load, groups[place].name,
	       (now.tv_sec - groups_made.tv_sec) * 1000000LL + (now.tv_nsec - groups_made.tv_nsec) / 1000,
	       line_of(text, "usage_usec "), line_of(text, "\nuser_usec "), line_of(text, "\nsystem_usec "),
	       line_of(text, "\nnr_periods "),
	       throttled, line_of(text, "\nthrottled_usec "),
	       line_of(text, "\nnr_bursts "), line_of(text, "\nburst_usec "),
	       throttled - throttled_before[place]);
}

/*
 * Of each group: its CPU time since the begin, its load, and the files that are wrong
 * (admin-guide/cgroup-v2.rst).
 */
static void tell_groups(int load)
{
	long loads[MOST_GROUPS] = { 0 }, listed[MOST_GROUPS];

	for (int i = 0; i < group_count; i++)
		listed[i] = -1;
	if (group_count) {
		pause_us(100000); /* until what just stopped is forgotten */
		sum_loads(loads, listed);
	}
	for (int i = 0; i < group_count; i++) {
		unsigned long long used;
		char text[512];

		if (read_usage(i, text, sizeof(text), &used)) {
			printf("load %d group %s used_us %lld load %ld listed %ld wrong %d delay_us %ld\n", load,
			       groups[i].name, (long long)(used - used_before[i]), loads[i], listed[i],
			       count_wrong(&groups[i]), delay_us);
			tell_limits(load, i, text);
		}
	}
}

#endif
