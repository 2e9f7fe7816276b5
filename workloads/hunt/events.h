/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens in a load, and when: changes of tasks and groups, hotplug of CPUs, and the half of the time.
 */
#ifndef EVENTS_H
#define EVENTS_H

#include <signal.h>

#include "common.h"
#include "groups.h"
#include "processes.h"
#include "states.h"

static int by_time(const void *a, const void *b)
{
	const struct event *one = a, *other = b;

	return (one->ms > other->ms) - (one->ms < other->ms);
}

static void sleep_until(const struct timespec *began, long ms)
{
	struct timespec when = *began;

	when.tv_sec += ms / 1000;
	when.tv_nsec += ms % 1000 * 1000000;
	if (when.tv_nsec >= 1000000000) {
		when.tv_sec++;
		when.tv_nsec -= 1000000000;
	}
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

static void change_part(const struct event *event)
{
	cpu_set_t cpus;

	if (*event->cpus)
		cpus = parse_cpulist(event->cpus);
	for (int i = 0; i < pid_count; i++) {
		if (part_of[i] != event->part)
			continue;
		if (*event->into)
			move_process(i, event->into);
		if (*event->cpus)
			bind_process(i, &cpus);
		if (event->nice != NO_NICE)
			for_threads(i, renice_thread, &event->nice);
		if (event->attributes.size)
			for_threads(i, reclass_thread, &event->attributes);
		if (event->stop)
			kill(pids[i], SIGSTOP);
		if (event->go)
			kill(pids[i], SIGCONT);
	}
}

static void happen(const struct event *event, int load)
{
	char path[96];

	switch (event->what) {
	case OFF:
	case ON:
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", event->cpu);
		if (put(path, event->what == ON ? "1" : "0")) {
			printf("load %d cpu %d refused: %s\n", load, event->cpu, strerror(errno));
			shared->denied++;
		}
		mark_load("hunt: load %d event", load);
		break;
	case SET:
		if (put(CPUSET "/cpuset.cpus", event->cpus))
			die("cannot change the cpuset: %s", strerror(errno));
		mark_load("hunt: load %d event", load);
		break;
	case CHANGE:
		if (*event->group)
			change_group(event);
		else
			change_part(event);
		mark_load("hunt: load %d event", load);
		break;
	case HALF:
		shared->resting = 0;
		for (int i = 0; i < pid_count; i++)
			if (parts[part_of[i]].has_later)
				bind_process(i, &parts[part_of[i]].later);
		counters(load, "half");
		mark_load("hunt: load %d half", load);
	}
}

static void begin_change(int alone)
{
	shared->alone += alone;
	shared->changes++;
}

#endif
