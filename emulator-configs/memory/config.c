/*
 * The parameter file. One statement a line, `#` begins a comment, times are picoseconds:
 *
 *   numalab-memory 1                    what this file is; the first line
 *   machine <cpus> <nodes> <groups> <servers>
 *   cpu <cpu> <node> <group>            a group of CPUs shares a last-level cache
 *   first <sets> <ways> <ps>            private first level
 *   second <sets> <ways> <ps>           private second level; 0 sets: none
 *   last <sets> <ways> <ps>
 *   latency <node> <ps to node 0> <ps to node 1> ...
 *   interrupt <node> <ps to node 0> ... how long an interrupt takes; not needed
 *   server <server> <ps a line> <knee> <name>
 *   memory <node> <server>              the server that is this node's memory
 *   route <from> <to> <server> ...      the links that data passes from one node to another
 *   block <node> <name>                 QEMU's block of memory with this name lives on this node
 *   outstanding <lines>                 lines of a sequential access under way at a time; or 1
 *   window <ps>                         how often waits follow the traffic
 *   slice <ps> <rows>                   a time slice of the tables, and their greatest length
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PS UINT64_C(1000000000000)  /* a second */
#define MAX_LINE_PS UINT64_C(1000000000) /* 64 kB/s: below that nothing boots */

struct line {
	const char *at;
	unsigned number;
	const char *wrong;
};

static void fail(struct line *line, const char *wrong)
{
	if (!line->wrong)
		line->wrong = wrong;
}

static void skip_blanks(struct line *line)
{
	while (*line->at == ' ')
		line->at++;
}

static bool at_end(struct line *line)
{
	skip_blanks(line);
	return !*line->at || *line->at == '\n' || *line->at == '#';
}

static void word(struct line *line, char *into)
{
	size_t length = 0;

	skip_blanks(line);
	while (*line->at > ' ' && length < MAX_NAME - 1)
		into[length++] = *line->at++;
	into[length] = 0;
	if (!length)
		fail(line, "a word is missing");
	if (*line->at > ' ')
		fail(line, "a word is too long");
}

static uint64_t number(struct line *line, uint64_t least, uint64_t most)
{
	uint64_t value = 0;

	skip_blanks(line);
	if (*line->at < '0' || *line->at > '9') {
		fail(line, "a number is missing");
		return least;
	}
	for (; *line->at >= '0' && *line->at <= '9'; line->at++)
		value = value > most ? value : value * 10 + (uint64_t)(*line->at - '0');
	if (value < least || value > most) {
		fail(line, "a number is out of range");
		return least;
	}
	return value;
}

static unsigned one_of(struct line *line, unsigned count)
{
	if (!count) {
		fail(line, "this comes before machine");
		return 0;
	}
	return (unsigned)number(line, 0, count - 1);
}

static struct shape shape(struct line *line, uint32_t least)
{
	struct shape shape;

	shape.sets = (uint32_t)number(line, least, UINT32_C(1) << 24);
	shape.ways = (uint32_t)number(line, least, 64);
	shape.hit_ps = number(line, 0, MAX_PS);
	if (shape.sets & (shape.sets - 1))
		fail(line, "the number of sets is not a power of two");
	return shape;
}

static void machine(struct config *config, struct line *line)
{
	config->cpus = (unsigned)number(line, 1, MAX_CPUS);
	config->nodes = (unsigned)number(line, 1, MAX_NODES);
	config->groups = (unsigned)number(line, 1, MAX_CPUS);
	config->servers = (unsigned)number(line, 1, MAX_SERVERS);
}

static void cpu(struct config *config, struct line *line)
{
	unsigned cpu = one_of(line, config->cpus);

	config->node_of_cpu[cpu] = (uint16_t)one_of(line, config->nodes);
	config->group_of_cpu[cpu] = (uint16_t)one_of(line, config->groups);
}

static void from_node(struct config *config, struct line *line, uint64_t ps[][MAX_NODES])
{
	unsigned from = one_of(line, config->nodes);

	for (unsigned to = 0; to < config->nodes; to++)
		ps[from][to] = number(line, 1, MAX_PS);
}

static void server(struct config *config, struct line *line)
{
	unsigned server = one_of(line, config->servers);

	config->line_ps[server] = number(line, 1, MAX_LINE_PS);
	config->knee[server] = (unsigned)number(line, 1, 16);
	word(line, config->server_name[server]);
}

static void route(struct config *config, struct line *line)
{
	unsigned from = one_of(line, config->nodes), to = one_of(line, config->nodes);
	struct route *route = &config->route[from][to];

	for (route->length = 0; !at_end(line) && !line->wrong; route->length++) {
		if (route->length == MAX_ROUTE) {
			fail(line, "a route is too long");
			return;
		}
		route->links[route->length] = (uint16_t)one_of(line, config->servers);
	}
}

static void block(struct config *config, struct line *line)
{
	if (config->blocks == MAX_BLOCKS) {
		fail(line, "too many blocks");
		return;
	}
	config->node_of_block[config->blocks] = (uint16_t)one_of(line, config->nodes);
	word(line, config->block_name[config->blocks++]);
}

static void statement(struct config *config, struct line *line)
{
	char key[MAX_NAME];

	word(line, key);
	if (!strcmp(key, "machine")) {
		machine(config, line);
	} else if (!strcmp(key, "cpu")) {
		cpu(config, line);
	} else if (!strcmp(key, "first")) {
		config->first = shape(line, 1);
	} else if (!strcmp(key, "second")) {
		config->second = shape(line, 0);
	} else if (!strcmp(key, "last")) {
		config->last = shape(line, 1);
	} else if (!strcmp(key, "latency")) {
		from_node(config, line, config->latency_ps);
	} else if (!strcmp(key, "interrupt")) {
		from_node(config, line, config->interrupt_ps);
	} else if (!strcmp(key, "server")) {
		server(config, line);
	} else if (!strcmp(key, "memory")) {
		unsigned node = one_of(line, config->nodes);

		config->server_of_memory[node] = (uint16_t)one_of(line, config->servers);
	} else if (!strcmp(key, "route")) {
		route(config, line);
	} else if (!strcmp(key, "block")) {
		block(config, line);
	} else if (!strcmp(key, "outstanding")) {
		config->outstanding = (unsigned)number(line, 1, 64);
	} else if (!strcmp(key, "window")) {
		config->window_ps = number(line, 1, MAX_PS);
	} else if (!strcmp(key, "slice")) {
		config->slice_ps = number(line, 1, MAX_PS);
		config->max_rows = number(line, 1, UINT64_C(1) << 32);
	} else {
		fail(line, "unknown statement");
	}
	if (!at_end(line))
		fail(line, "too many words");
}

/* Enough for all lines of the first level, and for a line of each place in a page. */
static unsigned filter_bits(struct shape first)
{
	unsigned bits = PAGE_LINE_BITS;

	while (bits < MAX_FILTER_BITS && first.sets * first.ways >> bits > 1)
		bits++;
	return bits;
}

static const char *what_is_missing(const struct config *config)
{
	if (!config->cpus)
		return "machine is missing";
	if (!config->first.sets)
		return "first is missing";
	if (!config->last.sets)
		return "last is missing";
	if (!config->window_ps || !config->slice_ps)
		return "window or slice is missing";
	for (unsigned cpu = 0; cpu < config->cpus; cpu++)
		for (unsigned node = 0; node < config->nodes; node++)
			if (!config->latency_ps[config->node_of_cpu[cpu]][node])
				return "a latency is missing";
	for (unsigned server = 0; server < config->servers; server++)
		if (!config->line_ps[server])
			return "a server is missing";
	return NULL;
}

bool config_parse(struct config *config, const char *text, char *error, size_t size)
{
	static const char magic[] = "numalab-memory 1\n";
	struct line line = {.at = text, .number = 1};

	memset(config, 0, sizeof(*config));
	config->outstanding = 1;
	if (strncmp(text, magic, sizeof(magic) - 1)) {
		fail(&line, "this is no parameter file of version 1");
	} else {
		for (line.at += sizeof(magic) - 1, line.number++; *line.at && !line.wrong;) {
			if (!at_end(&line))
				statement(config, &line);
			if (line.wrong)
				break;
			line.at += strcspn(line.at, "\n");
			if (*line.at) {
				line.at++;
				line.number++;
			}
		}
	}
	if (!line.wrong)
		fail(&line, what_is_missing(config));
	config->filter_bits = filter_bits(config->first);
	if (line.wrong)
		snprintf(error, size, "line %u: %s", line.number, line.wrong);
	return !line.wrong;
}
