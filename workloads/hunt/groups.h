/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control groups (admin-guide/cgroup-v2.rst): how they are made, change, and go, what their files say, and the
 * cpuset of all tasks.
 */
#ifndef GROUPS_H
#define GROUPS_H

#include <sys/mount.h>
#include <sys/stat.h>

#include "common.h"

#define CPUSET CGROUPS "/hunt"

/* 0 if it was refused. */
static int put_in(const struct group *group, const char *file, const char *text)
{
	char path[PATH + 32];

	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	if (!put(path, text))
		return 1;
	shared->denied += errno != ENOENT; /* an old kernel does not have the file */
	printf("group %s: %s %s refused: %s\n", group->name, file, text, strerror(errno));
	return 0;
}

static void write_quota(char *text, const struct group *group)
{
	if (group->quota)
		sprintf(text, "%ld %ld", group->quota * 1000, group->period * 1000);
	else
		sprintf(text, "max %ld", group->period * 1000);
}

static int put_quota(const struct group *group)
{
	char text[64];

	write_quota(text, group);
	return put_in(group, "cpu.max", text);
}

static int put_burst(const struct group *group, long burst)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", burst * 1000);
	return put_in(group, "cpu.max.burst", text);
}

static int put_weight(const struct group *group, long weight)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", weight);
	return put_in(group, "cpu.weight", text);
}

/* 1 if a file reads other than was written. */
static int is_wrong(const struct group *group, const char *file, const char *written)
{
	char path[PATH + 32], text[64];

	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	if (!get(path, text, sizeof(text)))
		return 0; /* an old kernel */
	text[strcspn(text, "\n")] = '\0';
	return strcmp(text, written) != 0;
}

static int has_wrong_cpus(const struct group *group)
{
	char path[PATH + 32], text[LIST];
	cpu_set_t written, read;

	snprintf(path, sizeof(path), "%s/cpuset.cpus", group->path);
	if (!*group->cpus || !get(path, text, sizeof(text)))
		return 0;
	text[strcspn(text, "\n")] = '\0';
	if (!*text)
		return 1;
	written = parse_cpulist(group->cpus);
	read = parse_cpulist(text);
	return !CPU_EQUAL(&written, &read);
}

/* How many of a group's files read other than was written. */
static int count_wrong(const struct group *group)
{
	char quota[64], burst[32], weight[24];

	write_quota(quota, group);
	snprintf(burst, sizeof(burst), "%ld", group->burst * 1000);
	snprintf(weight, sizeof(weight), "%ld", group->weight);
	return is_wrong(group, "cpu.max", quota) + is_wrong(group, "cpu.max.burst", burst) +
	       is_wrong(group, "cpu.idle", group->idle ? "1" : "0") + has_wrong_cpus(group) +
	       (!group->idle && is_wrong(group, "cpu.weight", weight));
}

static void move_process(int number, const char *group)
{
	char text[24];

	snprintf(text, sizeof(text), "%d", pids[number]);
	put_in(find_group(group), "cgroup.procs", text);
}

/* Parents come before their children. */
static void make_groups(void)
{
	if (!group_count)
		return;
	clock_gettime(CLOCK_MONOTONIC, &groups_made);
	mount("none", CGROUPS, "cgroup2", 0, NULL); /* it may be there already */
	put(CGROUPS "/cgroup.subtree_control", "+cpuset +cpu");
	for (int i = 0; i < group_count; i++) {
		struct group *group = &groups[i];
		size_t length = strlen(group->path);

		if (mkdir(group->path, 0755) && errno != EEXIST)
			die("no group %s: %s", group->name, strerror(errno));
		for (int child = i + 1; child < group_count; child++)
			if (!strncmp(groups[child].path, group->path, length) && groups[child].path[length] == '/') {
				put_in(group, "cgroup.subtree_control", "+cpuset +cpu");
				break;
			}
		put_in(group, "cpu.idle", group->idle ? "1" : "0");
		if (!group->idle)
			put_weight(group, group->weight);
		put_quota(group);
		if (group->burst && put_burst(group, group->burst))
			put_quota(group); /* which keeps the burst */
		put_in(group, "cpuset.cpus", *group->cpus ? group->cpus : "\n");
		if (group->partition) {
			put_in(group, "cpuset.cpus.partition", "root");
			shared->denied += is_wrong(group, "cpuset.cpus.partition", "root"); /* "root invalid" */
		}
	}
	for (int i = 0; i < pid_count; i++)
		if (*parts[part_of[i]].group)
			move_process(i, parts[part_of[i]].group);
}

static void remove_group(const char *path)
{
	for (int tried = 0; rmdir(path) && errno == EBUSY && tried < 1000; tried++)
		pause_us(2000); /* until the children of forkers are gone */
}

static void remove_groups(void)
{
	for (int i = group_count - 1; i >= 0; i--)
		remove_group(groups[i].path);
}

/* A burst that is larger than a quota, before or after, is refused. */
static void change_quota(struct group *group, const struct event *event)
{
	struct group changed = *group;

	if (event->quota >= 0)
		changed.quota = event->quota;
	if (event->period)
		changed.period = event->period;
	if (changed.burst > event->burst && event->burst >= 0 && put_burst(group, event->burst))
		changed.burst = group->burst = event->burst;
	if ((event->quota >= 0 || event->period) && put_quota(&changed))
		*group = changed;
	if (group->burst < event->burst && put_burst(group, event->burst))
		group->burst = event->burst;
}

static void change_group(const struct event *event)
{
	struct group *group = find_group(event->group);

	if (event->weight && put_weight(group, event->weight))
		group->weight = event->weight;
	if (*event->cpus && put_in(group, "cpuset.cpus", event->cpus))
		strcpy(group->cpus, event->cpus);
	change_quota(group, event);
	if (event->idle >= 0 && put_in(group, "cpu.idle", event->idle ? "1" : "0")) {
		group->idle = event->idle;
		if (!group->idle)
			put_weight(group, group->weight); /* the kernel forgot it */
	}
}

static void enter_cpuset(void)
{
	char text[32];

	mount("none", "/sys/fs/cgroup", "cgroup2", 0, NULL); /* it may be there already */
	put("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
	if (mkdir(CPUSET, 0755) && errno != EEXIST)
		die("no cpuset: %s", strerror(errno));
	if (put(CPUSET "/cpuset.cpus", cpuset_from))
		die("cannot set the cpuset: %s", strerror(errno));
	for (int i = 0; i < pid_count; i++) {
		snprintf(text, sizeof(text), "%d", pids[i]);
		if (put(CPUSET "/cgroup.procs", text))
			die("cannot enter the cpuset: %s", strerror(errno));
	}
}

#endif
