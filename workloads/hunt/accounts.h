/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel counts exactly, of threads that are stopped and of CPUs.
 *
 *   load N thread T of PID ran_ns N ticks N voluntary N involuntary N migrations N
 *   load N thread T turns N delay_us N waits_us N       turns on CPUs and the wait for these (schedstat), and the
 *                                           latter as the policy's own statistics have it (-1: not told)
 *   load N thread T runnable N load N       averages (kernel/sched/pelt.c), when it stopped
 *   load N process PID ticks N system N reaped N
 *                                           CPU time of all its threads, of that in the kernel, and of children
 *                                           that it reaped
 *   load N thread T node NODE private N shared N group_private N group_shared N
 *   load N thread T preferred NODE group ID faults N      after its nodes
 *   load N first|last switches N forks N    /proc/stat, between the marks `reading` and `read`
 *   load N first|last cpu N nice N idle N   in ticks; NICE is user time of positive nice levels
 *
 * Ticks are of 1/100 s, user and system time together (proc(5)). Switches, migrations and faults are of
 * /proc/PID/task/T/sched (kernel/sched/debug.c): none without CONFIG_SCHED_DEBUG.
 */
#ifndef ACCOUNTS_H
#define ACCOUNTS_H

#include <ctype.h>
#include <dirent.h>

#include "shared.h"

/* Opens /proc/PID/task/THREAD/FILE, or /proc/PID/FILE without a thread. */
static FILE *open_of(pid_t pid, const char *thread, const char *file)
{
	char path[96];

	if (thread)
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/%s", pid, thread, file);
	else
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	return fopen(path, "re");
}

/* Fields 14 to 17 of a file `stat`: user and system time, and those of reaped children. */
static int read_ticks(pid_t pid, const char *thread, long *ticks, long *system, long *reaped)
{
	FILE *file = open_of(pid, thread, "stat");
	long user, of_user, of_system;
	int count;

	if (!file)
		return 0;
	count = fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld %ld %ld", &user,
		       system, &of_user, &of_system);
	fclose(file);
	*ticks = user + *system;
	*reaped = of_user + of_system;
	return count == 4;
}

/* NUMA hinting faults of a thread: on each node its private and shared ones, and those of its group. */
struct faults {
	long preferred, total;
	int group, is_told, nodes, node[MAX_NODES];
	unsigned long any, on[MAX_NODES][4];
};

static void read_faults(const char *line, struct faults *faults)
{
	unsigned long private, shared, group_private, group_shared;
	int node;

	faults->is_told |= sscanf(line, "total_numa_faults : %ld", &faults->total) == 1;
	(void)(sscanf(line, "numa_preferred_nid : %ld", &faults->preferred) ||
	       sscanf(line, "current_node=%*d, numa_group_id=%d", &faults->group));
	if (faults->nodes == MAX_NODES ||
	    sscanf(line, "numa_faults node=%d task_private=%lu task_shared=%lu group_private=%lu group_shared=%lu",
		   &node, &private, &shared, &group_private, &group_shared) != 5)
		return;
	faults->any |= private | shared | group_private | group_shared;
	faults->node[faults->nodes] = node;
	memcpy(faults->on[faults->nodes++], (unsigned long[]){ private, shared, group_private, group_shared },
	       sizeof(faults->on[0]));
}

/* The thread's own line comes last: with it, all of its nodes are told. */
static void tell_faults(int load, const char *thread, const struct faults *faults)
{
	if (!faults->is_told || !(faults->any || faults->total))
		return;
	for (int i = 0; i < faults->nodes; i++)
		printf("load %d thread %s node %d private %lu shared %lu group_private %lu group_shared %lu\n", load,
		       thread, faults->node[i], faults->on[i][0], faults->on[i][1], faults->on[i][2],
		       faults->on[i][3]);
	printf("load %d thread %s preferred %ld group %d faults %ld\n", load, thread, faults->preferred,
	       faults->group, faults->total);
}

static void tell_thread(int load, pid_t pid, const char *thread)
{
	long ticks, system, reaped, voluntary, involuntary, migrations, weighted, runnable;
	struct faults faults = { .preferred = -1 };
	int counts = 0, averages = 0;
	unsigned long long ran = 0, delay = 0, turns = 0;
	double waits_ms = -0.001;
	FILE *file = open_of(pid, thread, "schedstat");
	char line[256];

	if (!file)
		return;
	if (fscanf(file, "%llu %llu %llu", &ran, &delay, &turns) != 3)
		ran = 0;
	fclose(file);
	file = open_of(pid, thread, "sched");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		counts += sscanf(line, "nr_voluntary_switches : %ld", &voluntary) == 1 ||
			  sscanf(line, "nr_involuntary_switches : %ld", &involuntary) == 1 ||
			  sscanf(line, "se.nr_migrations : %ld", &migrations) == 1;
		averages += sscanf(line, "se.avg.load_avg : %ld", &weighted) == 1 ||
			    sscanf(line, "se.avg.runnable_avg : %ld", &runnable) == 1;
		if (!strncmp(line, "wait_sum", 8) || !strncmp(line, "se.statistics.wait_sum", 22)) /* before 5.16 */
			waits_ms = strchr(line, ':') ? atof(strchr(line, ':') + 1) : -0.001;
		read_faults(line, &faults);
	}
	fclose(file);
	if (ran)
		printf("load %d thread %s turns %llu delay_us %llu waits_us %.0f\n", load, thread, turns, delay / 1000,
		       waits_ms * 1000);
	tell_faults(load, thread, &faults);
	if (averages == 2)
		printf("load %d thread %s runnable %ld load %ld\n", load, thread, runnable, weighted);
	if (read_ticks(pid, thread, &ticks, &system, &reaped) && counts == 3)
		printf("load %d thread %s of %d ran_ns %llu ticks %ld voluntary %ld involuntary %ld migrations %ld\n",
		       load, thread, pid, ran, ticks, voluntary, involuntary, migrations);
}

/* Of a process whose threads are stopped. */
static void tell_threads(int load, pid_t pid)
{
	char path[32];
	DIR *folder;
	long ticks, system, reaped;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	folder = opendir(path);
	if (!folder)
		return;
	for (struct dirent *entry; (entry = readdir(folder));)
		if (*entry->d_name != '.')
			tell_thread(load, pid, entry->d_name);
	closedir(folder);
	if (read_ticks(pid, NULL, &ticks, &system, &reaped))
		printf("load %d process %d ticks %ld system %ld reaped %ld\n", load, pid, ticks, system, reaped);
}

static void tell_cpu(int load, const char *when, const char *line)
{
	unsigned long nice, idle, waiting;
	int cpu;

	if (!isdigit((unsigned char)line[3])) /* the sum of all */
		return;
	if (sscanf(line, "cpu%d %*u %lu %*u %lu %lu", &cpu, &nice, &idle, &waiting) == 4)
		printf("load %d %s cpu %d nice %lu idle %lu\n", load, when, cpu, nice, idle + waiting);
}

/* The text is read at once between two marks, and printed later. */
static void tell_cpus(int load, const char *when)
{
	static char text[65536];
	unsigned long switches = 0, forks = 0;
	int file = open("/proc/stat", O_RDONLY | O_CLOEXEC), length;
	char around[48], *save;

	if (file < 0)
		return;
	snprintf(around, sizeof(around), "hunt: load %d reading", load);
	mark(around);
	length = read(file, text, sizeof(text) - 1);
	snprintf(around, sizeof(around), "hunt: load %d read", load);
	mark(around);
	close(file);
	text[length > 0 ? length : 0] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		tell_cpu(load, when, line);
		(void)(sscanf(line, "ctxt %lu", &switches) || sscanf(line, "processes %lu", &forks));
	}
	printf("load %d %s switches %lu forks %lu\n", load, when, switches, forks);
}

#endif
