/*
 * Lines that go from CPU to CPU. Inside numalab's memory core only.
 *
 * The emulator lets one CPU execute for a quantum, then the next one. CPUs that write the same line
 * would each find it where they left it. So the core names CPUs between which a line has moved
 * several times within a few quanta; the emulator then executes them block by block. Between such
 * CPUs a line moves once at a time: a CPU waits until the transfers before its own are done.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_CONTENTION_H
#define NUMALAB_CONTENTION_H

#include "config.h"

enum { HOT_LINES = 4096, HOT_MOVES = 2 };

/* How a CPU came to a line that others have, or had. */
enum move {
	MOVE_NONE,     /* nobody has or had it, or it is in a cache of the CPU's own */
	MOVE_READ,     /* a copy of a line that nobody is writing */
	MOVE_UPGRADE,  /* the right to write a copy that it has */
	MOVE_TRANSFER, /* the line, from a cache that has written it, or to write it */
};

struct hot_line {
	uint32_t line;
	uint16_t cpu, moves; /* the last one that it moved to; how often in short succession */
	uint64_t moved_ps, free_ps;
};

struct contention {
	struct hot_line lines[HOT_LINES];
	uint64_t until_ps[MAX_CPUS]; /* until when a CPU shares lines */
	struct meeting meeting;      /* of the last access */
};

void contention_create(struct contention *contention);
/*
 * An access that takes cost_ps and moves its line so. Returns how long it waits for other transfers
 * of the line, and sets `meeting`.
 */
uint64_t contention_move(struct contention *contention, const struct config *config,
			 struct access access, enum move move, uint64_t cost_ps);

#endif
