// SPDX-License-Identifier: GPL-2.0-only
/*
 * loaded-latency KIB CPUS NODE: what a load costs while others use the same memory, as Intel MLC
 * measures it.
 *
 * The first of CPUS follows pointers through KIB on NODE in random order. Meanwhile a thread on each
 * of the others reads its own KIB of that node line after line, and between two lines goes round an
 * empty loop, two instructions each time: the fewer rounds, the more it asks for. For every number
 * of rounds prints what all together got, and what a step of the first one took.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "shared.h"

#define MAX_THREADS 256
#define STEPS 16384
#define IDLE -1 /* instead of rounds: the others sleep */

struct reader {
	_Alignas(LINE) pthread_t thread; /* no line of it is another one's */
	int cpu;
	char *buffer;
	atomic_ulong lines;
};

static struct reader readers[MAX_THREADS];
static int reader_count, node;
static size_t bytes;
static long rounds;
static atomic_bool stop;
static pthread_barrier_t bound; /* all are on their CPUs */

static void *read_lines(void *argument)
{
	struct reader *reader = argument;
	unsigned long lines = 0;

	run_on_cpu(reader->cpu);
	pthread_barrier_wait(&bound);
	for (size_t at = 0; !atomic_load_explicit(&stop, memory_order_relaxed); lines++) {
		(void)*(volatile char *)(reader->buffer + at);
		at = at + LINE < bytes ? at + LINE : 0;
		for (long round = rounds; round; round--)
			asm volatile("" : "+r"(round));
		atomic_store_explicit(&reader->lines, lines, memory_order_relaxed);
	}
	return NULL;
}

static unsigned long all_lines(void)
{
	unsigned long all = 0;

	for (int i = 0; i < reader_count; i++)
		all += atomic_load_explicit(&readers[i].lines, memory_order_relaxed);
	return all;
}

/*
 * Measure the second STEPS of the one who measures, when all have begun. It goes on from where it
 * was: the same lines again would still be in a large cache.
 */
static void **measure(void **at, long how_many_rounds)
{
	int count = how_many_rounds == IDLE ? 0 : reader_count;
	unsigned long lines;
	int64_t spent;

	rounds = how_many_rounds;
	atomic_store(&stop, false);
	for (int i = 0; i < reader_count; i++)
		atomic_store(&readers[i].lines, 0);
	for (int i = 0; i < count; i++)
		if (pthread_create(&readers[i].thread, NULL, read_lines, &readers[i]))
			die("cannot start a thread");
	if (count)
		pthread_barrier_wait(&bound);
	at = follow(at, STEPS);
	lines = all_lines();
	spent = now();
	at = follow(at, STEPS);
	spent = now() - spent;
	lines = all_lines() - lines + STEPS;
	atomic_store(&stop, true);
	for (int i = 0; i < count; i++)
		pthread_join(readers[i].thread, NULL);
	if (!at)
		die("lost");
	if (count)
		printf("rounds %ld ", rounds);
	else
		printf("idle ");
	printf("%.1f MB/s %.2f ns\n", lines * (double)LINE * 1e3 / spent, (double)spent / STEPS);
	fflush(stdout);
	return at;
}

int main(int argc, char **argv)
{
	static const long steps[] = { 2000, 1000, 500, 300, 200, 150, 100, 70, 50, 30, 20, 10, 0 };
	int first = -1;
	cpu_set_t cpus;
	void **at;

	if (argc != 4)
		die("usage: loaded-latency KIB CPUS NODE");
	bytes = parse_number("KIB", argv[1], 64, 1 << 20) * 1024;
	cpus = parse_cpulist(argv[2]);
	node = parse_number("NODE", argv[3], 0, MAX_NODES - 1);
	for (int cpu = 0; cpu < CPU_SETSIZE && reader_count < MAX_THREADS; cpu++) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		if (first < 0)
			first = cpu;
		else
			readers[reader_count++].cpu = cpu;
	}
	if (!reader_count)
		die("it takes two CPUs at least");
	for (int i = 0; i < reader_count; i++) {
		readers[i].buffer = allocate_on(bytes, node);
		memset(readers[i].buffer, 1, bytes);
	}
	pthread_barrier_init(&bound, NULL, reader_count + 1);
	run_on_cpu(first);
	at = link_lines(allocate_on(bytes, node), bytes / LINE, 1);
	mark("numalab: begin");
	at = measure(at, IDLE);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		at = measure(at, steps[i]);
	mark("numalab: end");
	return 0;
}
