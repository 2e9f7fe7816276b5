/* Waiting for memories and links. SPDX-License-Identifier: GPL-2.0-only */
#include "traffic.h"

#include <stdlib.h>
#include <string.h>

bool traffic_create(struct traffic *traffic, const struct config *config)
{
	traffic->config = config;
	traffic->servers = calloc(config->servers, sizeof(*traffic->servers));
	traffic->arrivals_of_cpu =
		calloc((size_t)config->servers * config->cpus, sizeof(*traffic->arrivals_of_cpu));
	return traffic->servers && traffic->arrivals_of_cpu;
}

void traffic_destroy(struct traffic *traffic)
{
	free(traffic->servers);
	free(traffic->arrivals_of_cpu);
}

static uint64_t arrive(struct traffic *traffic, unsigned cpu, unsigned server, bool waits)
{
	struct server *at = &traffic->servers[server];
	uint64_t wait_ps = waits ? at->wait_ps : 0;

	traffic->arrivals_of_cpu[server * traffic->config->cpus + cpu]++;
	at->arrivals++;
	at->waiting += waits;
	at->slice_lines++;
	at->slice_wait_ps += wait_ps;
	return wait_ps;
}

static uint64_t pass(struct traffic *traffic, unsigned cpu, const struct route *route, bool waits)
{
	uint64_t wait_ps = 0;

	for (unsigned link = 0; link < route->length; link++)
		wait_ps += arrive(traffic, cpu, route->links[link], waits);
	return wait_ps;
}

uint64_t traffic_read(struct traffic *traffic, unsigned cpu, unsigned home)
{
	const struct config *config = traffic->config;
	unsigned node = config->node_of_cpu[cpu];

	return arrive(traffic, cpu, config->server_of_memory[home], true) +
	       pass(traffic, cpu, &config->route[home][node], true);
}

uint64_t traffic_forward(struct traffic *traffic, unsigned cpu, unsigned owner)
{
	const struct config *config = traffic->config;

	return pass(traffic, cpu, &config->route[owner][config->node_of_cpu[cpu]], true);
}

void traffic_write_back(struct traffic *traffic, unsigned cpu, unsigned from, unsigned home)
{
	const struct config *config = traffic->config;

	pass(traffic, cpu, &config->route[from][home], false);
	arrive(traffic, cpu, config->server_of_memory[home], false);
}

/* Fixed point: 1 is 1 << SHARE_BITS. */
enum { SHARE_BITS = 12 };

/*
 * How long a request waits at a server that is busy for this share of the time: a queue with c
 * servers, Poisson arrivals and constant service, W = s * u^(sqrt(2 (c + 1)) - 1) / (2 (1 - u)),
 * s being the time a line needs when all c work (Sakasegawa 1977, "An approximation formula
 * Lq = a * rho^beta / (1 - rho)", halved for constant service). `knee` is the exponent: 1 for one
 * channel, 3 for seven.
 */
static uint64_t wait_at(uint64_t line_ps, unsigned knee, uint64_t busy)
{
	uint64_t wait = line_ps;

	for (unsigned factor = 0; factor < knee; factor++)
		wait = (wait * busy) >> SHARE_BITS;
	return (wait << SHARE_BITS) / (2 * ((1 << SHARE_BITS) - busy));
}

/* What a window told of one server; `cpus` and `waiting` are fixed point. */
struct load {
	uint64_t cpus;     /* how many CPUs made the requests, counting by weight */
	uint64_t waiting;  /* the share of lines that a CPU waits for */
	uint64_t cycle_ps; /* between two lines of one CPU, waits at this server left out */
};

/*
 * The wait at which CPUs that wait for each line before they ask for the next one ask just as
 * often as the queue of that length bears: the closed queueing network's fixed point. A request of
 * one of n CPUs meets the server as n - 1 CPUs keep it busy, for it never waits for itself (the
 * arrival theorem of Reiser and Lavenberg, JACM 27(2), 1980; that these are (n - 1) / n as busy is
 * Bard's and Schweitzer's approximation). Where even that queue is too short for what they ask, they
 * wait until the server is just busy all the time. Found by bisection: the more a CPU waits, the
 * less it asks for.
 */
static uint64_t wait_for(uint64_t line_ps, unsigned knee, struct load load)
{
	const uint64_t one = UINT64_C(1) << SHARE_BITS;
	uint64_t work = load.cpus * line_ps; /* of one line of each CPU, fixed point */
	uint64_t low = 0, high = 2 * work / load.waiting + 1;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		uint64_t cycle = load.cycle_ps + ((middle * load.waiting) >> SHARE_BITS);
		uint64_t busy = cycle ? work / cycle : one;
		uint64_t met = busy * (load.cpus - one) / load.cpus;

		if (busy > one || wait_at(line_ps, knee, met) > middle)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* How many CPUs made these requests: (sum a)^2 / (sum a^2), which is n for n equal ones. */
static uint64_t effective_cpus(const uint32_t *arrivals, unsigned cpus, uint64_t sum)
{
	uint64_t squares = 0;

	for (unsigned cpu = 0; cpu < cpus; cpu++)
		squares += (uint64_t)arrivals[cpu] * arrivals[cpu];
	return ((sum * sum) << SHARE_BITS) / squares;
}

static uint64_t settled_wait(const struct server *server, uint64_t line_ps, unsigned knee,
			     uint64_t cpus, uint64_t window_ps)
{
	struct load load = {.cpus = cpus,
			    .waiting = (server->waiting << SHARE_BITS) / server->arrivals};
	uint64_t cycle = ((window_ps / server->arrivals) * cpus) >> SHARE_BITS;
	uint64_t waited = (server->wait_ps * load.waiting) >> SHARE_BITS;

	load.cycle_ps = cycle > waited ? cycle - waited : 0;
	return load.waiting ? wait_for(line_ps, knee, load) : 0;
}

void traffic_settle(struct traffic *traffic, uint64_t window_ps)
{
	const struct config *config = traffic->config;

	for (unsigned number = 0; number < config->servers; number++) {
		struct server *server = &traffic->servers[number];
		uint32_t *arrivals = &traffic->arrivals_of_cpu[number * config->cpus];
		uint64_t wait_ps = 0;

		if (server->arrivals) {
			wait_ps = settled_wait(server, config->line_ps[number],
					       config->knee[number],
					       effective_cpus(arrivals, config->cpus,
							      server->arrivals),
					       window_ps);
			memset(arrivals, 0, config->cpus * sizeof(*arrivals));
		}
		/* Half way only: a window sees few requests, and their number is rough. */
		server->wait_ps = (server->wait_ps + wait_ps) / 2;
		server->arrivals = server->waiting = 0;
	}
}
