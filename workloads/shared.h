/* SPDX-License-Identifier: GPL-2.0-only */
/* What programs of several workloads do alike. Define _GNU_SOURCE before it is included. */
#ifndef SHARED_H
#define SHARED_H

#include <sched.h>

#include "numalab.h"

#define LINE 64 /* bytes of a cache line */

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

#endif
