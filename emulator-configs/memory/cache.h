/* A set-associative cache's tags, least recently used line out first. SPDX: GPL-2.0-only */
#ifndef NUMALAB_CACHE_H
#define NUMALAB_CACHE_H

#include "config.h"

#define NO_SLOT UINT32_MAX

struct cache {
	uint32_t sets, ways, set_bits;
	uint32_t *tags; /* line + 1, or 0 */
	uint64_t *used;
	uint64_t clock;
};

bool cache_create(struct cache *cache, struct shape shape);
void cache_destroy(struct cache *cache);
/* The slot that holds a line, or NO_SLOT. */
uint32_t cache_find(const struct cache *cache, uint32_t line);
/* The line in this slot was used just now. */
void cache_touch(struct cache *cache, uint32_t slot);
/* The slot for a line that is not in: a free one, else the least recently used one of its set. */
uint32_t cache_victim(const struct cache *cache, uint32_t line);
/* Puts a line into a slot. */
void cache_put(struct cache *cache, uint32_t slot, uint32_t line);
void cache_drop(struct cache *cache, uint32_t slot);
/* Drops a line, wherever it is. */
void cache_forget(struct cache *cache, uint32_t line);
/* The line in a slot; false for a free slot. */
bool cache_line(const struct cache *cache, uint32_t slot, uint32_t *line);

#endif
