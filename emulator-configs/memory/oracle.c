/* What really happened. SPDX-License-Identifier: GPL-2.0-only */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

enum { FIXED_COLUMNS = 11, TRAFFIC_COLUMNS = 4 };

static void put_counts(struct oracle *oracle, const struct row *row)
{
	uint64_t values[FIXED_COLUMNS + 3 * MAX_NODES] = {
		row->slice_ns,    row->cpu,	 row->task, row->since_ns,   row->second_hits,
		row->last_hits,   row->told, row->stalled_ps, row->waited_ps, row->loads,
		row->far_loads};
	unsigned nodes = oracle->config->nodes;
	uint64_t any = row->second_hits | row->last_hits | row->told;

	for (unsigned node = 0; node < nodes; node++) {
		values[FIXED_COLUMNS + node] = row->from[node];
		values[FIXED_COLUMNS + nodes + node] = row->from[MAX_NODES + node];
		values[FIXED_COLUMNS + 2 * nodes + node] = row->pages[node];
		any |= row->from[node] | row->from[MAX_NODES + node];
	}
	if (any)
		table_put(&oracle->counts, oracle->config->max_rows, values);
}

/* Writes a CPU's rows; the task that runs goes on in a new one. */
static void close_rows(struct oracle *oracle, unsigned cpu)
{
	struct cpu_rows *of = &oracle->cpus[cpu];
	struct row next = {.slice_ns = oracle->slice_ns,
			   .cpu = cpu,
			   .task = of->rows[of->now].task,
			   .since_ns = of->rows[of->now].since_ns};

	for (unsigned row = 0; row < of->count; row++)
		put_counts(oracle, &of->rows[row]);
	of->rows[0] = next;
	of->count = 1;
	of->now = 0;
}

static void put_traffic(struct oracle *oracle, struct traffic *traffic)
{
	for (unsigned number = 0; number < oracle->config->servers; number++) {
		struct server *server = &traffic->servers[number];
		uint64_t row[TRAFFIC_COLUMNS] = {oracle->slice_ns, number, server->slice_lines,
						 server->slice_wait_ps};

		if (server->slice_lines)
			table_put(&oracle->traffic, oracle->config->max_rows, row);
		server->slice_lines = server->slice_wait_ps = 0;
	}
}

bool oracle_create(struct oracle *oracle, const struct config *config, FILE *counts, FILE *traffic)
{
	*oracle = (struct oracle){
		.config = config,
		.slice = 1,
		.counts = {.file = counts, .columns = FIXED_COLUMNS + 3 * config->nodes},
		.traffic = {.file = traffic, .columns = TRAFFIC_COLUMNS}};
	table_header(&oracle->counts, oracle->config, false);
	table_header(&oracle->traffic, oracle->config, false);
	oracle->cpus = calloc(config->cpus, sizeof(*oracle->cpus));
	for (unsigned cpu = 0; oracle->cpus && cpu < config->cpus; cpu++)
		close_rows(oracle, cpu);
	return oracle->cpus;
}

static void end_slice(struct oracle *oracle, struct traffic *traffic, uint64_t next_ns)
{
	put_traffic(oracle, traffic);
	oracle->slice_ns = next_ns;
	oracle->slice++;
	for (unsigned cpu = 0; cpu < oracle->config->cpus; cpu++)
		close_rows(oracle, cpu);
	if (oracle->counts.file)
		fflush(oracle->counts.file);
	if (oracle->traffic.file)
		fflush(oracle->traffic.file);
}

static uint64_t whole_slice(const struct oracle *oracle, uint64_t now_ps)
{
	uint64_t slice_ps = oracle->config->slice_ps;

	return now_ps / slice_ps * slice_ps / PS_OF_NS;
}

void oracle_advance(struct oracle *oracle, struct traffic *traffic, uint64_t now_ps)
{
	uint64_t whole_ns = whole_slice(oracle, now_ps);

	if (whole_ns == oracle->whole_ns)
		return;
	end_slice(oracle, traffic, whole_ns);
	oracle->whole_ns = whole_ns;
}

void oracle_split(struct oracle *oracle, struct traffic *traffic, uint64_t now_ps)
{
	end_slice(oracle, traffic, now_ps / PS_OF_NS);
	oracle->whole_ns = whole_slice(oracle, now_ps);
}

struct row *oracle_row(struct oracle *oracle, unsigned cpu)
{
	return &oracle->cpus[cpu].rows[oracle->cpus[cpu].now];
}

void oracle_page(const struct oracle *oracle, struct row *row, uint32_t *fetched, unsigned home)
{
	if (*fetched != oracle->slice)
		row->pages[home]++;
	*fetched = oracle->slice;
}

void oracle_switch(struct oracle *oracle, unsigned cpu, uint64_t task, uint64_t now_ps)
{
	struct cpu_rows *of = &oracle->cpus[cpu];

	for (unsigned row = 0; row < of->count; row++) {
		if (of->rows[row].task == task) {
			of->now = row;
			return;
		}
	}
	if (of->count == TASKS_OF_CPU)
		close_rows(oracle, cpu);
	of->now = of->count++;
	of->rows[of->now] = (struct row){.slice_ns = oracle->slice_ns,
					 .cpu = cpu,
					 .task = task,
					 .since_ns = now_ps / PS_OF_NS};
}

void oracle_finish(struct oracle *oracle, struct traffic *traffic)
{
	end_slice(oracle, traffic, oracle->slice_ns);
	table_header(&oracle->counts, oracle->config, true);
	table_header(&oracle->traffic, oracle->config, true);
}

void oracle_destroy(struct oracle *oracle)
{
	free(oracle->cpus);
}
