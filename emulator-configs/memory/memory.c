/* An access and what it costs. SPDX-License-Identifier: GPL-2.0-only */
#include "hierarchy.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How long after a transfer a store belongs to it, in local latencies: some instructions. */
enum { TAKEN_LATENCIES = 4, BARRIER_SLICE_NS = 100000 };

static bool create_core(struct memory *memory, unsigned cpu)
{
	const struct config *config = &memory->config;
	struct core *core = &memory->cores[cpu];
	struct group *group = &memory->groups[config->group_of_cpu[cpu]];
	size_t slots = (size_t)1 << config->filter_bits;

	core->node = config->node_of_cpu[cpu];
	core->group = config->group_of_cpu[cpu];
	core->user = UINT64_C(1) << group->count % BITS;
	core->taken = UINT32_MAX;
	if (!group->count)
		group->node = core->node;
	group->cpus[group->count++] = (uint16_t)cpu;
	core->filter = malloc(slots * sizeof(*core->filter));
	if (!core->filter || !cache_create(&core->first, config->first) ||
	    !cache_create(&core->second, config->second))
		return false;
	memset(core->filter, 0xff, slots * sizeof(*core->filter)); /* NO_TAG */
	return true;
}

static bool create_group(struct memory *memory, unsigned number)
{
	struct shape last = memory->config.last;
	struct group *group = &memory->groups[number];

	group->lines = calloc((size_t)last.sets * last.ways, sizeof(*group->lines));
	return group->lines && cache_create(&group->cache, last);
}

static bool create_parts(struct memory *memory, FILE *counts, FILE *traffic)
{
	const struct config *config = &memory->config;

	memory->cores = calloc(config->cpus, sizeof(*memory->cores));
	memory->groups = calloc(config->groups, sizeof(*memory->groups));
	if (!memory->cores || !memory->groups)
		return false;
	for (unsigned group = 0; group < config->groups; group++)
		if (!create_group(memory, group))
			return false;
	for (unsigned cpu = 0; cpu < config->cpus; cpu++)
		if (!create_core(memory, cpu))
			return false;
	contention_create(&memory->contention);
	return traffic_create(&memory->traffic, config) &&
	       oracle_create(&memory->oracle, config, counts, traffic);
}

struct memory *memory_create(const char *parameters, FILE *counts, FILE *traffic, char *error,
			     size_t size)
{
	struct memory *memory = calloc(1, sizeof(*memory));

	if (!memory) {
		snprintf(error, size, "no memory");
		return NULL;
	}
	if (!config_parse(&memory->config, parameters, error, size)) {
		free(memory);
		return NULL;
	}
	/* What could not be had stays until exit: the caller has nothing left to do but to end. */
	if (!create_parts(memory, counts, traffic)) {
		snprintf(error, size, "no memory for the caches");
		return NULL;
	}
	return memory;
}

bool memory_count_places(struct memory *memory, FILE *file)
{
	memory->places_table = (struct table){.file = file, .columns = PLACES_COLUMNS};
	table_header(&memory->places_table, &memory->config, false);
	return places_create(&memory->places, &memory->places_table, memory->config.max_rows);
}

void memory_set_instruction(struct memory *memory, uint64_t instruction_ps)
{
	memory->config.instruction_ps = instruction_ps;
}

static void destroy_parts(struct memory *memory)
{
	oracle_destroy(&memory->oracle);
	if (memory->places.table)
		places_destroy(&memory->places);
	traffic_destroy(&memory->traffic);
	for (unsigned cpu = 0; cpu < memory->config.cpus; cpu++) {
		cache_destroy(&memory->cores[cpu].first);
		cache_destroy(&memory->cores[cpu].second);
		free(memory->cores[cpu].filter);
	}
	for (unsigned group = 0; group < memory->config.groups; group++) {
		cache_destroy(&memory->groups[group].cache);
		free(memory->groups[group].lines);
	}
	for (unsigned region = 0; region < memory->region_count; region++) {
		free(memory->regions[region].few_holders);
		free(memory->regions[region].holders);
		free(memory->regions[region].fetched);
	}
	free(memory->cores);
	free(memory->groups);
}

bool memory_restart(struct memory *memory)
{
	FILE *counts = memory->oracle.counts.file, *traffic = memory->oracle.traffic.file;
	FILE *places = memory->places.table ? memory->places_table.file : NULL;

	if (!table_empty(counts) || !table_empty(traffic) || !table_empty(places))
		return false;
	destroy_parts(memory);
	/* All but the configuration, which comes first. */
	memset(&memory->cores, 0, sizeof(*memory) - offsetof(struct memory, cores));
	return create_parts(memory, counts, traffic) &&
	       (!places || memory_count_places(memory, places));
}

void memory_finish(struct memory *memory)
{
	oracle_finish(&memory->oracle, &memory->traffic);
	if (memory->places.table) {
		places_flush(&memory->places, 0);
		table_header(&memory->places_table, &memory->config, true);
	}
	destroy_parts(memory);
	free(memory);
}

struct filter_line *memory_filter(struct memory *memory, unsigned cpu)
{
	return memory->cores[cpu].filter;
}

unsigned memory_filter_bits(const struct memory *memory)
{
	return memory->config.filter_bits;
}

unsigned memory_cpus(const struct memory *memory)
{
	return memory->config.cpus;
}

unsigned memory_home(const struct memory *memory, const char *block)
{
	const struct config *config = &memory->config;

	for (unsigned number = 0; number < config->blocks; number++)
		if (!strcmp(config->block_name[number], block))
			return config->node_of_block[number];
	return 0;
}

uint64_t memory_interrupt_ps(const struct memory *memory, unsigned from, unsigned to)
{
	const struct config *config = &memory->config;

	return config->interrupt_ps[config->node_of_cpu[from]][config->node_of_cpu[to]];
}

bool memory_knows(const struct memory *memory, uint32_t line)
{
	struct place place;

	return place_of(memory, line, &place);
}

bool memory_add_region(struct memory *memory, uint32_t first, uint32_t lines, unsigned home,
		       uint64_t host)
{
	struct region *region = &memory->regions[memory->region_count];

	if (memory->region_count == MAX_REGIONS || home >= memory->config.nodes)
		return false;
	*region = (struct region){
		.first = first, .lines = lines, .home = (uint16_t)home, .host = host};
	/* All are zero pages of the host until they are touched. */
	if (memory->config.groups <= FEW_GROUPS)
		region->few_holders = calloc(lines, sizeof(*region->few_holders));
	else
		region->holders = calloc(lines, sizeof(*region->holders));
	region->fetched = calloc((lines >> PAGE_LINE_BITS) + 1, sizeof(*region->fetched));
	if (!(region->few_holders || region->holders) || !region->fetched)
		return false;
	memory->region_count++;
	return true;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Where an access found its line. */
struct outcome {
	enum move move;
	bool of_memory, of_cache; /* one of them, where it was in no cache of its own group or CPU */
	unsigned source;          /* the node of that memory or cache */
	bool goes_on;             /* a store that belongs to the transfer before */
	uint64_t wait_ps;         /* in queues of memories and links: a part of the cost */
};

/* What the other groups' copies mean for an access. */
struct others {
	bool any, gave;      /* they have copies; one of them had the only good one, and gave it */
	unsigned owner;      /* its node */
	uint64_t told_ps;    /* until the farthest has heard of a store */
};

/* Takes (store) or shares (load) what other groups hold. */
static struct others ask_others(struct memory *memory, struct access access, struct place place)
{
	const struct core *core = &memory->cores[access.cpu];
	struct others others = {0};
	uint64_t holders = holders_of(place);
	bool nobody = !(holders & ~(UINT64_C(1) << core->group % BITS));

	if (nobody && memory->config.groups <= BITS)
		return others;
	for (unsigned number = 0; number < memory->config.groups; number++) {
		struct group *group = &memory->groups[number];
		uint32_t slot;

		if (number == core->group || !(holders >> number % BITS & 1))
			continue;
		slot = cache_find(&group->cache, place.line);
		if (slot == NO_SLOT)
			continue;
		others.any = true;
		if (group->lines[slot].dirty) {
			others.gave = true;
			others.owner = group->node;
		}
		if (access.store) {
			uint64_t *latency = memory->config.latency_ps[core->node];

			others.told_ps = later(others.told_ps, latency[group->node]);
			group_drop(memory, number, slot, place, NO_CPU);
			continue;
		}
		group_stop_writing(memory, group, slot, place);
		if (group->lines[slot].dirty)
			traffic_write_back(&memory->traffic, access.cpu, group->node, place.home);
		group->lines[slot].exclusive = group->lines[slot].dirty = false;
	}
	return others;
}

/* The line that has to leave a slot of a group's cache; false where the slot is free. */
static bool victim_of(struct memory *memory, unsigned number, uint32_t slot, struct place *place)
{
	uint32_t victim;

	return cache_line(&memory->groups[number].cache, slot, &victim) &&
	       place_of(memory, victim, place);
}

/* Brings a line into a group that lacks it: from the cache that has the only good copy, else from home. */
static uint32_t fetch(struct memory *memory, struct access access, struct place place,
		      struct row *row, uint64_t *cost_ps, struct outcome *outcome)
{
	const struct core *core = &memory->cores[access.cpu];
	const uint64_t *latency = memory->config.latency_ps[core->node];
	struct cache *cache = &memory->groups[core->group].cache;
	uint32_t slot = cache_victim(cache, place.line);
	struct place victim;
	bool full = victim_of(memory, core->group, slot, &victim);
	struct others others;
	uint64_t wait_ps;

	if (full)
		expect_holders(victim); /* while the host waits for this line's */
	others = ask_others(memory, access, place);
	if (full)
		group_drop(memory, core->group, slot, victim, access.cpu);
	cache_put(cache, slot, place.line);

	if (others.gave) {
		wait_ps = traffic_forward(&memory->traffic, access.cpu, others.owner);
		*cost_ps = latency[others.owner];
		row->from[MAX_NODES + others.owner]++;
		outcome->of_cache = true;
		outcome->source = others.owner;
	} else {
		wait_ps = traffic_read(&memory->traffic, access.cpu, place.home);
		*cost_ps = latency[place.home];
		row->from[place.home]++;
		outcome->of_memory = true;
		outcome->source = place.home;
		row->loads += !access.store;
		row->far_loads += !access.store && place.home != core->node;
	}
	*cost_ps = later(*cost_ps, others.told_ps) + wait_ps;
	if (others.any)
		outcome->move = others.gave || access.store ? MOVE_TRANSFER : MOVE_READ;
	row->told += access.store && others.any;
	outcome->wait_ps = wait_ps;
	oracle_page(&memory->oracle, row, place.fetched, place.home);
	memory->groups[core->group].lines[slot] =
		(struct shared_line){.writer = NO_CPU, .exclusive = access.store || !others.any};
	add_holder(place, core->group);
	return slot;
}

static bool holds(const struct core *core, uint32_t line)
{
	return cache_find(&core->first, line) != NO_SLOT ||
	       cache_find(&core->second, line) != NO_SLOT;
}

/* The line is in the group's cache: from where in it, and at what cost. */
static uint64_t hit(struct memory *memory, struct access access, uint32_t slot, struct row *row,
		    struct outcome *outcome)
{
	const struct core *core = &memory->cores[access.cpu];
	struct group *group = &memory->groups[core->group];
	uint16_t writer = group->lines[slot].writer;

	cache_touch(&group->cache, slot);
	/* It comes from the other CPU's cache, as from another group's: at their distance. */
	if (writer != NO_CPU && writer != access.cpu &&
	    holds(&memory->cores[writer], access.line)) {
		outcome->move = MOVE_TRANSFER;
		row->from[MAX_NODES + core->node]++;
		outcome->of_cache = true;
		outcome->source = core->node;
		return memory->config.latency_ps[core->node][core->node];
	}
	if (cache_find(&core->first, access.line) != NO_SLOT)
		return memory->config.first.hit_ps;
	if (cache_find(&core->second, access.line) != NO_SLOT) {
		row->second_hits++;
		return memory->config.second.hit_ps;
	}
	row->last_hits++;
	outcome->move = MOVE_READ;
	return memory->config.last.hit_ps;
}

/* A store needs the line for itself: tells those who hold it, and waits for the farthest. */
static uint64_t own(struct memory *memory, struct access access, struct place place, uint32_t slot,
		    struct row *row, struct outcome *outcome)
{
	struct core *core = &memory->cores[access.cpu];
	struct group *group = &memory->groups[core->group];
	struct shared_line *shared = &group->lines[slot];
	uint64_t cost_ps = 0;

	if (!shared->exclusive) {
		cost_ps = ask_others(memory, access, place).told_ps;
		shared->exclusive = true;
	}
	if (shared->users & ~core->user || group->count > BITS) {
		if (shared->users & ~core->user)
			cost_ps = later(cost_ps, memory->config.last.hit_ps);
		group_drop_users(memory, group, slot, place, access.cpu);
	}
	row->told += cost_ps != 0;
	shared->writer = access.cpu;
	shared->dirty = true;
	if (!cost_ps || outcome->move == MOVE_TRANSFER)
		return cost_ps;
	outcome->move = MOVE_UPGRADE;
	outcome->goes_on = core->taken == place.line && access.now_ps < core->taken_until_ps;
	return outcome->goes_on ? 0 : cost_ps;
}

/* Puts a line into a private cache; what it takes the place of stays in the levels behind. */
static void fill(struct cache *cache, uint32_t line)
{
	uint32_t slot = cache_find(cache, line);

	if (slot != NO_SLOT)
		cache_touch(cache, slot);
	else if (cache->sets)
		cache_put(cache, cache_victim(cache, line), line);
}

/* The filter holds nothing that the first level does not hold. */
static void fill_first(struct memory *memory, unsigned cpu, uint32_t line)
{
	struct cache *first = &memory->cores[cpu].first;
	uint32_t slot = cache_find(first, line), victim;
	struct place place;

	if (slot == NO_SLOT) {
		slot = cache_victim(first, line);
		if (cache_line(first, slot, &victim) && place_of(memory, victim, &place))
			filter_drop(memory, cpu, place, false);
		cache_put(first, slot, line);
	}
	cache_touch(first, slot);
}

static void fill_filter(struct memory *memory, struct access access, struct place place)
{
	uint64_t entries = UINT64_C(1) << memory->config.filter_bits;
	struct filter_line *entry =
		&memory->cores[access.cpu].filter[access.vaddr >> LINE_BITS & (entries - 1)];

	if (entry->read != place.tag)
		entry->write = NO_TAG;
	entry->read = place.tag;
	if (access.store)
		entry->write = place.tag;
}

/* A CPU gets a copy: no other one may write the line any more as part of its own transfer. */
static void share(struct memory *memory, unsigned reader, uint32_t line)
{
	for (unsigned cpu = 0; cpu < memory->config.cpus; cpu++)
		if (cpu != reader && memory->cores[cpu].taken == line)
			memory->cores[cpu].taken = UINT32_MAX; /* no region has it */
}

/* Whether a CPU has fetched the lines before this one in a row, within a page, as prefetchers stop there. */
static bool continues(struct core *core, uint32_t line)
{
	struct stream *stream;

	for (stream = core->streams; stream < core->streams + STREAMS; stream++) {
		if (stream->last + 1 != line || line % (1 << PAGE_LINE_BITS) == 0)
			continue;
		stream->last = line;
		return ++stream->length > STREAM_LENGTH;
	}
	core->streams[core->oldest] = (struct stream){.last = line, .length = 1};
	core->oldest = (core->oldest + 1) % STREAMS;
	return false;
}

/* The bytes of its line (bits) that an access touches. */
static uint64_t bytes_of(struct access access)
{
	uint64_t bytes = access.bytes < BITS ? (UINT64_C(1) << access.bytes) - 1 : UINT64_MAX;

	return bytes << access.vaddr % (1 << LINE_BITS);
}

/*
 * What an access of a program means for its page, and for a line that goes from CPU to CPU; of the
 * kernel's accesses, there is only a sum. Whether the CPU's next access to the line may touch further
 * bytes of it, and must not pass unseen.
 */
static bool count_place(struct memory *memory, struct access access, struct place place,
			struct outcome outcome, uint64_t stalled_ps)
{
	struct place_key key = {.kind = PLACE_PAGE,
				.vaddr = access.vaddr >> PAGE_BITS << PAGE_BITS,
				.line = place.line >> PAGE_LINE_BITS << PAGE_LINE_BITS,
				.task = oracle_row(&memory->oracle, access.cpu)->task,
				.node = memory->cores[access.cpu].node,
				.home = place.home};
	struct place_key of_line = key;
	bool fetched = outcome.of_memory || outcome.of_cache;
	struct place_counts counts = {.lines = fetched,
				      .local = fetched && outcome.source == key.node,
				      .stalled_ps = stalled_ps};
	uint64_t *touched = access.store ? &counts.written : &counts.read;
	bool moved = outcome.move == MOVE_TRANSFER || outcome.move == MOVE_UPGRADE;
	bool further = false;

	if (access.vaddr >> 63) {
		key.vaddr = key.line = 0;
		if (fetched || moved)
			places_count(&memory->places, key, counts);
		return false;
	}
	of_line.kind = PLACE_LINE;
	of_line.vaddr = access.vaddr >> LINE_BITS << LINE_BITS;
	of_line.line = place.line;
	*touched = bytes_of(access);
	if (moved) {
		counts.moves = !outcome.goes_on;
		if (places_count_line(&memory->places, of_line, counts))
			return true;
	} else {
		further = places_touch_line(&memory->places, of_line, counts);
	}
	*touched = UINT64_C(1) << (access.vaddr >> LINE_BITS) % (1 << PAGE_LINE_BITS);
	if (counts.lines)
		places_count(&memory->places, key, counts);
	return further;
}

uint64_t memory_access(struct memory *memory, struct access access)
{
	struct core *core = &memory->cores[access.cpu];
	struct group *group = &memory->groups[core->group];
	struct row *row = oracle_row(&memory->oracle, access.cpu);
	struct outcome outcome = {.move = MOVE_NONE};
	struct shared_line *shared;
	uint64_t cost_ps, wait_ps, stalled_ps;
	struct place place;
	uint32_t slot;

	if (!place_of(memory, access.line, &place))
		return 0;
	expect_holders(place);
	slot = cache_find(&group->cache, place.line);
	if (slot == NO_SLOT)
		slot = fetch(memory, access, place, row, &cost_ps, &outcome);
	else
		cost_ps = hit(memory, access, slot, row, &outcome);
	shared = &group->lines[slot];
	if (memory->config.outstanding > 1 && (outcome.of_memory || outcome.of_cache) &&
	    continues(core, place.line))
		cost_ps = outcome.wait_ps +
			  (cost_ps - outcome.wait_ps) / memory->config.outstanding;
	if (access.store)
		cost_ps = later(cost_ps, own(memory, access, place, slot, row, &outcome));
	else if (shared->writer != access.cpu)
		group_stop_writing(memory, group, slot, place);
	shared->users |= core->user;
	fill(&core->second, place.line);
	fill_first(memory, access.cpu, place.line);
	wait_ps = contention_move(&memory->contention, &memory->config, access, outcome.move, cost_ps);
	cost_ps += wait_ps;
	if (outcome.move == MOVE_READ || outcome.move == MOVE_TRANSFER)
		share(memory, access.cpu, place.line);
	if (outcome.move == MOVE_TRANSFER) {
		core->taken = place.line;
		core->taken_until_ps = access.now_ps + cost_ps +
				       TAKEN_LATENCIES *
					       memory->config.latency_ps[core->node][core->node];
	}
	stalled_ps = cost_ps - sooner(cost_ps, memory->config.instruction_ps);
	row->waited_ps += sooner(outcome.wait_ps + wait_ps, stalled_ps);
	row->stalled_ps += stalled_ps;
	if (!memory->places.table || !count_place(memory, access, place, outcome, stalled_ps))
		fill_filter(memory, access, place);
	return stalled_ps;
}

struct meeting memory_meeting(const struct memory *memory)
{
	return memory->contention.meeting;
}

void memory_advance(struct memory *memory, uint64_t now_ps)
{
	uint64_t passed = now_ps - memory->window_start_ps;

	if (passed >= memory->config.window_ps) {
		traffic_settle(&memory->traffic, passed);
		memory->window_start_ps = now_ps;
	}
	oracle_advance(&memory->oracle, &memory->traffic, now_ps);
}

void memory_switch(struct memory *memory, unsigned cpu, uint64_t task, uint64_t now_ps)
{
	oracle_switch(&memory->oracle, cpu, task, now_ps);
}

void memory_mark(struct memory *memory, unsigned cpu, uint64_t now_ps)
{
	oracle_split(&memory->oracle, &memory->traffic, now_ps);
	if (memory->places.table)
		places_moment(&memory->places, MOMENT_MARK, oracle_row(&memory->oracle, cpu)->task,
			      now_ps / PS_OF_NS);
}

/*
 * The first barrier of a task may begin what somebody wants to know of, and any barrier may end it:
 * a slice ends there, but not more often than every BARRIER_SLICE_NS.
 */
void memory_barrier(struct memory *memory, unsigned cpu, uint64_t now_ps)
{
	uint64_t task = oracle_row(&memory->oracle, cpu)->task, now_ns = now_ps / PS_OF_NS;

	if (!memory->places.table)
		return;
	if (places_moment(&memory->places, MOMENT_BARRIER, task, now_ns) ||
	    now_ns > memory->oracle.slice_ns + BARRIER_SLICE_NS)
		oracle_split(&memory->oracle, &memory->traffic, now_ps);
}

/* What was counted of the task before at this address, which has ended, is written by itself. */
void memory_born(struct memory *memory, unsigned cpu, uint64_t now_ps)
{
	/* Another CPU may have come farther. */
	uint64_t later_ps = later(now_ps, memory->oracle.slice_ns * PS_OF_NS);

	if (!memory->places.table)
		return;
	oracle_split(&memory->oracle, &memory->traffic, later_ps);
	oracle_row(&memory->oracle, cpu)->since_ns = now_ps / PS_OF_NS;
	places_flush(&memory->places, later_ps / PS_OF_NS);
}
