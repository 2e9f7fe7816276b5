// SPDX-License-Identifier: GPL-2.0-only
/*
 * wrong-node THREADS KIB SECONDS TOUCH_CPUS RUN_CPUS WORK: does memory follow its threads?
 *
 * Each thread has KIB of its own, that it touches first on TOUCH_CPUS. When all have, every thread
 * is allowed on RUN_CPUS only, and for SECONDS follows pointers through its memory in random order,
 * one load after the other and WORK rounds of an empty loop, two instructions each, after every
 * load. Where the memory stays on its first node, each load goes that far.
 *
 * Prints how many loads all threads did a second, in each SLICES'th of the time and in all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "shared.h"

#define MAX_THREADS 256
#define SLICES 10
#define BATCH 1024 /* loads from one look at the clock to the next */

struct worker {
	pthread_t thread;
	uint64_t loads[SLICES];
};

static struct worker workers[MAX_THREADS];
static cpu_set_t touch_cpus, run_cpus;
static pthread_barrier_t touched;
static size_t bytes;
static int64_t began, length;
static long rounds;

static void *work(void *argument)
{
	struct worker *worker = argument;
	char *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void **at;

	if (buffer == MAP_FAILED)
		die("no memory");
	run_on(&touch_cpus);
	at = link_lines(buffer, bytes / LINE, 1 + (worker - workers));
	pthread_barrier_wait(&touched);
	run_on(&run_cpus);
	pthread_barrier_wait(&touched); /* the main thread marks the time between the two */
	pthread_barrier_wait(&touched);
	for (;;) {
		int64_t slice = (now() - began) * SLICES / length;

		if (slice >= SLICES)
			break;
		for (int i = 0; i < BATCH; i++) {
			at = *(void *volatile *)at;
			for (long round = rounds; round; round--)
				asm volatile("" : "+r"(round));
		}
		worker->loads[slice] += BATCH;
	}
	return at;
}

int main(int argc, char **argv)
{
	uint64_t all = 0;
	int threads;

	if (argc != 7)
		die("usage: wrong-node THREADS KIB SECONDS TOUCH_CPUS RUN_CPUS WORK");
	threads = parse_number("THREADS", argv[1], 1, MAX_THREADS);
	bytes = parse_number("KIB", argv[2], 64, 1 << 20) * 1024;
	length = parse_seconds(argv[3]);
	touch_cpus = parse_cpulist(argv[4]);
	run_cpus = parse_cpulist(argv[5]);
	rounds = parse_number("WORK", argv[6], 0, 1000000);
	pthread_barrier_init(&touched, NULL, threads + 1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("cannot start a thread");
	pthread_barrier_wait(&touched);
	pthread_barrier_wait(&touched);
	mark("numalab: begin");
	began = now();
	pthread_barrier_wait(&touched);
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	mark("numalab: end");
	for (int slice = 0; slice < SLICES; slice++) {
		uint64_t loads = 0;

		for (int i = 0; i < threads; i++)
			loads += workers[i].loads[slice];
		printf("part %d loads_per_second %.0f\n", slice + 1,
		       loads / (length / 1e9 / SLICES));
		all += loads;
	}
	printf("total loads %llu per_second %.0f\n", (unsigned long long)all, all / (length / 1e9));
	return 0;
}
