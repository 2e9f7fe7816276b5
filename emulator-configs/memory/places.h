/*
 * Which pages of programs were fetched from where, by which task, and which lines went from CPU to
 * CPU. Inside numalab's memory core only. Optional: without a file it costs a comparison.
 *
 * The table is one of oracle.h's kind, with these columns:
 *
 *   since (ns), kind, virtual address, line of memory, task, node of its CPU, home node,
 *   lines fetched, of them from a memory or cache of the CPU's node, moves, stalled ps, written, read
 *
 *   kind 0  a page, by the lines of it (bits) that were written and read
 *   kind 1  a line that moved from CPU to CPU, by the bytes (bits) that were written and read: by the
 *           accesses that moved it, and those that followed until one touched no further byte; its
 *           page has the rest. After many such lines, pages have the further ones
 *   kind 2  no count: the guest wrote a mark (virtual address 0), a task came to its first barrier
 *           (1), or a task came to a barrier, after which `since` begins (2)
 *
 * All that a task fetched at addresses of the kernel is one page, at virtual address 0.
 *
 * Rows add up. They are written at each mark and first barrier of a task, so that what lies between
 * two of them is exact, and when a new task first runs, which may have the address of another one.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_PLACES_H
#define NUMALAB_PLACES_H

#include "oracle.h"

enum place_kind { PLACE_PAGE, PLACE_LINE, PLACE_MOMENT };
enum moment { MOMENT_MARK, MOMENT_FIRST_BARRIER, MOMENT_BARRIER };

struct place_key {
	uint64_t kind, vaddr, line, task, node, home;
};

struct place_counts {
	uint64_t lines, local, moves, stalled_ps, written, read;
};

struct place_entry {
	struct place_key key; /* of an entry that is free, no node is that large */
	struct place_counts counts;
};

struct place_set {
	struct place_entry *entries;
	unsigned bits, count;
};

enum { PLACES_COLUMNS = 13, TASKS_AT_BARRIERS = 4096 };

struct places {
	struct table *table; /* NULL: nobody wants them */
	uint64_t max_rows, since_ns, barrier_ns;
	/* What happened before the last barrier, and since. */
	struct place_set settled, fresh;
	unsigned moved_lines; /* rows of lines that were not written yet */
	unsigned waiter_count;
	uint64_t waiters[TASKS_AT_BARRIERS]; /* tasks that came to a barrier */
};

bool places_create(struct places *places, struct table *table, uint64_t max_rows);
void places_destroy(struct places *places);
void places_count(struct places *places, struct place_key key, struct place_counts counts);
/* The same for a line; false where there are so many that its page has to count it. */
bool places_count_line(struct places *places, struct place_key key, struct place_counts counts);
/* Adds bytes to a line's row, if it has one; whether any of them is the first of its kind. */
bool places_touch_line(struct places *places, struct place_key key, struct place_counts bytes);
/*
 * Writes what was counted, and the moment. A barrier that is not the task's first only settles: then
 * false.
 */
bool places_moment(struct places *places, enum moment moment, uint64_t task, uint64_t now_ns);
/* Writes what was counted. */
void places_flush(struct places *places, uint64_t now_ns);

#endif
