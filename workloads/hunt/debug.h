/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the texts are read in which the scheduler tells of tasks, groups and CPUs.
 */
#ifndef DEBUG_H
#define DEBUG_H

#include "load.h"

/* The value of a line `NAME : VALUE` of /proc/PID/sched; -1 without it. */
static long field_of(const char *text, const char *name)
{
	const char *field = strstr(text, name);

	field = field ? strchr(field, ':') : NULL;
	return field ? atol(field + 1) : -1;
}

/* What the scheduler prints of itself; NULL without CONFIG_SCHED_DEBUG. */
static FILE *open_debug(void)
{
	FILE *file = fopen("/sys/kernel/debug/sched/debug", "re"); /* since 5.13 */

	return file ? file : fopen("/proc/sched_debug", "re");
}

/* The group whose queue a line is of (print_cfs_rq()), -1 for none; AT is that of the line before. */
static int group_at(const char *line, int at)
{
	const char *path = strstr(line, "]:");

	if (*line == ' ' || *line == '\n')
		return at;
	if (!path || strncmp(line, "cfs_rq[", 7))
		return -1;
	for (at = group_count - 1; at >= 0; at--) {
		const char *name = groups[at].path + strlen(CGROUPS);

		if (!strncmp(path + 2, name, strlen(name)) && path[2 + strlen(name)] == '\n')
			break;
	}
	return at;
}

/* The number in a line `NAME NUMBER`; -1 without it. */
static long long line_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	return line ? atoll(line + strlen(name)) : -1;
}

/* The sum of a line `.NAME : VALUE` over all CPUs on line (print_cpu(), print_dl_rq()). */
static long long sum_of(const char *format)
{
	FILE *file = open_debug();
	long long sum = 0, value;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, format, &value) == 1)
			sum += value;
	if (file)
		fclose(file);
	return sum;
}

#endif
