// SPDX-License-Identifier: GPL-2.0-only
/*
 * warehouse INSTANCES THREADS OWN_KIB SHARED_KIB SECONDS BURST PAUSE_US [HELPERS COLLECT_MS]:
 * transactions on warehouses.
 *
 * A model of what SPECjbb2005 does to a scheduler, without Java: each thread serves one warehouse
 * of OWN_KIB, nearly all of a transaction's accesses go there, and a few go to the SHARED_KIB that
 * all warehouses of an instance have in common (the company and its items). Now and then a
 * transaction books into totals under the company's lock. SPECjbb2005 has no think time; with a
 * BURST above 0 a thread sleeps after so many transactions, half to one and a half times PAUSE_US,
 * so that at any moment some threads of a machine that is busy on average are asleep. As there, the
 * main thread loads all warehouses before the measurement begins, so that their pages lie where it
 * ran and have to find their threads. An instance is a process of its own, as a JVM is.
 *
 * With HELPERS above 0 each instance collects garbage as a JVM's parallel collector does: every
 * COLLECT_MS all transactions stop, so many helper threads read all warehouses and what they share,
 * each a part of it, and then the transactions go on.
 *
 * What it does not model: allocation itself, and the JIT compiler's threads.
 *
 * Prints transactions and transactions a second, for each instance and for all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "numalab.h"

#define RECORD 64 /* bytes: what one access touches, a cache line */
#define OWN_ACCESSES 30 /* records of the own warehouse that a transaction changes */
#define SHARED_ACCESSES 2 /* records of the company that it reads */
#define BOOKING 16 /* every 16th transaction takes the company's lock */
#define MAX_INSTANCES 64
#define MAX_THREADS 1024

struct record {
	uint64_t value;
	char rest[RECORD - sizeof(uint64_t)];
};

/* What parent and instances share. */
struct control {
	atomic_int ready; /* instances that have loaded their warehouses */
	atomic_int go, stop;
	int64_t began; /* ns; the parent writes them */
	uint64_t transactions[MAX_INSTANCES];
};

struct warehouse {
	pthread_t thread;
	struct record *own;
	uint64_t seed, transactions;
	int number;
};

static struct control *control;
static struct record *company;
static size_t own_records, shared_records;
static uint64_t burst;
static int64_t pause_ns;
static pthread_mutex_t company_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t company_total;

/* Garbage collection: `world` guards what follows. */
static struct {
	pthread_mutex_t world;
	pthread_cond_t changed;
	atomic_int stopping;
	int serving, parked, round, to_do; /* threads, threads, collections begun, helpers at work */
	volatile uint64_t seen;
} gc = { .world = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
static struct warehouse *all_warehouses;
static int helpers, all_threads;
static int64_t collect_ns;

static struct record *load(size_t records, uint64_t *seed)
{
	struct record *data = mmap(NULL, records * RECORD, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (data == MAP_FAILED)
		die("no memory for %zu KiB", records * RECORD / 1024);
	for (size_t i = 0; i < records; i++)
		data[i].value = random_next(seed);
	return data;
}

static void transact(struct warehouse *warehouse)
{
	uint64_t sum = 0;

	for (int i = 0; i < SHARED_ACCESSES; i++)
		sum += company[random_next(&warehouse->seed) % shared_records].value;
	for (int i = 0; i < OWN_ACCESSES; i++) {
		struct record *record =
			warehouse->own + random_next(&warehouse->seed) % own_records;

		sum += record->value;
		record->value = sum;
	}
	if (++warehouse->transactions % BOOKING == 0) {
		pthread_mutex_lock(&company_lock);
		company_total += sum;
		pthread_mutex_unlock(&company_lock);
	}
}

static void think(struct warehouse *warehouse)
{
	if (burst && warehouse->transactions % burst == 0)
		sleep_ns(pause_ns / 2 + random_next(&warehouse->seed) % (pause_ns + 1));
}

/* Stand still while garbage is collected. */
static void park(void)
{
	pthread_mutex_lock(&gc.world);
	gc.parked++;
	pthread_cond_broadcast(&gc.changed);
	while (gc.stopping)
		pthread_cond_wait(&gc.changed, &gc.world);
	gc.parked--;
	pthread_mutex_unlock(&gc.world);
}

static uint64_t read_part(const struct record *data, size_t records, int part)
{
	uint64_t sum = 0;

	for (size_t i = records * part / helpers; i < records * (part + 1) / helpers; i++)
		sum += data[i].value;
	return sum;
}

static void *help(void *argument)
{
	int part = (int)(intptr_t)argument, done = 0;

	prctl(PR_SET_NAME, "collector");
	for (;;) {
		uint64_t sum;

		pthread_mutex_lock(&gc.world);
		while (gc.round == done)
			pthread_cond_wait(&gc.changed, &gc.world);
		done = gc.round;
		pthread_mutex_unlock(&gc.world);
		sum = read_part(company, shared_records, part);
		for (int i = 0; i < all_threads; i++)
			sum += read_part(all_warehouses[i].own, own_records, part);
		pthread_mutex_lock(&gc.world);
		gc.seen += sum;
		gc.to_do--;
		pthread_cond_broadcast(&gc.changed);
		pthread_mutex_unlock(&gc.world);
	}
	return NULL;
}

static void collect(void)
{
	pthread_mutex_lock(&gc.world);
	gc.stopping = 1;
	while (gc.parked < gc.serving)
		pthread_cond_wait(&gc.changed, &gc.world);
	gc.to_do = helpers;
	gc.round++;
	pthread_cond_broadcast(&gc.changed);
	while (gc.to_do)
		pthread_cond_wait(&gc.changed, &gc.world);
	gc.stopping = 0;
	pthread_cond_broadcast(&gc.changed);
	pthread_mutex_unlock(&gc.world);
}

/* The instance's main thread decides when. */
static void collect_until_the_end(void)
{
	pthread_t thread;

	for (int i = 0; i < helpers; i++)
		if (pthread_create(&thread, NULL, help, (void *)(intptr_t)i))
			die("cannot start helper %d", i);
	while (helpers && !atomic_load(&control->stop)) {
		sleep_ns(collect_ns);
		collect();
	}
}

static void *serve(void *argument)
{
	struct warehouse *warehouse = argument;
	char name[16];

	snprintf(name, sizeof(name), "warehouse %d", warehouse->number);
	prctl(PR_SET_NAME, name);
	while (!atomic_load_explicit(&control->stop, memory_order_relaxed)) {
		transact(warehouse);
		think(warehouse);
		if (atomic_load_explicit(&gc.stopping, memory_order_relaxed))
			park();
	}
	pthread_mutex_lock(&gc.world);
	gc.serving--;
	pthread_cond_broadcast(&gc.changed);
	pthread_mutex_unlock(&gc.world);
	return NULL;
}

static void run_instance(int instance, int threads)
{
	static struct warehouse warehouses[MAX_THREADS];
	uint64_t seed = 1 + instance;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "instance");
	company = load(shared_records, &seed);
	for (int i = 0; i < threads; i++) {
		warehouses[i].own = load(own_records, &seed);
		warehouses[i].seed = random_next(&seed);
		warehouses[i].number = i;
	}
	atomic_fetch_add(&control->ready, 1);
	while (!atomic_load(&control->go))
		sleep_ns(1000000);
	all_warehouses = warehouses;
	all_threads = gc.serving = threads;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&warehouses[i].thread, NULL, serve, warehouses + i))
			die("cannot start thread %d", i);
	collect_until_the_end();
	for (int i = 0; i < threads; i++) {
		pthread_join(warehouses[i].thread, NULL);
		control->transactions[instance] += warehouses[i].transactions;
	}
	exit(0);
}

/* Returns whether an instance has ended, which before `stop` it does only when it failed. */
static int one_ended(void)
{
	int status;

	return waitpid(-1, &status, WNOHANG) > 0;
}

static void wait_until_loaded(int instances)
{
	while (atomic_load(&control->ready) < instances) {
		if (one_ended())
			die("an instance failed while it loaded its warehouses");
		sleep_ns(2000000);
	}
}

static void print_results(int instances, int threads, double seconds)
{
	uint64_t total = 0;

	for (int i = 0; i < instances; i++) {
		uint64_t done = control->transactions[i];

		printf("instance %d transactions %llu per_second %.1f\n", i,
		       (unsigned long long)done, done / seconds);
		total += done;
	}
	printf("total instances %d threads %d seconds %.3f transactions %llu per_second %.1f\n",
	       instances, instances * threads, seconds, (unsigned long long)total,
	       total / seconds);
}

int main(int argc, char **argv)
{
	int instances, threads, status, failed = 0;
	int64_t length;
	double seconds;

	if (argc != 8 && argc != 10)
		die("usage: warehouse INSTANCES THREADS OWN_KIB SHARED_KIB SECONDS BURST PAUSE_US"
		    " [HELPERS COLLECT_MS]");
	instances = parse_number("the number of instances", argv[1], 1, MAX_INSTANCES);
	threads = parse_number("the number of threads", argv[2], 1, MAX_THREADS);
	own_records = parse_number("OWN_KIB", argv[3], 4, 1 << 24) * 1024 / RECORD;
	shared_records = parse_number("SHARED_KIB", argv[4], 4, 1 << 24) * 1024 / RECORD;
	length = parse_seconds(argv[5]);
	burst = parse_number("BURST", argv[6], 0, 1000000000);
	pause_ns = parse_number("PAUSE_US", argv[7], 0, 10000000) * 1000;
	if (argc == 10) {
		helpers = parse_number("HELPERS", argv[8], 0, MAX_THREADS);
		collect_ns = parse_number("COLLECT_MS", argv[9], 1, 86400000) * 1000000;
	}
	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (control == MAP_FAILED)
		die("no memory");
	for (int i = 0; i < instances; i++) {
		pid_t child = fork();

		if (child < 0)
			die("cannot start instance %d: %s", i, strerror(errno));
		if (child == 0)
			run_instance(i, threads);
	}
	wait_until_loaded(instances);
	mark("numalab: begin");
	control->began = now();
	atomic_store(&control->go, 1);
	sleep_ns(length);
	seconds = (now() - control->began) / 1e9;
	atomic_store(&control->stop, 1);
	mark("numalab: end");
	for (int i = 0; i < instances; i++)
		if (wait(&status) < 0 || status)
			failed = 1;
	if (failed)
		die("an instance failed");
	print_results(instances, threads, seconds);
	return 0;
}
