/*
 * What really happened: exact counts, at no cost to the guest.
 *
 * Both tables are a header of eight little-endian 64-bit numbers and rows of such numbers.
 *
 *   header   magic, version, columns, nodes, slice in ns, rows, rows left out, 0
 *   counts   slice's start in ns, cpu, task, on this CPU since (ns), second-level hits,
 *            last-level hits, stores that had to tell others, stalled ps, of it waited ps,
 *            loads from any memory, loads from another node's memory (what perf calls node-loads
 *            and node-load-misses), lines from the memory of node 0, 1, ..., from a cache on node 0, 1, ...,
 *            pages at home on node 0, 1, ... that lines were fetched of, each once in a slice
 *   traffic  slice's start in ns, server, lines, waited ps
 *
 * `rows` is 0 in a table that was not finished: then the file's size says it. A task is the
 * guest's address of its saved stack pointer; rows with the same key add up.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_ORACLE_H
#define NUMALAB_ORACLE_H

#include "traffic.h"

enum { TASKS_OF_CPU = 16 }; /* rows of a CPU that are open at a time */

struct row {
	uint64_t slice_ns, cpu, task, since_ns;
	uint64_t second_hits, last_hits, told, stalled_ps, waited_ps, loads, far_loads;
	uint64_t from[2 * MAX_NODES]; /* memories, then caches */
	uint64_t pages[MAX_NODES];
};

struct table {
	FILE *file;
	uint64_t columns, rows, left_out;
};

struct cpu_rows {
	unsigned count, now; /* row `now` is that of the task that runs */
	struct row rows[TASKS_OF_CPU];
};

struct oracle {
	const struct config *config;
	struct table counts, traffic;
	uint64_t slice_ns;
	uint32_t slice; /* its number, from 1 */
	struct cpu_rows *cpus;
};

bool oracle_create(struct oracle *oracle, const struct config *config, FILE *counts,
		   FILE *traffic);
void oracle_finish(struct oracle *oracle, struct traffic *traffic);
/* The row to count in. */
struct row *oracle_row(struct oracle *oracle, unsigned cpu);
/* A line of a page was fetched; `fetched` is the slice in which that was so last. */
void oracle_page(const struct oracle *oracle, struct row *row, uint32_t *fetched, unsigned home);
void oracle_switch(struct oracle *oracle, unsigned cpu, uint64_t task, uint64_t now_ps);
/* Ends the slice when `now` lies in another one. */
void oracle_advance(struct oracle *oracle, struct traffic *traffic, uint64_t now_ps);

#endif
