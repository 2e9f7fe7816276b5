// SPDX-License-Identifier: GPL-2.0-only
/*
 * wakeup-latency MESSENGERS WORKERS,... SLEEP_US WORK_US SECONDS: how soon does a woken task run?
 *
 * A model of schbench (Chris Mason): each of the MESSENGERS threads has WORKERS worker threads. A
 * worker asks its messenger for work and sleeps. The messenger wakes all that ask, and then sleeps
 * for SLEEP_US and up to a quarter more, because messages do not come at once. A woken worker
 * notes how long after the call that woke it it runs, and is busy for WORK_US. All this goes on
 * for SECONDS, for each number of workers in the list.
 *
 * Prints percentiles of the latency in microseconds (nearest rank), and the requests a second.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "shared.h"

#define MAX_MESSENGERS 64
#define MAX_WORKERS 256 /* of one messenger */
#define MAX_SAMPLES 65536 /* of one worker; it keeps the first ones */

enum { BLOCKED, RUNNING };

struct messenger;

struct worker {
	pthread_t thread;
	struct messenger *messenger;
	struct worker *next; /* in the messenger's list of those that ask */
	_Atomic(uint32_t) futex;
	int64_t woken_at; /* ns, written by the messenger before it wakes */
	uint32_t *samples; /* ns */
	unsigned int requests;
};

struct messenger {
	pthread_t thread;
	_Atomic(uint32_t) futex;
	_Atomic(struct worker *) asking;
	struct worker workers[MAX_WORKERS];
	uint64_t seed;
};

static struct messenger *messengers;
static int messenger_count, worker_count;
static int64_t sleep_time, work_time;
static atomic_int stop;

static void wait_on(_Atomic(uint32_t) *futex)
{
	while (atomic_load(futex) == BLOCKED)
		syscall(SYS_futex, futex, FUTEX_WAIT_PRIVATE, BLOCKED, NULL, NULL, 0);
}

static void post(_Atomic(uint32_t) *futex)
{
	if (atomic_exchange(futex, RUNNING) == BLOCKED)
		syscall(SYS_futex, futex, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void ask(struct worker *worker)
{
	struct messenger *messenger = worker->messenger;
	struct worker *first = atomic_load(&messenger->asking);

	atomic_store(&worker->futex, BLOCKED);
	do {
		worker->next = first;
	} while (!atomic_compare_exchange_weak(&messenger->asking, &first, worker));
	post(&messenger->futex);
	wait_on(&worker->futex);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	prctl(PR_SET_NAME, "worker");
	for (;;) {
		int64_t began;

		ask(worker);
		if (atomic_load(&stop))
			return NULL;
		began = now();
		if (worker->requests < MAX_SAMPLES)
			worker->samples[worker->requests] = began - worker->woken_at;
		worker->requests++;
		while (now() - began < work_time)
			__asm__ volatile(TURN);
	}
}

static void wake_all_that_ask(struct messenger *messenger)
{
	struct worker *worker = atomic_exchange(&messenger->asking, NULL);

	while (worker) {
		/* Once it runs it may ask again, which changes `next`. */
		struct worker *next = worker->next;

		worker->woken_at = now();
		post(&worker->futex);
		worker = next;
	}
}

static void *send_messages(void *argument)
{
	struct messenger *messenger = argument;

	prctl(PR_SET_NAME, "messenger");
	while (!atomic_load(&stop)) {
		atomic_store(&messenger->futex, BLOCKED);
		wake_all_that_ask(messenger);
		wait_on(&messenger->futex);
		if (sleep_time)
			sleep_ns(sleep_time + random_next(&messenger->seed) % (sleep_time / 4 + 1));
	}
	return NULL;
}

static void start(void)
{
	for (int m = 0; m < messenger_count; m++) {
		struct messenger *messenger = messengers + m;

		messenger->seed = m + 1;
		messenger->asking = NULL;
		if (pthread_create(&messenger->thread, NULL, send_messages, messenger))
			die("cannot start messenger %d", m);
		for (int w = 0; w < worker_count; w++) {
			struct worker *worker = messenger->workers + w;

			worker->messenger = messenger;
			worker->requests = 0;
			worker->samples = calloc(MAX_SAMPLES, sizeof(*worker->samples));
			if (!worker->samples || pthread_create(&worker->thread, NULL, work, worker))
				die("cannot start worker %d of messenger %d", w, m);
		}
	}
}

/* Whoever still waits, or is about to, is woken until it has ended. */
static void join(pthread_t thread, _Atomic(uint32_t) *futex)
{
	while (pthread_tryjoin_np(thread, NULL)) {
		post(futex);
		sleep_ns(1000000);
	}
}

static void end(void)
{
	atomic_store(&stop, 1);
	for (int m = 0; m < messenger_count; m++) {
		join(messengers[m].thread, &messengers[m].futex);
		for (int w = 0; w < worker_count; w++)
			join(messengers[m].workers[w].thread, &messengers[m].workers[w].futex);
	}
	atomic_store(&stop, 0);
}

static int by_size(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	return (a > b) - (a < b);
}

/* Takes the workers' samples into one sorted array, and frees them. */
static size_t collect(uint32_t **all, unsigned long *requests)
{
	size_t count = 0;

	*requests = 0;
	*all = NULL;
	for (int m = 0; m < messenger_count; m++)
		for (int w = 0; w < worker_count; w++) {
			struct worker *worker = messengers[m].workers + w;
			size_t kept = worker->requests < MAX_SAMPLES ? worker->requests : MAX_SAMPLES;

			*requests += worker->requests;
			if (kept) {
				*all = realloc(*all, (count + kept) * sizeof(**all));
				if (!*all)
					die("no memory");
				memcpy(*all + count, worker->samples, kept * sizeof(**all));
				count += kept;
			}
			free(worker->samples);
		}
	if (count)
		qsort(*all, count, sizeof(**all), by_size);
	return count;
}

static void print_results(double seconds)
{
	static const double percentiles[] = { 50, 75, 90, 95, 99, 99.5, 99.9 };
	unsigned long requests;
	uint32_t *all;
	size_t count = collect(&all, &requests);

	if (!count)
		die("no worker was woken within %g seconds", seconds);
	for (size_t i = 0; i < sizeof(percentiles) / sizeof(*percentiles); i++) {
		size_t rank = percentiles[i] / 100 * count + 0.999999;

		printf("workers %d p%g %.1f us of %zu\n", worker_count, percentiles[i],
		       all[(rank ? rank : 1) - 1] / 1e3, count);
	}
	printf("workers %d requests %lu per_second %.1f\n", worker_count, requests,
	       requests / seconds);
	free(all);
}

int main(int argc, char **argv)
{
	int64_t length;

	if (argc != 6)
		die("usage: wakeup-latency MESSENGERS WORKERS,... SLEEP_US WORK_US SECONDS");
	messenger_count = parse_number("the number of messengers", argv[1], 1, MAX_MESSENGERS);
	sleep_time = parse_number("SLEEP_US", argv[3], 0, 10000000) * 1000;
	work_time = parse_number("WORK_US", argv[4], 0, 10000000) * 1000;
	length = parse_seconds(argv[5]);
	messengers = calloc(messenger_count, sizeof(*messengers));
	if (!messengers)
		die("no memory");
	mark("numalab: begin");
	for (char *word = strtok(argv[2], ","); word; word = strtok(NULL, ",")) {
		int64_t began;

		worker_count = parse_number("the number of workers", word, 1, MAX_WORKERS);
		began = now();
		start();
		sleep_ns(length);
		end();
		print_results((now() - began) / 1e9);
	}
	mark("numalab: end");
	return 0;
}
