// SPDX-License-Identifier: GPL-2.0-only
/*
 * distances KIB: what memory costs, from each node with CPUs to each node with memory.
 *
 * - chase: one load after the other through KIB in random order, as lmbench's lat_mem_rd, ns each;
 *   and with smaller buffers near by, where the caches' plateaus show
 * - copy: STREAM's copy by one thread, and by one thread on each CPU of the node, in MB/s
 * - handover: a store to a line that a CPU of another node has written before, ns each
 *
 * Memory is bound to its node, threads to their CPUs. Each figure is the second pass's. Of a chase it
 * is the median of its PARTS, so that the kernel's ticks and what else runs there are in less than half.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "shared.h"

#define MAX_THREADS 256
#define HANDOVER_LINES 256
#define PARTS 15

struct node {
	int first, count; /* CPUs */
	int memory;       /* whether it has some */
};

static struct node nodes[MAX_NODES];
static int node_count;
static size_t bytes;

static int read_text(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (file < 0)
		return 0;
	length = read(file, text, size - 1);
	close(file);
	if (length < 0)
		return 0;
	text[length] = 0;
	return 1;
}

static void read_nodes(void)
{
	char path[64], text[4096];

	for (; node_count < MAX_NODES; node_count++) {
		struct node *node = &nodes[node_count];
		int last;

		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node_count);
		if (!read_text(path, text, sizeof(text)))
			break;
		if (sscanf(text, "%d-%d", &node->first, &last) == 2)
			node->count = last - node->first + 1;
		else
			node->count = sscanf(text, "%d", &node->first) == 1;
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node_count);
		node->memory = read_text(path, text, sizeof(text)) &&
			       !strstr(text, "MemTotal:              0 kB");
	}
}

static int compare(const void *one, const void *other)
{
	int64_t first = *(const int64_t *)one, second = *(const int64_t *)other;

	return (first > second) - (first < second);
}

static double chase(int cpu, int node, size_t size)
{
	size_t lines = size / LINE, steps = lines < 65536 ? 65536 : lines;
	size_t part = steps / PARTS / 16 * 16; /* as follow() takes them */
	char *buffer = allocate_on(size, node);
	int64_t spent[PARTS];
	void **at;

	run_on_cpu(cpu);
	at = follow(link_lines(buffer, lines, 1), steps);
	for (int i = 0; i < PARTS; i++) {
		int64_t began = now();

		at = follow(at, part);
		spent[i] = now() - began;
	}
	if (!at)
		die("lost");
	munmap(buffer, size);
	qsort(spent, PARTS, sizeof(spent[0]), compare);
	return (double)spent[PARTS / 2] / part;
}

struct copier {
	pthread_t thread;
	int cpu, node;
	double seconds;
};

static pthread_barrier_t barrier;

static void *copy(void *argument)
{
	struct copier *copier = argument;
	size_t words = bytes / sizeof(uint64_t);
	uint64_t *from = allocate_on(bytes, copier->node), *to = allocate_on(bytes, copier->node);
	int64_t began;

	run_on_cpu(copier->cpu);
	memset(from, 1, bytes); /* or it would be the page of zeros, on whichever node that is */
	for (int pass = 0; pass < 2; pass++) {
		pthread_barrier_wait(&barrier);
		began = now();
		for (size_t i = 0; i < words; i += 8) {
#define WORD(n) ((volatile uint64_t *)to)[i + n] = ((volatile uint64_t *)from)[i + n];
			WORD(0) WORD(1) WORD(2) WORD(3) WORD(4) WORD(5) WORD(6) WORD(7)
		}
		copier->seconds = (now() - began) / 1e9;
	}
	munmap(from, bytes);
	munmap(to, bytes);
	return NULL;
}

/* MB/s of all threads together, counted as STREAM counts: what is read and what is written. */
static double copy_rate(int cpu_node, int node, int threads)
{
	struct copier copiers[MAX_THREADS];
	double rate = 0;

	pthread_barrier_init(&barrier, NULL, threads);
	for (int i = 0; i < threads; i++) {
		copiers[i] = (struct copier){ .cpu = nodes[cpu_node].first + i, .node = node };
		if (pthread_create(&copiers[i].thread, NULL, copy, &copiers[i]))
			die("cannot start a thread");
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(copiers[i].thread, NULL);
		rate += 2.0 * bytes / 1e6 / copiers[i].seconds;
	}
	pthread_barrier_destroy(&barrier);
	return rate;
}

static void store_all(char *lines)
{
	for (int i = 0; i < HANDOVER_LINES; i += 8) {
#define STORE(n) ((volatile char *)lines)[(i + n) * LINE] = 1;
		STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7)
	}
}

/* ns of a store to lines that the other CPU has written; both CPUs' turns count. */
static double handover(int cpu, int other, int home)
{
	size_t size = HANDOVER_LINES * LINE;
	char *lines = allocate_on(size, home);
	int64_t spent = 0;
	int rounds = 20;

	for (int round = 0; round < 2 * rounds; round++) {
		int64_t began;

		run_on_cpu(round % 2 ? cpu : other);
		began = now();
		store_all(lines);
		if (round >= rounds)
			spent += now() - began;
	}
	munmap(lines, size);
	return (double)spent / rounds / HANDOVER_LINES;
}

static void measure_pair(int from, int to)
{
	struct node *near = &nodes[from];
	int threads = near->count < MAX_THREADS ? near->count : MAX_THREADS;

	printf("chase %d-%d %.2f ns\n", from, to, chase(near->first, to, bytes));
	printf("copy %d-%d threads 1 %.1f MB/s\n", from, to, copy_rate(from, to, 1));
	if (threads > 1)
		printf("copy %d-%d threads all %.1f MB/s\n", from, to,
		       copy_rate(from, to, threads));
	if (nodes[to].count && (from != to || near->count > 1)) {
		int other = from == to ? near->first + 1 : nodes[to].first;

		printf("handover %d-%d %.2f ns\n", from, to, handover(near->first, other, from));
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		die("usage: distances KIB");
	bytes = parse_number("KIB", argv[1], 64, 1 << 20) * 1024;
	read_nodes();
	mark("numalab: begin");
	for (size_t size = 4096; size < bytes; size *= 2)
		if (nodes[0].count && nodes[0].memory)
			printf("cache %zu KiB %.2f ns\n", size / 1024,
			       chase(nodes[0].first, 0, size));
	for (int from = 0; from < node_count; from++)
		for (int to = 0; to < node_count; to++)
			if (nodes[from].count && nodes[to].memory)
				measure_pair(from, to);
	mark("numalab: end");
	return 0;
}
