// SPDX-License-Identifier: GPL-2.0-only
/*
 * stream THREADS MIB REPETITIONS MOVED: memory bandwidth as STREAM (John McCalpin) measures it.
 *
 * Three arrays of doubles with MIB in all. Each thread has a part of each array, which it is the
 * first to write, as with OpenMP's static schedule; nothing is bound to a CPU or a node. With MOVED
 * above 0 thread i writes its part on CPU i, is moved to CPU i + MOVED and from there on may run
 * anywhere: a thread that migrates after first touch. Four loops, REPETITIONS times: copy c = a, scale b = 3c, add c = a + b, triad a = b + 3c. The rate of
 * a loop is that of its fastest repetition after the first, in MB (10^6 bytes) a second, counted
 * as STREAM counts. The arrays are checked at the end.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "shared.h"

#define MAX_THREADS 1024
#define SCALAR 3.0

enum { COPY, SCALE, ADD, TRIAD, LOOPS };
static const char *const names[LOOPS] = { "copy", "scale", "add", "triad" };
static const int arrays_of[LOOPS] = { 2, 2, 3, 3 };

static double *a, *b, *c;
static size_t length;
static int thread_count, repetitions;
static struct migration migration;
static pthread_barrier_t barrier;
static double best[LOOPS], sum[LOOPS];

static double *allocate(void)
{
	double *array = mmap(NULL, length * sizeof(double), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (array == MAP_FAILED)
		die("no memory");
	return array;
}

static void run_loop(int loop, size_t from, size_t to)
{
	switch (loop) {
	case COPY:
		for (size_t i = from; i < to; i++)
			c[i] = a[i];
		break;
	case SCALE:
		for (size_t i = from; i < to; i++)
			b[i] = SCALAR * c[i];
		break;
	case ADD:
		for (size_t i = from; i < to; i++)
			c[i] = a[i] + b[i];
		break;
	case TRIAD:
		for (size_t i = from; i < to; i++)
			a[i] = b[i] + SCALAR * c[i];
		break;
	}
}

static void note(int repetition, int loop, double seconds)
{
	/* The first one is not counted, as in STREAM: it warms up. */
	if (repetition == 0)
		return;
	sum[loop] += seconds;
	if (!best[loop] || seconds < best[loop])
		best[loop] = seconds;
}

static void *run(void *argument)
{
	size_t number = (intptr_t)argument;
	size_t from = length * number / thread_count, to = length * (number + 1) / thread_count;

	prctl(PR_SET_NAME, "stream");
	before_first_touch(&migration, number);
	for (size_t i = from; i < to; i++) {
		a[i] = 1;
		b[i] = 2;
		c[i] = 0;
	}
	after_first_touch(&migration, number);
	for (int repetition = 0; repetition < repetitions; repetition++)
		for (int loop = 0; loop < LOOPS; loop++) {
			int64_t began;

			pthread_barrier_wait(&barrier);
			began = now();
			run_loop(loop, from, to);
			pthread_barrier_wait(&barrier);
			if (number == 0)
				note(repetition, loop, (now() - began) / 1e9);
		}
	return NULL;
}

/* What each element must be after all repetitions. */
static void check(void)
{
	double one = 1, two = 2, three = 0;

	for (int i = 0; i < repetitions; i++) {
		three = one;
		two = SCALAR * three;
		three = one + two;
		one = two + SCALAR * three;
	}
	for (size_t i = 0; i < length; i++)
		if (fabs(a[i] / one - 1) > 1e-13 || fabs(b[i] / two - 1) > 1e-13 ||
		    fabs(c[i] / three - 1) > 1e-13)
			die("element %zu is wrong", i);
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS];
	long mib;

	if (argc != 5)
		die("usage: stream THREADS MIB REPETITIONS MOVED");
	thread_count = parse_number("the number of threads", argv[1], 1, MAX_THREADS);
	mib = parse_number("MIB", argv[2], 1, 1 << 20);
	repetitions = parse_number("the number of repetitions", argv[3], 2, 1000);
	migration = parse_migration(argv[4]);
	length = mib * 1048576 / 3 / sizeof(double);
	a = allocate();
	b = allocate();
	c = allocate();
	pthread_barrier_init(&barrier, NULL, thread_count);
	mark("numalab: begin");
	for (long i = 0; i < thread_count; i++)
		if (pthread_create(threads + i, NULL, run, (void *)(intptr_t)i))
			die("cannot start thread %ld", i);
	for (int i = 0; i < thread_count; i++)
		pthread_join(threads[i], NULL);
	mark("numalab: end");
	check();
	for (int loop = 0; loop < LOOPS; loop++)
		printf("%s best_rate %.1f MB/s average_time %.6f s\n", names[loop],
		       arrays_of[loop] * length * sizeof(double) / best[loop] / 1e6,
		       sum[loop] / (repetitions - 1));
	return 0;
}
