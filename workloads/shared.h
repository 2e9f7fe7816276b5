/* SPDX-License-Identifier: GPL-2.0-only */
/* What programs of several workloads do alike. Define _GNU_SOURCE before it is included. */
#ifndef SHARED_H
#define SHARED_H

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "numalab.h"

#define LINE 64 /* bytes of a cache line */
#define MPOL_BIND 2 /* linux/mempolicy.h */
#define MAX_NODES 64

/*
 * The body of a busy loop: with two more instructions a turn has 124, about a microsecond in
 * icount mode (8 ns each), and less on hardware. An emulator pays for each turn rather than
 * for each instruction: turns of two cost the host ten times as much for the same guest time.
 */
#define TURN ".rept 122\n\tnop\n\t.endr\n\t"

/* CPUs from a list such as `2-3,6` (bitmap_parselist() in the kernel's lib/bitmap.c). */
static inline cpu_set_t parse_cpulist(const char *text)
{
	const char *rest = text;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	while (*rest) {
		char *end;
		long first = strtol(rest, &end, 10), last = first;

		if (end != rest && *end == '-') {
			rest = end + 1;
			last = strtol(rest, &end, 10);
		}
		if (end == rest || (*end && *end != ',') || first < 0 || last < first ||
		    last >= CPU_SETSIZE)
			die("not a cpulist: %s", text);
		for (long cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, &cpus);
		rest = *end ? end + 1 : end;
	}
	if (!CPU_COUNT(&cpus))
		die("an empty cpulist");
	return cpus;
}

/* Let the calling thread run on these CPUs only. */
static inline void run_on(const cpu_set_t *cpus)
{
	if (sched_setaffinity(0, sizeof(*cpus), cpus))
		die("cannot bind a thread: %s", strerror(errno));
}

static inline void run_on_cpu(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	run_on(&one);
}

/* Where threads are moved after they have written their part of the memory, by so many CPUs. */
struct migration {
	int by, cpus;
	cpu_set_t allowed;
};

static inline struct migration parse_migration(const char *text)
{
	struct migration found = { .cpus = sysconf(_SC_NPROCESSORS_ONLN) };

	found.by = parse_number("MOVED", text, 0, CPU_SETSIZE);
	if (sched_getaffinity(0, sizeof(found.allowed), &found.allowed))
		die("cannot read the affinity: %s", strerror(errno));
	return found;
}

/* Thread `number` is about to write its part. */
static inline void before_first_touch(const struct migration *migration, int number)
{
	if (migration->by)
		run_on_cpu(number % migration->cpus);
}

/* It has written it: it goes on elsewhere, and from there wherever the kernel takes it. */
static inline void after_first_touch(const struct migration *migration, int number)
{
	if (migration->by) {
		run_on_cpu((number + migration->by) % migration->cpus);
		run_on(&migration->allowed);
	}
}

/* Memory of a node, and of no other. */
static inline void *allocate_on(size_t size, int node)
{
	unsigned long mask = 1UL << node;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("no memory");
	if (syscall(SYS_mbind, at, size, MPOL_BIND, &mask, MAX_NODES + 1, 0))
		die("cannot bind memory to node %d: %s", node, strerror(errno));
	return at;
}

/* Link all lines of a buffer to one ring in random order (Sattolo's algorithm). */
static inline void **link_lines(char *buffer, size_t lines, uint64_t seed)
{
	uint32_t *order = malloc(lines * sizeof(*order));

	if (!order)
		die("no memory");
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	for (size_t i = lines - 1; i > 0; i--) {
		size_t other = (random_next(&seed) >> 33) % i;
		uint32_t kept = order[i];

		order[i] = order[other];
		order[other] = kept;
	}
	for (size_t i = 0; i < lines; i++)
		*(void **)(buffer + (size_t)order[i] * LINE) =
			buffer + (size_t)order[(i + 1) % lines] * LINE;
	free(order);
	return (void **)buffer;
}

/* So many steps, sixteen a round: so that the loop's own instructions do not count. */
static inline void **follow(void **at, size_t steps)
{
	for (; steps; steps -= 16) {
#define STEP at = *(void *volatile *)at;
#define FOUR STEP STEP STEP STEP
		FOUR FOUR FOUR FOUR
	}
	return at;
}

#endif
