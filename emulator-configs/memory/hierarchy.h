/*
 * Who holds which line. Inside numalab's memory core only.
 *
 * A last-level cache holds every line that the private caches of its group hold (inclusive), and a
 * directory holds, for each line of memory, which last-level caches have it. So whom a store
 * concerns is always known: the caches in the directory, and in each of them the line's users.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_HIERARCHY_H
#define NUMALAB_HIERARCHY_H

#include "cache.h"
#include "contention.h"
#include "oracle.h"
#include "places.h"

enum { BITS = 64, FEW_GROUPS = 8, NO_CPU = 0xffff };

/* What a last-level cache knows of a line, beside its tag. */
struct shared_line {
	uint64_t users;  /* CPUs of the group that may hold it, by their place in the group */
	uint16_t writer; /* the CPU that may write it without asking, or NO_CPU */
	bool exclusive;  /* no other group holds it */
	bool dirty;
};

struct group {
	struct cache cache;
	struct shared_line *lines; /* by slot of the cache */
	uint16_t node;             /* of its first CPU */
	uint16_t count, cpus[MAX_CPUS];
};

/* Lines that a CPU fetches one after the other, as a hardware prefetcher sees them. */
struct stream {
	uint32_t last;
	uint32_t length; /* lines so far */
};

enum { STREAMS = 16, STREAM_LENGTH = 2 }; /* of a CPU; from which on the next lines are fetched early */

struct core {
	struct cache first, second;
	struct filter_line *filter; /* a part of what `first` holds */
	uint16_t node, group;
	uint64_t user; /* its bit in shared_line.users */
	/* The line that it took last from a cache that had written it, and until when it may write
	 * it at no cost: the request of a read-modify-write is one for both. */
	uint32_t taken;
	uint64_t taken_until_ps;
	struct stream streams[STREAMS];
	unsigned oldest; /* stream */
};

struct region {
	uint32_t first, lines;
	uint16_t home;
	uint64_t host;
	/* Of each line: groups, by bits. One of them is there: a host's caches hold more of the small
	 * one, for machines with few groups. With over 64 groups, bits are shared. */
	uint8_t *few_holders;
	uint64_t *holders;
	uint32_t *fetched; /* of each page: the slice in which a line of it was fetched last */
};

struct memory {
	struct config config;
	struct core *cores;
	struct group *groups;
	struct region regions[MAX_REGIONS];
	unsigned region_count;
	struct traffic traffic;
	struct oracle oracle;
	struct places places;
	struct table places_table;
	struct contention contention;
	uint64_t window_start_ps;
};

/* What an access needs to know of its line, looked up once. */
struct place {
	uint32_t line;
	uint16_t home;
	uint64_t tag;      /* of the filters */
	uint8_t *few_holders;
	uint64_t *holders;
	uint32_t *fetched; /* its page's */
};

bool place_of(const struct memory *memory, uint32_t line, struct place *place);
/* The groups that hold a line, by bits. */
static inline uint64_t holders_of(struct place place)
{
	return place.few_holders ? *place.few_holders : *place.holders;
}

/* Has the host fetch what holders_of() is going to read. */
static inline void expect_holders(struct place place)
{
	__builtin_prefetch(place.few_holders ? (const void *)place.few_holders
					     : (const void *)place.holders);
}

static inline void add_holder(struct place place, unsigned group)
{
	if (place.few_holders)
		*place.few_holders = (uint8_t)(*place.few_holders | 1U << group);
	else
		*place.holders |= UINT64_C(1) << group % BITS;
}

static inline void drop_holder(struct place place, unsigned group)
{
	if (place.few_holders)
		*place.few_holders = (uint8_t)(*place.few_holders & ~(1U << group));
	else
		*place.holders &= ~(UINT64_C(1) << group % BITS);
}

/* Takes a line from a CPU's filter: wholly, or only the right to write it unasked. */
void filter_drop(struct memory *memory, unsigned cpu, struct place place, bool only_write);
/* Takes a line from the private caches of a group's users, but not from `except`'s. */
void group_drop_users(struct memory *memory, struct group *group, uint32_t slot,
		      struct place place, unsigned except);
/* Nobody in the group may write this line unasked any more. */
void group_stop_writing(struct memory *memory, struct group *group, uint32_t slot,
			struct place place);
/* Takes a line from a group altogether; a dirty one goes home for `writer`, unless that is NO_CPU. */
void group_drop(struct memory *memory, unsigned number, uint32_t slot, struct place place,
		unsigned writer);

#endif
