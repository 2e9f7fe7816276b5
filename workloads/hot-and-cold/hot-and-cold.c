// SPDX-License-Identifier: GPL-2.0-only
/*
 * hot-and-cold COLD_MIB THREADS KIB SECONDS CPUS WORK: does hot memory come up to the fast nodes?
 *
 * Touches COLD_MIB once, so that the nodes with CPUs are full, and lets it lie. Then each of THREADS
 * touches KIB of its own, for which only slower nodes have room, and for SECONDS follows pointers
 * through it in random order, one load after the other and WORK rounds of an empty loop, two
 * instructions each, after every load. All run on CPUS. The hot memory is in base pages, each of
 * which moves by itself.
 *
 * Prints for each SLICES'th of the time the share of the hot pages that lay on nodes with CPUs at
 * its end (move_pages(2)), how many loads all threads did a second in it, and in all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "shared.h"

#define PAGE 4096
#define MAX_THREADS 256
#define SLICES 12
#define BATCH 1024 /* loads from one look at the clock to the next */

struct worker {
	pthread_t thread;
	char *hot;
	uint64_t loads[SLICES];
};

static struct worker workers[MAX_THREADS];
static pthread_barrier_t touched;
static size_t bytes;
static int threads;
static int64_t began, length;
static long rounds;

static char *allocate(size_t size)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("no memory");
	return at;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	void **at;

	worker->hot = allocate(bytes);
	if (madvise(worker->hot, bytes, MADV_NOHUGEPAGE) && errno != EINVAL)
		die("cannot ask for base pages: %s", strerror(errno));
	at = link_lines(worker->hot, bytes / LINE, 1 + (worker - workers));
	pthread_barrier_wait(&touched);
	pthread_barrier_wait(&touched); /* the main thread marks the time between the two */
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

/* The nodes with CPUs; the kernel writes them as it writes CPUs. */
static cpu_set_t fast_nodes(void)
{
	char text[1024];
	int file = open("/sys/devices/system/node/has_cpu", O_RDONLY | O_CLOEXEC);
	ssize_t got = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

	if (got < 0)
		die("cannot read which nodes have CPUs: %s", strerror(errno));
	close(file);
	text[got] = 0;
	text[strcspn(text, "\n")] = 0;
	return parse_cpulist(text);
}

/* The share in percent of the hot pages that lie on these nodes. */
static double share_on(const cpu_set_t *nodes)
{
	size_t pages = bytes / PAGE, found = 0;
	void **at = malloc(pages * sizeof(*at));
	int *status = malloc(pages * sizeof(*status));

	if (!at || !status)
		die("no memory");
	for (int i = 0; i < threads; i++) {
		for (size_t page = 0; page < pages; page++)
			at[page] = workers[i].hot + page * PAGE;
		if (syscall(SYS_move_pages, 0, pages, at, NULL, status, 0))
			die("cannot ask where pages lie: %s", strerror(errno));
		for (size_t page = 0; page < pages; page++)
			found += status[page] >= 0 && CPU_ISSET(status[page], nodes);
	}
	free(at);
	free(status);
	return 100.0 * found / (pages * threads);
}

int main(int argc, char **argv)
{
	cpu_set_t cpus, everywhere, nodes = fast_nodes();
	double shares[SLICES];
	uint64_t all = 0;
	size_t cold;
	char *at;

	if (argc != 7)
		die("usage: hot-and-cold COLD_MIB THREADS KIB SECONDS CPUS WORK");
	cold = parse_number("COLD_MIB", argv[1], 0, 1 << 24) << 20;
	threads = parse_number("THREADS", argv[2], 1, MAX_THREADS);
	bytes = parse_number("KIB", argv[3], 64, 1 << 20) * 1024;
	length = parse_seconds(argv[4]);
	cpus = parse_cpulist(argv[5]);
	rounds = parse_number("WORK", argv[6], 0, 1000000);
	if (sched_getaffinity(0, sizeof(everywhere), &everywhere) ||
	    sched_setaffinity(0, sizeof(cpus), &cpus))
		die("cannot run on these CPUs: %s", strerror(errno));
	if (cold) {
		at = allocate(cold);
		for (size_t page = 0; page < cold; page += PAGE)
			at[page] = 1;
	}
	pthread_barrier_init(&touched, NULL, threads + 1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("cannot start a thread");
	pthread_barrier_wait(&touched);
	/* This thread only looks from now on; let it find a CPU that is idle. */
	sched_setaffinity(0, sizeof(everywhere), &everywhere);
	printf("start hot_fast_share %.1f\n", share_on(&nodes));
	mark("numalab: begin");
	began = now();
	pthread_barrier_wait(&touched);
	for (int slice = 0; slice < SLICES; slice++) {
		int64_t left = began + length * (slice + 1) / SLICES - now();

		if (left > 0)
			sleep_ns(left);
		shares[slice] = share_on(&nodes);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	mark("numalab: end");
	for (int slice = 0; slice < SLICES; slice++) {
		uint64_t loads = 0;

		for (int i = 0; i < threads; i++)
			loads += workers[i].loads[slice];
		printf("part %d hot_fast_share %.1f\n", slice + 1, shares[slice]);
		printf("part %d loads_per_second %.0f\n", slice + 1,
		       loads / (length / 1e9 / SLICES));
		all += loads;
	}
	printf("total loads %llu per_second %.0f\n", (unsigned long long)all, all / (length / 1e9));
	return 0;
}
