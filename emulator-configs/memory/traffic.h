/*
 * Waiting for memories and links. Each is a server that needs `line_ps` for a line.
 *
 * CPUs run one after the other within a quantum, so the true order of requests is not known when
 * they come. Instead all requests of a window wait equally long, and the wait follows the traffic
 * of the window before: that is fair, and does not depend on the order of the CPUs.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_TRAFFIC_H
#define NUMALAB_TRAFFIC_H

#include "config.h"

struct server {
	uint64_t wait_ps;           /* of each request in this window */
	uint64_t arrivals, waiting; /* in this window: all lines, and those a CPU waits for */
	uint64_t slice_lines, slice_wait_ps;
};

struct traffic {
	const struct config *config;
	struct server *servers;
	uint32_t *arrivals_of_cpu; /* [server][cpu], in this window */
};

bool traffic_create(struct traffic *traffic, const struct config *config);
void traffic_destroy(struct traffic *traffic);

/* A CPU fetches a line from a node's memory, and waits: how long, beyond the latency. */
uint64_t traffic_read(struct traffic *traffic, unsigned cpu, unsigned home);
/* A CPU fetches a line from a cache of another node, and waits. */
uint64_t traffic_forward(struct traffic *traffic, unsigned cpu, unsigned owner);
/* A line goes back from a cache on a node to its home; the CPU that caused it does not wait. */
void traffic_write_back(struct traffic *traffic, unsigned cpu, unsigned from, unsigned home);
/* The window ends: sets the waits of the next one. */
void traffic_settle(struct traffic *traffic, uint64_t window_ps);

#endif
