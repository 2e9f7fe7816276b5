/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters of the scheduler and of interrupts, one a line: `load N WHEN NAME VALUE`.
 *
 * /proc/schedstat (Documentation/scheduler/sched-stats.rst): sums over CPUs, by number of the domain. Of
 * the three kinds of balancing the last is that of newly idle CPUs, in every version from 15 on.
 * /proc/interrupts: local timer interrupts by CPU, and the sums of reschedule and function call interrupts.
 */
#ifndef COUNTERS_H
#define COUNTERS_H

#include <ctype.h>

#include "shared.h"

#define DEEPEST 3 /* domains from here on are counted together */
#define MOST_WORDS 64
#define MOST_CPUS 64

struct balancing {
	unsigned long attempts[DEEPEST + 1], newidle, failed, pulled, active, remote, affine;
};

/* /proc/schedstat counts balancing only while this is on (Documentation/admin-guide/sysctl/kernel.rst). */
static void count_balancing(void)
{
	int file = open("/proc/sys/kernel/sched_schedstats", O_WRONLY | O_CLOEXEC);

	if (file < 0)
		return;
	if (write(file, "1", 1) != 1)
		die("cannot count balancing: /proc/sys/kernel/sched_schedstats: %s", strerror(errno));
	close(file);
}

/* One line `domainN [NAME] MASK NUMBER...`. */
static void add_domain(char *line, struct balancing *sums)
{
	unsigned long numbers[MOST_WORDS];
	char *save, *word = strtok_r(line, " \n", &save);
	int level = atoi(word + 6), count = 0, each, rest;

	while ((word = strtok_r(NULL, " \n", &save)) && count < MOST_WORDS)
		numbers[count++] = strtoul(word, NULL, 10);
	/* Before the 12 numbers that follow it, balancing has 8 numbers of each kind, since version 17 has 11. */
	each = count >= 45 ? 11 : 8;
	rest = count - 12;
	if (rest < 3 * each)
		return;
	for (int kind = 0; kind < 3; kind++) {
		unsigned long *of = numbers + rest - (3 - kind) * each;

		if (kind < 2)
			sums->attempts[level < DEEPEST ? level : DEEPEST] += of[0];
		else
			sums->newidle += of[0];
		sums->failed += of[2];
		sums->pulled += of[each - 4];
	}
	sums->active += numbers[rest];
	sums->remote += numbers[rest + 9];
	sums->affine += numbers[rest + 10];
}

static void tell_balancing(int load, const char *when)
{
	FILE *file = fopen("/proc/schedstat", "re");
	struct balancing sums = { 0 };
	char line[2048];

	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "domain", 6) && isdigit((unsigned char)line[6]))
			add_domain(line, &sums);
	fclose(file);
	for (int level = 0; level <= DEEPEST; level++)
		printf("load %d %s lb_attempts_%d %lu\n", load, when, level, sums.attempts[level]);
	printf("load %d %s lb_newidle %lu\n", load, when, sums.newidle);
	printf("load %d %s lb_failed %lu\n", load, when, sums.failed);
	printf("load %d %s lb_pulled %lu\n", load, when, sums.pulled);
	printf("load %d %s lb_active %lu\n", load, when, sums.active);
	printf("load %d %s wake_remote %lu\n", load, when, sums.remote);
	printf("load %d %s wake_affine %lu\n", load, when, sums.affine);
}

static void tell_interrupts(int load, const char *when)
{
	FILE *file = fopen("/proc/interrupts", "re");
	int cpus[MOST_CPUS], online = 0;
	char line[4096], *save;

	if (!file)
		return;
	if (fgets(line, sizeof(line), file))
		for (char *word = strtok_r(line, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
			if (!strncmp(word, "CPU", 3) && online < MOST_CPUS)
				cpus[online++] = atoi(word + 3);
	while (fgets(line, sizeof(line), file)) {
		char *kind = strtok_r(line, " \n", &save), *word;
		unsigned long sum = 0;

		if (!kind || (strcmp(kind, "LOC:") && strcmp(kind, "RES:") && strcmp(kind, "CAL:")))
			continue;
		for (int i = 0; i < online && (word = strtok_r(NULL, " \n", &save)); i++) {
			unsigned long number = strtoul(word, NULL, 10);

			sum += number;
			if (*kind == 'L')
				printf("load %d %s irq_timer_%d %lu\n", load, when, cpus[i], number);
		}
		if (*kind != 'L')
			printf("load %d %s %s %lu\n", load, when, *kind == 'R' ? "irq_reschedule" : "irq_call", sum);
	}
	fclose(file);
}

static void tell_counters(int load, const char *when)
{
	tell_balancing(load, when);
	tell_interrupts(load, when);
}

#endif
