/* Taking lines away from caches. SPDX-License-Identifier: GPL-2.0-only */
#include "hierarchy.h"

bool place_of(const struct memory *memory, uint32_t line, struct place *place)
{
	for (unsigned number = 0; number < memory->region_count; number++) {
		const struct region *region = &memory->regions[number];
		uint32_t offset = line - region->first;

		if (offset < region->lines) {
			*place = (struct place){
				.line = line,
				.home = region->home,
				.tag = region->host + ((uint64_t)offset << LINE_BITS),
				.few_holders = region->few_holders ? &region->few_holders[offset]
								   : NULL,
				.holders = region->holders ? &region->holders[offset] : NULL,
				.fetched = &region->fetched[offset >> PAGE_LINE_BITS]};
			return true;
		}
	}
	return false;
}

/*
 * The filter's index is the virtual line. Of that, the place in the page is known; the bits above
 * it are not, so every slot that the line could be in is looked at.
 */
void filter_drop(struct memory *memory, unsigned cpu, struct place place, bool only_write)
{
	struct filter_line *filter = memory->cores[cpu].filter;
	uint32_t slots = UINT32_C(1) << memory->config.filter_bits;
	uint32_t in_page = (uint32_t)(place.tag >> LINE_BITS) & ((1 << PAGE_LINE_BITS) - 1);

	for (uint32_t slot = in_page; slot < slots; slot += 1 << PAGE_LINE_BITS) {
		if (filter[slot].write == place.tag)
			filter[slot].write = NO_TAG;
		if (!only_write && filter[slot].read == place.tag)
			filter[slot].read = NO_TAG;
	}
}

void group_drop_users(struct memory *memory, struct group *group, uint32_t slot,
		      struct place place, unsigned except)
{
	struct shared_line *shared = &group->lines[slot];

	for (unsigned user = 0; user < group->count; user++) {
		unsigned cpu = group->cpus[user];
		struct core *core = &memory->cores[cpu];

		if (cpu == except || !(shared->users & core->user))
			continue;
		filter_drop(memory, cpu, place, false);
		cache_forget(&core->first, place.line);
		cache_forget(&core->second, place.line);
	}
	shared->users = except == NO_CPU ? 0 : shared->users & memory->cores[except].user;
	if (shared->writer != except)
		shared->writer = NO_CPU;
}

void group_stop_writing(struct memory *memory, struct group *group, uint32_t slot,
			struct place place)
{
	struct shared_line *shared = &group->lines[slot];

	if (shared->writer != NO_CPU)
		filter_drop(memory, shared->writer, place, true);
	shared->writer = NO_CPU;
}

void group_drop(struct memory *memory, unsigned number, uint32_t slot, struct place place,
		unsigned writer)
{
	struct group *group = &memory->groups[number];
	struct shared_line *shared = &group->lines[slot];

	if (writer != NO_CPU && shared->dirty)
		traffic_write_back(&memory->traffic, writer, group->node, place.home);
	group_drop_users(memory, group, slot, place, NO_CPU);
	cache_drop(&group->cache, slot);
	if (memory->config.groups <= BITS)
		drop_holder(place, number);
}
