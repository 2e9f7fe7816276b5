// SPDX-License-Identifier: GPL-2.0-only
/*
 * hunt LOADS: does loads one after the other, with a mark in the trace around each, and leaves
 * nothing running between them.
 *
 * load.h says what a load is.
 *
 * NUMA balancing is on in loads with memory users only, and scans every 100 ms to 1 s there.
 *
 * Prints, for each load, the counters of NUMA balancing and the pages that memory users have touched
 * at begin, half and end, the utilization, preferred node, account and settings of each process and thread
 * (and accounts.h), what children inherit, the CPU time, load and limits of each group, the turns of lockers
 * and their longest wait for the lock, where the memory of each task lies at the end, what queues of
 * groups hold without tasks, how many tasks count as blocked then, and what system calls do (probes.h).
 *
 * As process 1 of a guest it reads LOADS from /loads, and powers off. Work is counted in turns of a loop
 * (shared.h), one for each us.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "shared.h"

#include "accounts.h"
#include "counters.h"
#include "load.h"
#include "probes.h"
#include "settings.h"

#include "common.h"
#include "events.h"
#include "groups.h"
#include "processes.h"
#include "remains.h"
#include "states.h"
#include "usage.h"

static void end_tasks(int load)
{
	shared->stop = 1;
	for (int task = 0, place = 0; place < part_count; place++) {
		struct part *part = &parts[place];

		for (int i = 0; i < part->n; i++, task++) {
			struct told *told = &shared->tasks[task];

			if (part->kind == LOCKER)
				printf("load %d part %d task %d turns %lu worst_us %ld\n", load, place, i,
				       told->turns, told->worst / 1000);
			if (part->kind != MEMORY)
				continue;
			for (int waited = 0; told->running == 1 && waited < 2000; waited++)
				pause_us(2000);
			for (int node = 0; node < MOST_NODES; node++)
				if (told->pages[node])
					printf("load %d part %d task %d node %d pages %d\n", load, place, i, node,
					       told->pages[node]);
		}
	}
	tell_deaths(load);
	for (int i = 0; i < pid_count; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < pid_count; i++)
		waitpid(pids[i], NULL, 0);
	if (*cpuset_from)
		remove_group(CPUSET);
	tell_left(load);
	remove_groups();
	for (int place = 0; place < part_count; place++)
		if (parts[place].memory)
			munmap(parts[place].memory, parts[place].mib << 20);
}

/* NUMA balancing scans from the beginning and often, so that seconds show what minutes would. */
static long usual_mib; /* that are scanned at once */
static const char *const scans[] = { /* since 5.13, and before */
	"/sys/kernel/debug/sched/numa_balancing/", "/proc/sys/kernel/numa_balancing_",
};

static void tune_scans(const char *name, long number)
{
	char path[96], text[16];

	snprintf(text, sizeof(text), "%ld", number);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s%s", scans[i], name);
		put(path, text);
	}
}

static void hurry_scans(void)
{
	char path[96], text[16];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s" SCANNED, scans[i]);
		if (get(path, text, sizeof(text)))
			usual_mib = atol(text);
	}
	tune_scans("scan_delay_ms", 50);
	tune_scans("scan_period_min_ms", 100);
	tune_scans("scan_period_max_ms", 1000);
}

/*
 * Without memory users load balancing is asked alone: a fault on its code can move a hog, too.
 * A kernel without NUMA balancing has neither of the two places.
 */
static void balance_numa(void)
{
	int wanted = 0;

	for (int place = 0; place < part_count; place++)
		wanted |= parts[place].kind == MEMORY;
	if (put("/proc/sys/kernel/numa_balancing", wanted ? "1" : "0") &&
	    !access("/sys/kernel/debug/sched/numa_balancing", F_OK))
		die("cannot turn NUMA balancing on or off: /proc/sys/kernel/numa_balancing: %s",
		    strerror(errno));
}

/* One lock of all processes, which lends a waiter's priority to its holder. */
static void make_lock(void)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	if (pthread_mutex_init(&shared->lock, &attributes))
		die("no lock with priority inheritance");
}

/* Whether a task has a policy, at first or after a change. */
static int uses(unsigned policy)
{
	int does = 0;

	for (int place = 0; place < part_count; place++)
		does |= parts[place].attributes.policy == policy;
	for (int i = 0; i < event_count; i++)
		does |= events[i].attributes.policy == policy;
	return does;
}

/* Before real-time tasks, which would delay what the load asks for. Its children are not (sched(7)). */
static void go_first(int wanted)
{
	struct sched_param param = { .sched_priority = wanted ? 99 : 0 };

	sched_setscheduler(0, wanted ? SCHED_FIFO | SCHED_RESET_ON_FORK : SCHED_OTHER, &param);
}

static void end_load(int load)
{
	end_tasks(load);
	if (scan_mib && usual_mib)
		tune_scans(SCANNED, usual_mib);
	go_first(0);
	pause_us(200000);
	if (uses(SCHED_DEADLINE))
		printf("load %d end admitted_left %lld\n", load, left_of(sum_admitted, admitted_before));
	tell_blocked(load);
	tell_probes(load);
	mark_load("hunt: load %d over", load);
}

static void run_load(char *text, int load)
{
	struct timespec began;
	char *save;

	part_count = event_count = pid_count = task_count = group_count = 0;
	load_number = load;
	load_ms = 0;
	scan_mib = 0;
	*cpuset_from = '\0';
	memset(shared, 0, sizeof(*shared));
	shared->usual_slice = read_usual_slice();
	make_lock();
	for (char *part = strtok_r(text, ";", &save); part; part = strtok_r(NULL, ";", &save))
		parse_part(part);
	load_ms = load_ms ? load_ms : 1000;
	add_event(load_ms / 2, HALF, 0, "");
	qsort(events, event_count, sizeof(*events), by_time);
	admitted_before = uses(SCHED_DEADLINE) ? sum_admitted() : 0;
	balance_numa();
	if (scan_mib)
		tune_scans(SCANNED, scan_mib);
	go_first(uses(SCHED_FIFO) || uses(SCHED_RR));
	tell_cpus(load, "first");
	for (int place = 0; place < part_count; place++)
		if (!start_part(place)) {
			printf("load %d part %d does not start\n", load, place);
			end_load(load);
			return;
		}
	begin_change(1);
	classify_tasks();
	if (*cpuset_from)
		enter_cpuset();
	make_groups();
	for (int i = 0; i < pid_count; i++)
		bind_process(i, &parts[part_of[i]].cpus);
	shared->changes++;
	shared->begun = 1;
	counters(load, "begin");
	tell_counters(load, "begin");
	note_usage();
	mark_load("hunt: load %d begin", load);
	clock_gettime(CLOCK_MONOTONIC, &began);
	delay_us = (began.tv_sec - noted.tv_sec) * 1000000L + (began.tv_nsec - noted.tv_nsec) / 1000;
	for (int i = 0; i < event_count; i++) {
		if (events[i].what == HALF && load_ms >= 4) {
			sleep_until(&began, load_ms / 4);
			shared->resting = 1;
		}
		sleep_until(&began, events[i].ms);
		begin_change(events[i].what != SET && !*events[i].group);
		happen(&events[i], load);
		shared->changes++;
	}
	sleep_until(&began, load_ms);
	mark_load("hunt: load %d end", load);
	tell_counters(load, "end");
	counters(load, "end");
	tell_task_states(load); /* which sends interrupts, and so comes after the counters */
	end_load(load);
}

/* As the only program of a guest: what an init has to do before, and LOADS from the file /loads. */
static char *be_init(void)
{
	static char text[16384];
	int console;

	mkdir("/dev", 0755);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("none", "/dev", "devtmpfs", 0, NULL);
	mount("none", "/proc", "proc", 0, NULL);
	mount("none", "/sys", "sysfs", 0, NULL);
	mount("none", "/sys/kernel/debug", "debugfs", 0, NULL);
	console = open("/dev/console", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(console, i);
	get("/loads", text, sizeof(text));
	return text;
}

int main(int argc, char **argv)
{
	char *save, *load, *loads = argv[1];
	int count = 0;

	if (getpid() == 1)
		loads = be_init();
	else if (argc == 5 && !strcmp(argv[1], "child")) {
		rename_task("child", parse_number("PART", argv[2], 0, MOST_PARTS), parse_number("NUMBER", argv[3], 0, 999));
		work(parse_number("RUN", argv[4], 0, 10000000));
		return 0;
	} else if (argc != 2)
		die("usage: hunt LOADS");
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("no memory");
	probes = &shared->probes;
	hurry_scans();
	count_balancing();
	tell_blocked(-1);
	mark("numalab: begin");
	for (load = strtok_r(loads, "|", &save); load; load = strtok_r(NULL, "|", &save)) {
		run_load(load, count++);
		fflush(stdout);
	}
	mark("numalab: end");
	printf("loads %d done\n", count);
	fflush(stdout);
	if (getpid() == 1)
		reboot(RB_POWER_OFF);
	return 0;
}
