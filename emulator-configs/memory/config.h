/* The machine as the parameter file says; the file's lines are in config.c. SPDX: GPL-2.0-only */
#ifndef NUMALAB_CONFIG_H
#define NUMALAB_CONFIG_H

#include "memory.h"

enum {
	MAX_CPUS = 256,
	MAX_NODES = 64,
	MAX_SERVERS = 8192,
	MAX_ROUTE = 64,    /* links on the longest way through a machine */
	MAX_REGIONS = 128,
	MAX_BLOCKS = 64,
	MAX_NAME = 32,
	PAGE_LINE_BITS = 6, /* a page of 4 KiB holds 64 lines */
	PAGE_BITS = LINE_BITS + PAGE_LINE_BITS,
	MAX_FILTER_BITS = 12
};

/* What one cache is made of. A cache with 0 sets is not there. */
struct shape {
	uint32_t sets, ways; /* sets: a power of two */
	uint64_t hit_ps;
};

/* The directed links that data passes on its way from one node to another. */
struct route {
	uint8_t length;
	uint16_t links[MAX_ROUTE];
};

/* The parameter file: see config.c for its lines. */
struct config {
	unsigned cpus, nodes, groups, servers, blocks;
	uint16_t node_of_cpu[MAX_CPUS], group_of_cpu[MAX_CPUS];
	unsigned filter_bits; /* a filter has 1 << filter_bits lines */
	struct shape first, second, last;
	uint64_t latency_ps[MAX_NODES][MAX_NODES]; /* from a node's CPUs to a node's memory */
	uint64_t interrupt_ps[MAX_NODES][MAX_NODES];
	uint64_t line_ps[MAX_SERVERS];             /* how long a server needs for a line */
	unsigned knee[MAX_SERVERS];
	char server_name[MAX_SERVERS][MAX_NAME];
	uint16_t server_of_memory[MAX_NODES];
	struct route route[MAX_NODES][MAX_NODES]; /* [from][to], as the data goes */
	char block_name[MAX_BLOCKS][MAX_NAME];
	uint16_t node_of_block[MAX_BLOCKS];
	uint64_t window_ps, slice_ps, max_rows;
	uint64_t instruction_ps; /* of no line of the file */
	unsigned outstanding; /* lines of one sequential access that are under way at a time */
};

/* Reads a parameter file. False, with the line and what is wrong in `error`, when it makes no sense. */
bool config_parse(struct config *config, const char *text, char *error, size_t size);

#endif
