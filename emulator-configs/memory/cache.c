/* A set-associative cache's tags. SPDX-License-Identifier: GPL-2.0-only */
#include "cache.h"

#include <stdlib.h>

bool cache_create(struct cache *cache, struct shape shape)
{
	size_t lines = (size_t)shape.sets * shape.ways;

	*cache = (struct cache){.sets = shape.sets, .ways = shape.ways};
	while ((UINT32_C(1) << cache->set_bits) < shape.sets)
		cache->set_bits++;
	if (!lines)
		return true;
	cache->tags = calloc(lines, sizeof(*cache->tags));
	cache->used = calloc(lines, sizeof(*cache->used));
	return cache->tags && cache->used;
}

void cache_destroy(struct cache *cache)
{
	free(cache->tags);
	free(cache->used);
}

/*
 * Higher bits are folded into the index, as last-level caches of today do, so that strides of a
 * power of two spread. An aligned run of `sets` lines still has one line in each set.
 */
static uint32_t first_slot(const struct cache *cache, uint32_t line)
{
	uint32_t folded = line;

	for (uint32_t rest = line; cache->set_bits && (rest >>= cache->set_bits);)
		folded ^= rest;
	return (folded & (cache->sets - 1)) * cache->ways;
}

uint32_t cache_find(const struct cache *cache, uint32_t line)
{
	if (!cache->sets)
		return NO_SLOT;

	uint32_t first = first_slot(cache, line);

	for (uint32_t slot = first; slot < first + cache->ways; slot++)
		if (cache->tags[slot] == line + 1)
			return slot;
	return NO_SLOT;
}

void cache_touch(struct cache *cache, uint32_t slot)
{
	cache->used[slot] = ++cache->clock;
}

uint32_t cache_victim(const struct cache *cache, uint32_t line)
{
	uint32_t first = first_slot(cache, line), oldest = first;

	for (uint32_t slot = first; slot < first + cache->ways; slot++) {
		if (!cache->tags[slot])
			return slot;
		if (cache->used[slot] < cache->used[oldest])
			oldest = slot;
	}
	return oldest;
}

void cache_put(struct cache *cache, uint32_t slot, uint32_t line)
{
	cache->tags[slot] = line + 1;
	cache_touch(cache, slot);
}

void cache_drop(struct cache *cache, uint32_t slot)
{
	cache->tags[slot] = 0;
}

void cache_forget(struct cache *cache, uint32_t line)
{
	uint32_t slot = cache_find(cache, line);

	if (slot != NO_SLOT)
		cache_drop(cache, slot);
}

bool cache_line(const struct cache *cache, uint32_t slot, uint32_t *line)
{
	*line = cache->tags[slot] - 1;
	return cache->tags[slot] != 0;
}
