// SPDX-License-Identifier: GPL-2.0-only
/*
 * full-node THREADS KIB SECONDS TOUCH_NODE RUN_NODE RUN_CPUS: memory that cannot come near.
 *
 * KIB of memory are allocated on TOUCH_NODE, from where they may leave. Then RUN_NODE is filled with
 * memory that is bound to it and locked, until what is free there lies between the low and the high
 * watermark of its zone: less than NUMA balancing wants for pages that it brings
 * (migrate_balanced_pgdat() in mm/migrate.c), and enough that nobody reclaims any. For SECONDS THREADS
 * threads then read that memory on RUN_CPUS, all of them all of it, a word of each page after the
 * other, each from a page of its own on.
 *
 * RUN_NODE has to have one zone, as each node but the first has. Prints how much of it is free at the
 * end, its watermarks, and how many pages were read.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "shared.h"

#define MAX_THREADS 256
#define PIECE 32 /* pages that are filled at a time near the end */
#define QUIET 5 /* looks in a row at a node that stays full */
#define WAIT_NS 40000000
#define MPOL_DEFAULT 0 /* linux/mempolicy.h */

struct worker {
	pthread_t thread;
	size_t first;
	uint64_t read;
} __attribute__((aligned(4096)));

struct zone {
	long free, low, high; /* pages */
};

static struct worker workers[MAX_THREADS];
static pthread_barrier_t ready;
static cpu_set_t run_cpus;
static char *pages;
static size_t count;
static int64_t length;

/* Let the counters of each CPU go into those of the zones (vmstat_refresh() in mm/vmstat.c). */
static void refresh_counters(void)
{
	int file = open("/proc/sys/vm/stat_refresh", O_WRONLY | O_CLOEXEC);

	if (file < 0 || write(file, "1", 1) < 0)
		die("cannot refresh the kernel's counters: %s", strerror(errno));
	close(file);
}

/* What /proc/zoneinfo says of the only zone of a node that has memory. */
static struct zone read_zone(int node)
{
	FILE *file = fopen("/proc/zoneinfo", "re");
	struct zone found = { 0 }, zone = { 0 };
	int number = -1, zones = 0;
	char line[256];
	long value;

	if (!file)
		die("cannot read /proc/zoneinfo: %s", strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %d, zone", &number) == 1)
			zone = (struct zone){ 0 };
		else if (sscanf(line, " pages free %ld", &value) == 1)
			zone.free = value;
		else if (sscanf(line, " low %ld", &value) == 1)
			zone.low = value;
		else if (sscanf(line, " high %ld", &value) == 1)
			zone.high = value;
		else if (sscanf(line, " managed %ld", &value) == 1 && value && number == node) {
			found = zone;
			zones++;
		}
	}
	fclose(file);
	if (zones != 1)
		die("node %d has %d zones with memory, not one", node, zones);
	return found;
}

/* How many pages of a node are free above a bound that lies a quarter of the way from high to low. */
static long excess(int node)
{
	struct zone zone = read_zone(node);

	return zone.free - (zone.low + 3 * zone.high) / 4;
}

/* Take a node's memory down to there, and what is reclaimed meanwhile, until nothing is for a while. */
static void fill(int node)
{
	int quiet = 0;

	while (quiet < QUIET) {
		long left;

		refresh_counters();
		left = excess(node);

		if (left <= 0) {
			quiet++;
			sleep_ns(WAIT_NS);
		} else {
			size_t size = (left > 2 * PIECE ? left / 4 * 3 : PIECE) * 4096;

			if (mlock(allocate_on(size, node), size))
				die("cannot lock memory of node %d: %s", node, strerror(errno));
			quiet = 0;
		}
	}
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	const volatile char *memory = pages;
	size_t all = count, page = worker->first;
	uint64_t read = 0;
	int64_t end;

	run_on(&run_cpus);
	pthread_barrier_wait(&ready); /* the main thread marks the beginning between the two */
	pthread_barrier_wait(&ready);
	end = now() + length;
	while (now() < end) {
		for (size_t i = 0; i < all; i++) {
			(void)memory[page * 4096];
			page = page + 1 < all ? page + 1 : 0;
		}
		read += all;
	}
	worker->read = read;
	return NULL;
}

/* Memory of a node, which the kernel may take elsewhere. */
static char *allocate_at_first_on(int node, size_t size)
{
	char *memory = allocate_on(size, node);

	memset(memory, 1, size);
	if (syscall(SYS_mbind, memory, size, MPOL_DEFAULT, NULL, 0, 0))
		die("cannot let memory go: %s", strerror(errno));
	return memory;
}

int main(int argc, char **argv)
{
	uint64_t read = 0;
	struct zone zone;
	int threads, touch_node, run_node;

	if (argc != 7)
		die("usage: full-node THREADS KIB SECONDS TOUCH_NODE RUN_NODE RUN_CPUS");
	threads = parse_number("THREADS", argv[1], 1, MAX_THREADS);
	count = parse_number("KIB", argv[2], 64, 1 << 20) / 4;
	length = parse_seconds(argv[3]);
	touch_node = parse_number("TOUCH_NODE", argv[4], 0, MAX_NODES - 1);
	run_node = parse_number("RUN_NODE", argv[5], 0, MAX_NODES - 1);
	run_cpus = parse_cpulist(argv[6]);
	pthread_barrier_init(&ready, NULL, threads + 1);
	pages = allocate_at_first_on(touch_node, count * 4096);
	for (int i = 0; i < threads; i++) {
		workers[i].first = count * i / threads;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("cannot start a thread");
	}
	pthread_barrier_wait(&ready);
	fill(run_node);
	mark("numalab: begin");
	pthread_barrier_wait(&ready);
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	mark("numalab: end");
	zone = read_zone(run_node);
	for (int i = 0; i < threads; i++)
		read += workers[i].read;
	printf("free %ld low %ld high %ld pages\n", zone.free, zone.low, zone.high);
	printf("read %llu pages\n", (unsigned long long)read);
	return 0;
}
