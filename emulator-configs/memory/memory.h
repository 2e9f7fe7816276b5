/*
 * The memory of a NUMA machine, as far as time goes: private caches, last-level caches, coherence
 * between them, distances, and the bandwidth of memories and links.
 *
 * The core (all files but plugin.c) knows nothing of QEMU. It takes accesses and gives what each
 * costs, in picoseconds. Integers only, no allocation after memory_add_region(), no clock and no
 * randomness of its own: the same accesses cost the same on every host.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_MEMORY_H
#define NUMALAB_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { LINE_BITS = 6 }; /* a line is 64 bytes, as on every x86 */

#define NO_TAG UINT64_MAX

/*
 * What the first-level cache holds and generated code can find: direct mapped, by the line of the
 * virtual address, tagged with the line's address in the host. A tag in `read` says that a load
 * costs nothing; one in `write`, that a store costs nothing and that nobody has to be told of it.
 */
struct filter_line {
	uint64_t read, write;
};

struct memory;

/*
 * A memory as a parameter file says (config.h). `counts` and `traffic` get the tables of oracle.h;
 * NULL for none. NULL, and in `error` what is wrong, when the file makes no sense.
 */
struct memory *memory_create(const char *parameters, FILE *counts, FILE *traffic, char *error,
			     size_t size);
/* Counts pages and lines of programs too (places.h), into this file. False without memory. */
bool memory_count_places(struct memory *memory, FILE *file);
/* An instruction takes this long (before: no time), and an access has that much for nothing. */
void memory_set_instruction(struct memory *memory, uint64_t instruction_ps);
/* A CPU writes a mark, or calls a barrier: what is counted before and after can be told apart. */
void memory_mark(struct memory *memory, unsigned cpu, uint64_t now_ps);
void memory_barrier(struct memory *memory, unsigned cpu, uint64_t now_ps);
/* A CPU runs a new task for the first time: the guest may have kept another one at its address. */
void memory_born(struct memory *memory, unsigned cpu, uint64_t now_ps);
/*
 * Begins anew, as after memory_create(): empty caches, empty tables, new filters. False without
 * memory, or where a table cannot be emptied.
 */
bool memory_restart(struct memory *memory);
/* Writes what the tables still lack, and frees everything. */
void memory_finish(struct memory *memory);
/* A CPU's filter: 1 << memory_filter_bits() lines. */
struct filter_line *memory_filter(struct memory *memory, unsigned cpu);
unsigned memory_filter_bits(const struct memory *memory);
unsigned memory_cpus(const struct memory *memory);
/* How long an interrupt takes from one CPU to another. */
uint64_t memory_interrupt_ps(const struct memory *memory, unsigned from, unsigned to);
/* The home of a block of memory; of one that the file does not name, node 0. */
unsigned memory_home(const struct memory *memory, const char *block);
/* Lines `first` to `first + lines - 1` live on node `home`; `host` is the first one's tag. */
bool memory_add_region(struct memory *memory, uint32_t first, uint32_t lines, unsigned home,
		       uint64_t host);

bool memory_knows(const struct memory *memory, uint32_t line);

struct access {
	uint64_t vaddr, now_ps; /* on the CPU's clock */
	uint32_t line;          /* of a region */
	uint16_t cpu;
	uint8_t bytes; /* how many; those behind the end of the line do not count */
	bool store;
};

/* CPUs between which a line moves to and fro. They have to execute together until then. */
struct meeting {
	uint16_t count, cpus[2];
	uint64_t until_ps;
};

/* An access that its filter did not let pass: how long the CPU waits beyond the instruction. */
uint64_t memory_access(struct memory *memory, struct access access);
/* Whom the last access met. */
struct meeting memory_meeting(const struct memory *memory);
/* All CPUs have come as far as `now`: waits follow the traffic since the last window's end. */
void memory_advance(struct memory *memory, uint64_t now_ps);
/* From now on this CPU runs the task that the guest keeps at this address. */
void memory_switch(struct memory *memory, unsigned cpu, uint64_t task, uint64_t now_ps);

#endif
