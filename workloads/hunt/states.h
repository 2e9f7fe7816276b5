/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the driver tells of tasks: at begin, half and end of a load what the kernel counted of all, and at the
 * end the state, account and settings of each, and how it died.
 */
#ifndef STATES_H
#define STATES_H

#include <signal.h>
#include <sys/wait.h>

#include "accounts.h"
#include "common.h"
#include "debug.h"
#include "processes.h"
#include "settings.h"
#include "usage.h"

static void counters(int load, const char *when)
{
	static char text[65536];
	unsigned long touched = 0;
	char *save;

	for (int task = 0; task < task_count; task++)
		touched += shared->tasks[task].touched;
	get("/proc/vmstat", text, sizeof(text));
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!strncmp(line, "numa_hint_faults ", 17) || !strncmp(line, "numa_pages_migrated ", 20) ||
		    !strncmp(line, "numa_pte_updates ", 17) ||
		    !strncmp(line, "numa_hint_faults_local ", 23))
			printf("load %d %s %s\n", load, when, line);
	printf("load %d %s pages_touched %lu\n", load, when, touched);
	printf("load %d %s refused %d\n", load, when, shared->refused);
	printf("load %d %s denied %d\n", load, when, shared->denied);
	printf("load %d %s unbound %d\n", load, when, shared->unbound);
}

/* /proc/PID/schedstat: ns on a CPU and ns in run queues (Documentation/scheduler/sched-stats.rst). */
static void tell_account(int load, pid_t pid, long switches, long migrations)
{
	unsigned long long ran, waited;
	char path[32], text[96];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	if (get(path, text, sizeof(text)) && sscanf(text, "%llu %llu", &ran, &waited) == 2)
		printf("load %d pid %d ran_ns %llu waited_ns %llu switches %ld migrations %ld\n", load, pid, ran,
		       waited, switches, migrations);
}

static void tell_settings_of(pid_t pid, const void *whose)
{
	tell_settings(pid, whose);
}

static void tell_all_settings(int load)
{
	char whose[64];

	for (int i = 0; i < pid_count; i++) {
		snprintf(whose, sizeof(whose), "load %d part %d wakee %d", load, part_of[i], is_wakee[i]);
		for_threads(i, tell_settings_of, whose);
	}
	for (int place = 0; place < part_count; place++)
		if (parts[place].kind == FORKER)
			tell_compared(load, place, &shared->compared[place]);
}

/*
 * What the kernel takes for the utilization of each process, and the node that NUMA balancing prefers
 * for it; its account, and those of the groups. Of a task that is stopped the utilization is that of the
 * moment at which it stopped.
 */
static void tell_task_states(int load)
{
	static char text[8192];

	if (access("/proc/self/sched", F_OK))
		return; /* a kernel without CONFIG_SCHED_DEBUG */
	signal_all(SIGSTOP);
	pause_us(10000);
	tell_cpus(load, "last");
	mark_load("hunt: load %d stopped", load);
	for (int i = 0; i < pid_count; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/proc/%d/sched", pids[i]);
		if (!get(path, text, sizeof(text)))
			continue;
		printf("load %d pid %d utilization %ld preferred %ld\n", load, pids[i],
		       field_of(text, "se.avg.util_avg"), field_of(text, "numa_preferred_nid"));
		tell_account(load, pids[i], field_of(text, "nr_switches"), field_of(text, "se.nr_migrations"));
		tell_threads(load, pids[i]);
	}
	tell_threads(load, getpid()); /* it may be in a NUMA group, as it shares memory with all */
	tell_all_settings(load);
	tell_groups(load);
	signal_all(SIGCONT);
}

/* Tasks that ended, and not because one that they talk to did. */
static void tell_deaths(int load)
{
	for (int i = 0; i < pid_count; i++) {
		siginfo_t info = { 0 };

		if (waitid(P_PID, pids[i], &info, WNOHANG | WEXITED | WNOWAIT) || !info.si_pid)
			continue;
		if (info.si_code == CLD_EXITED && info.si_status)
			printf("load %d part %d ended with %d\n", load, part_of[i], info.si_status);
		else if (info.si_code != CLD_EXITED && info.si_status != SIGPIPE)
			printf("load %d part %d ended by signal %d\n", load, part_of[i], info.si_status);
	}
}

#endif
