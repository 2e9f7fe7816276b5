/*
 * Two usual mistakes, which `numalab boot --mode timed --locality barriers` names:
 *
 *   counters  threads count in words of one line (false sharing)
 *   table     a thread initialises what a thread of another node reads
 *
 * `right` and `own` are neither: a line for each thread, and memory that each thread initialises.
 *
 *   gcc -O2 -pthread -o misplaced misplaced.c
 *   numalab boot ring-4 --mode timed --locality barriers -- ./misplaced
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, LINE = 64, PAGE = 4096, BYTES = 1 << 20, STEP = 65 * LINE, ROUNDS = 4000 };

static long counters[THREADS] __attribute__((aligned(LINE)));
static struct {
	long count;
	char rest[LINE - sizeof(long)];
} right[THREADS] __attribute__((aligned(LINE)));
static char table[BYTES] __attribute__((aligned(PAGE)));
static pthread_barrier_t barrier;

static void run_on(size_t cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

static void *run(void *argument)
{
	size_t number = (size_t)argument;
	volatile char *own = malloc(BYTES), sum = 0;

	run_on(2 * number); /* on ring-4, each on a node of its own */
	if (!own)
		exit(1);
	memset((char *)own, 1, BYTES);
	pthread_barrier_wait(&barrier);
	for (size_t round = 0; round < ROUNDS; round++) {
		((volatile long *)counters)[number]++;
		*(volatile long *)&right[number].count += 1;
		own[round * STEP % BYTES]++;
		if (number == THREADS - 1)
			sum += ((volatile char *)table)[round * STEP % BYTES];
	}
	pthread_barrier_wait(&barrier);
	free((char *)own);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	run_on(0);
	memset(table, 1, sizeof(table));
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (size_t number = 0; number < THREADS; number++)
		if (pthread_create(&threads[number], NULL, run, (void *)number))
			return 1;
	for (size_t number = 0; number < THREADS; number++)
		pthread_join(threads[number], NULL);
	puts("done");
	return 0;
}
