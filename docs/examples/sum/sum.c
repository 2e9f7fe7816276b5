/*
 * Threads that add numbers for some seconds, and the rate of all of them.
 *
 *   sum THREADS SECONDS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 256, BATCH = 100000 };

static double end_s;
static uint64_t batches[MOST];

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *add(void *mine)
{
	uint64_t *done = mine;
	volatile uint64_t sum = 0;

	while (now_s() < end_s) {
		for (uint64_t number = 0; number < BATCH; number++)
			sum += number;
		*done += 1;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST];
	int count = argc == 3 ? atoi(argv[1]) : 0;
	double seconds = argc == 3 ? atof(argv[2]) : 0;
	uint64_t all = 0;

	if (count < 1 || count > MOST || seconds <= 0) {
		fprintf(stderr, "usage: sum THREADS SECONDS, with 1 to %d threads\n", MOST);
		return 2;
	}
	end_s = now_s() + seconds;
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, add, &batches[i]) != 0)
			return 1;
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		all += batches[i];
	}
	printf("rate %.2f per second\n", (double)all / seconds);
	return 0;
}
