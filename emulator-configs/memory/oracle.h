/*
 * What really happened: exact counts, at no cost to the guest.
 *
 * The columns of its tables (table.h):
 *
 *   counts   slice's start in ns, cpu, task, on this CPU since (ns), second-level hits,
 *            last-level hits, stores that had to tell others, stalled ps, of it waited ps,
 *            loads from any memory, loads from another node's memory (what perf calls node-loads
 *            and node-load-misses), lines from the memory of node 0, 1, ..., from a cache on node 0, 1, ...,
 *            pages at home on node 0, 1, ... that lines were fetched of, each once in a slice
 *   traffic  slice's start in ns, server, lines, waited ps
 *
 * A task is the guest's address of its saved stack pointer; rows with the same key add up. A slice
 * ends early where the guest writes a mark.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_ORACLE_H
#define NUMALAB_ORACLE_H

#include "table.h"
#include "traffic.h"

enum { TASKS_OF_CPU = 16 }; /* rows of a CPU that are open at a time */

struct row {
	uint64_t slice_ns, cpu, task, since_ns;
	uint64_t second_hits, last_hits, told, stalled_ps, waited_ps, loads, far_loads;
	uint64_t from[2 * MAX_NODES]; /* memories, then caches */
	uint64_t pages[MAX_NODES];
};

struct cpu_rows {
	unsigned count, now; /* row `now` is that of the task that runs */
	struct row rows[TASKS_OF_CPU];
};

struct oracle {
	const struct config *config;
	struct table counts, traffic;
	uint64_t slice_ns, whole_ns; /* where this slice begins; where it would, had nobody split it */
	uint32_t slice;              /* its number, from 1 */
	struct cpu_rows *cpus;
};

bool oracle_create(struct oracle *oracle, const struct config *config, FILE *counts,
		   FILE *traffic);
/* Writes what the tables still lack. */
void oracle_finish(struct oracle *oracle, struct traffic *traffic);
void oracle_destroy(struct oracle *oracle);
/* The row to count in. */
struct row *oracle_row(struct oracle *oracle, unsigned cpu);
/* A line of a page was fetched; `fetched` is the slice in which that was so last. */
void oracle_page(const struct oracle *oracle, struct row *row, uint32_t *fetched, unsigned home);
void oracle_switch(struct oracle *oracle, unsigned cpu, uint64_t task, uint64_t now_ps);
/* Ends the slice when `now` lies in another one. */
void oracle_advance(struct oracle *oracle, struct traffic *traffic, uint64_t now_ps);
/* Ends the slice here. */
void oracle_split(struct oracle *oracle, struct traffic *traffic, uint64_t now_ps);

#endif
