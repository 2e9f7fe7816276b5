/* Pages and lines by task. SPDX-License-Identifier: GPL-2.0-only */
#include "places.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_BITS = 12, MOST_BITS = 19, MOST_MOVED_LINES = 1 << 16 };

#define FREE_NODE UINT64_MAX

static bool set_create(struct place_set *set, unsigned bits)
{
	size_t size = (size_t)1 << bits;
	struct place_entry *entries = malloc(size * sizeof(*entries));

	for (size_t slot = 0; entries && slot < size; slot++)
		entries[slot].key.node = FREE_NODE;
	*set = (struct place_set){.entries = entries, .bits = bits};
	return entries != NULL;
}

/* Multiplication by the golden ratio spreads keys that follow each other (Knuth, TAOCP 3, 6.4). */
static uint64_t spread(uint64_t sum, uint64_t value)
{
	return (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct place_entry *find(const struct place_set *set, const struct place_key *key)
{
	uint64_t hash = spread(spread(spread(key->vaddr, key->task), key->line), key->node);
	uint64_t mask = (UINT64_C(1) << set->bits) - 1;
	uint64_t slot = spread(hash, key->kind + 4 * key->home) >> (64 - set->bits);

	while (set->entries[slot].key.node != FREE_NODE &&
	       memcmp(&set->entries[slot].key, key, sizeof(*key)))
		slot = (slot + 1) & mask;
	return &set->entries[slot];
}

static bool is_full(const struct place_set *set)
{
	return set->count >= (3U << set->bits) / 4;
}

/* Adds counts; false where there is no room, which leaves a quarter of the entries free. */
static bool add(struct place_set *set, const struct place_key *key,
		const struct place_counts *counts)
{
	struct place_entry *entry = find(set, key);

	if (entry->key.node == FREE_NODE) {
		if (is_full(set))
			return false;
		*entry = (struct place_entry){.key = *key};
		set->count++;
	}
	entry->counts.lines += counts->lines;
	entry->counts.local += counts->local;
	entry->counts.moves += counts->moves;
	entry->counts.stalled_ps += counts->stalled_ps;
	entry->counts.written |= counts->written;
	entry->counts.read |= counts->read;
	return true;
}

static void move_all(struct place_set *from, struct place_set *to)
{
	for (size_t slot = 0; from->count && slot < (size_t)1 << from->bits; slot++) {
		if (from->entries[slot].key.node == FREE_NODE)
			continue;
		add(to, &from->entries[slot].key, &from->entries[slot].counts);
		from->entries[slot].key.node = FREE_NODE;
	}
	from->count = 0;
}

static bool grow(struct place_set *set)
{
	struct place_set larger;

	if (set->bits == MOST_BITS || !set_create(&larger, set->bits + 1))
		return false;
	move_all(set, &larger);
	free(set->entries);
	*set = larger;
	return true;
}

static void put(struct places *places, struct place_key key, struct place_counts counts,
		uint64_t since_ns)
{
	uint64_t row[] = {since_ns,     key.kind,      key.vaddr,    key.line,
			  key.task,     key.node,      key.home,     counts.lines,
			  counts.local, counts.moves,  counts.stalled_ps,
			  counts.written, counts.read};

	table_put(places->table, places->max_rows, row);
}

static void put_all(struct places *places, struct place_set *set, uint64_t since_ns)
{
	for (size_t slot = 0; set->count && slot < (size_t)1 << set->bits; slot++) {
		struct place_entry *entry = &set->entries[slot];

		if (entry->key.node != FREE_NODE)
			put(places, entry->key, entry->counts, since_ns);
		entry->key.node = FREE_NODE;
	}
	set->count = 0;
}

static void put_moment(struct places *places, enum moment moment, uint64_t task, uint64_t now_ns)
{
	struct place_key key = {.kind = PLACE_MOMENT, .vaddr = moment, .task = task};

	put(places, key, (struct place_counts){0}, now_ns);
}

bool places_create(struct places *places, struct table *table, uint64_t max_rows)
{
	places->table = table;
	places->max_rows = max_rows;
	return set_create(&places->settled, LEAST_BITS) && set_create(&places->fresh, LEAST_BITS);
}

void places_destroy(struct places *places)
{
	free(places->settled.entries);
	free(places->fresh.entries);
}

static void put_both(struct places *places)
{
	put_all(places, &places->settled, places->since_ns);
	if (places->barrier_ns) {
		put_moment(places, MOMENT_BARRIER, 0, places->barrier_ns);
		places->since_ns = places->barrier_ns;
		places->barrier_ns = 0;
	}
	put_all(places, &places->fresh, places->since_ns);
	places->moved_lines = 0;
}

void places_flush(struct places *places, uint64_t now_ns)
{
	put_both(places);
	places->since_ns = now_ns;
}

void places_count(struct places *places, struct place_key key, struct place_counts counts)
{
	struct place_set *fresh = &places->fresh;

	if (add(fresh, &key, &counts) || (grow(fresh) && add(fresh, &key, &counts)))
		return;
	put_both(places);
	add(fresh, &key, &counts);
}

bool places_count_line(struct places *places, struct place_key key, struct place_counts counts)
{
	if (find(&places->fresh, &key)->key.node == FREE_NODE &&
	    find(&places->settled, &key)->key.node == FREE_NODE) {
		if (places->moved_lines == MOST_MOVED_LINES)
			return false;
		places->moved_lines++;
	}
	places_count(places, key, counts);
	return true;
}

bool places_touch_line(struct places *places, struct place_key key, struct place_counts bytes)
{
	struct place_entry *entry = find(&places->fresh, &key);
	bool first;

	if (entry->key.node == FREE_NODE)
		return false;
	first = bytes.written & ~entry->counts.written || bytes.read & ~entry->counts.read;
	entry->counts.written |= bytes.written;
	entry->counts.read |= bytes.read;
	return first;
}

static bool is_first(struct places *places, uint64_t task)
{
	for (unsigned place = 0; place < places->waiter_count; place++)
		if (places->waiters[place] == task)
			return false;
	if (places->waiter_count == TASKS_AT_BARRIERS)
		return false;
	places->waiters[places->waiter_count++] = task;
	return true;
}

/* What came before this barrier is not what came after it. */
static void settle(struct places *places, uint64_t now_ns)
{
	struct place_set *settled = &places->settled;

	while (settled->count + places->fresh.count >= (3U << settled->bits) / 4) {
		if (!grow(settled)) {
			put_all(places, settled, places->since_ns);
			places->moved_lines = 0;
			break;
		}
	}
	move_all(&places->fresh, settled);
	places->barrier_ns = now_ns;
}

bool places_moment(struct places *places, enum moment moment, uint64_t task, uint64_t now_ns)
{
	if (moment == MOMENT_BARRIER) {
		if (!is_first(places, task)) {
			settle(places, now_ns);
			return false;
		}
		moment = MOMENT_FIRST_BARRIER;
	}
	places_flush(places, now_ns);
	put_moment(places, moment, task, now_ns);
	return true;
}
