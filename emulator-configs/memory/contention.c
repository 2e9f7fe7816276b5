/* CPUs that pass lines to each other. SPDX-License-Identifier: GPL-2.0-only */
#include "contention.h"

/*
 * In quanta: moves of a line that are farther apart do not make it hot; and how long CPUs stay
 * together after its last move. In a queue of CPUs that are not yet together each waits a quantum
 * for the one before: it has to stay until its turn comes.
 */
enum { WINDOW_QUANTA = 4, KEEP_QUANTA = 8, KEEP_QUANTA_OF_CPU = 2 };

void contention_create(struct contention *contention)
{
	for (unsigned place = 0; place < HOT_LINES; place++)
		contention->lines[place].line = UINT32_MAX; /* no region has it */
}

static bool recent(const struct hot_line *hot, const struct config *config, uint64_t now_ps)
{
	uint64_t window_ps = WINDOW_QUANTA * config->window_ps;

	return hot->moved_ps < now_ps + window_ps && now_ps < hot->moved_ps + window_ps;
}

/* The line's entry; NULL where a hot line has its place, or it has none and only a copy is read. */
static struct hot_line *find(struct contention *contention, const struct config *config,
			     struct access access, bool make)
{
	struct hot_line *hot = &contention->lines[access.line % HOT_LINES];
	bool alive = recent(hot, config, access.now_ps);

	if (hot->line == access.line && alive)
		return hot;
	if (!make || (alive && hot->moves >= HOT_MOVES))
		return NULL;
	*hot = (struct hot_line){.line = access.line, .cpu = access.cpu, .moved_ps = access.now_ps};
	return hot;
}

static void meet(struct contention *contention, unsigned cpu, uint64_t until_ps)
{
	struct meeting *meeting = &contention->meeting;

	if (contention->until_ps[cpu] < until_ps)
		contention->until_ps[cpu] = until_ps;
	meeting->cpus[meeting->count++] = (uint16_t)cpu;
	meeting->until_ps = until_ps;
}

/* How long this transfer waits for those before; the next one waits for `busy_ps` of this one. */
static uint64_t queue(struct hot_line *hot, uint64_t now_ps, uint64_t busy_ps)
{
	uint64_t wait_ps = hot->free_ps > now_ps ? hot->free_ps - now_ps : 0;

	hot->free_ps = now_ps + wait_ps + busy_ps;
	return wait_ps;
}

uint64_t contention_move(struct contention *contention, const struct config *config,
			 struct access access, enum move move, uint64_t cost_ps)
{
	struct hot_line *hot;
	bool together = contention->until_ps[access.cpu] > access.now_ps;
	uint64_t quanta = KEEP_QUANTA + KEEP_QUANTA_OF_CPU * config->cpus;
	uint64_t until_ps = access.now_ps + quanta * config->window_ps;

	contention->meeting.count = 0;
	if (move == MOVE_NONE)
		return 0;
	hot = find(contention, config, access, move != MOVE_READ);
	if (!hot)
		return 0;
	if (move != MOVE_READ) {
		unsigned from = hot->cpu;

		if (from != access.cpu && hot->moves < HOT_MOVES)
			hot->moves++;
		hot->cpu = access.cpu;
		hot->moved_ps = access.now_ps;
		if (hot->moves == HOT_MOVES && from != access.cpu)
			meet(contention, from, until_ps);
	}
	if (hot->moves < HOT_MOVES)
		return 0;
	meet(contention, access.cpu, until_ps);
	if (!together || move == MOVE_UPGRADE)
		return 0;
	return queue(hot, access.now_ps, move == MOVE_READ ? config->last.hit_ps : cost_ps);
}
