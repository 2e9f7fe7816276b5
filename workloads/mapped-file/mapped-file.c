// SPDX-License-Identifier: GPL-2.0-only
/*
 * mapped-file THREADS KIB SECONDS MAPPING WRITTEN FILE: whom does NUMA balancing take for one group?
 *
 * All threads of a process read the same file through one writable mapping, MAP_PRIVATE or
 * MAP_SHARED (MAPPING), a word of each page after the other and from the beginning again, each from
 * a page of its own on. Nothing else that they touch is shared and writable. WRITTEN percent of the
 * pages were written through the mapping, once, before they began.
 *
 * FILE is tmpfs, where nothing is ever flushed, or disk: a file without a name on the disk of the
 * job (ext4), flushed after the pages were written. A flush leaves entries clean and without write
 * permission (page_mkclean(), mm/rmap.c).
 *
 * Prints how many threads are in a NUMA group with another one when SECONDS are over
 * (numa_group_id in /proc/<pid>/sched, sched_show_numa() in kernel/sched/debug.c).
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "shared.h"

#define MAX_THREADS 256

struct worker {
	pthread_t thread;
	const volatile char *pages;
	size_t count, first;
	int64_t length;
	long group;
	uint64_t passes;
} __attribute__((aligned(4096))); /* so that no two threads write to the same page */

static struct worker workers[MAX_THREADS];
static pthread_barrier_t ready;

/* The NUMA group of the calling thread; 0: none. */
static long own_group(void)
{
	FILE *file = fopen("/proc/thread-self/sched", "re");
	char line[256];
	long group = -1;

	if (!file)
		die("this kernel tells no NUMA groups (CONFIG_SCHED_DEBUG): %s", strerror(errno));
	while (group < 0 && fgets(line, sizeof(line), file)) {
		const char *at = strstr(line, "numa_group_id=");

		if (at)
			group = strtol(at + strlen("numa_group_id="), NULL, 10);
	}
	fclose(file);
	if (group < 0)
		die("this kernel tells no NUMA groups (CONFIG_NUMA_BALANCING)");
	return group;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	const volatile char *pages = worker->pages;
	size_t count = worker->count, page = worker->first;
	int64_t end;
	uint64_t passes = 0;

	pthread_barrier_wait(&ready); /* the main thread marks the beginning between the two */
	pthread_barrier_wait(&ready);
	end = now() + worker->length;
	while (now() < end) {
		for (size_t i = 0; i < count; i++) {
			(void)pages[page * 4096];
			page = page + 1 < count ? page + 1 : 0;
		}
		passes++;
	}
	worker->passes = passes;
	worker->group = own_group();
	return NULL;
}

/* How many threads are in a group that another one is in. */
static int grouped(int threads)
{
	int found = 0;

	for (int i = 0; i < threads; i++)
		for (int j = 0; workers[i].group && j < threads; j++)
			if (i != j && workers[j].group == workers[i].group) {
				found++;
				break;
			}
	return found;
}

/* A file whose pages are there, mapped; the first pages are written through the mapping. */
static char *map_file(size_t count, int flags, size_t written, int on_disk)
{
	int file = on_disk ? open("/job", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) :
			     memfd_create("mapped-file", MFD_CLOEXEC);
	char page[4096], *pages;

	memset(page, 1, sizeof(page));
	for (size_t i = 0; i < count; i++)
		if (file < 0 || write(file, page, sizeof(page)) != sizeof(page))
			die("cannot make a file: %s", strerror(errno));
	pages = mmap(NULL, count * 4096, PROT_READ | PROT_WRITE, flags, file, 0);
	if (pages == MAP_FAILED)
		die("cannot map a file: %s", strerror(errno));
	for (size_t i = 0; i < written; i++)
		pages[i * 4096] = 2;
	if (on_disk && (msync(pages, count * 4096, MS_SYNC) || fsync(file)))
		die("cannot flush the file: %s", strerror(errno));
	return pages;
}

int main(int argc, char **argv)
{
	uint64_t passes = 0;
	int64_t length;
	int threads, flags, together, on_disk;
	size_t count;
	char *pages;

	if (argc != 7)
		die("usage: mapped-file THREADS KIB SECONDS MAPPING WRITTEN FILE");
	threads = parse_number("THREADS", argv[1], 2, MAX_THREADS);
	count = parse_number("KIB", argv[2], 64, 1 << 20) / 4;
	length = parse_seconds(argv[3]);
	if (strcmp(argv[4], "shared") && strcmp(argv[4], "private"))
		die("MAPPING has to be shared or private, not %s", argv[4]);
	flags = strcmp(argv[4], "shared") ? MAP_PRIVATE : MAP_SHARED;
	if (strcmp(argv[6], "tmpfs") && strcmp(argv[6], "disk"))
		die("FILE has to be tmpfs or disk, not %s", argv[6]);
	on_disk = !strcmp(argv[6], "disk");
	pages = map_file(count, flags, count * parse_number("WRITTEN", argv[5], 0, 100) / 100, on_disk);
	pthread_barrier_init(&ready, NULL, threads + 1);
	for (int i = 0; i < threads; i++) {
		workers[i].pages = pages;
		workers[i].count = count;
		workers[i].first = count * i / threads;
		workers[i].length = length;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("cannot start a thread");
	}
	pthread_barrier_wait(&ready);
	mark("numalab: begin");
	pthread_barrier_wait(&ready);
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	mark("numalab: end");
	for (int i = 0; i < threads; i++)
		passes += workers[i].passes;
	together = grouped(threads);
	printf("grouped %d of %d threads, %.2f %%\n", together, threads, 100.0 * together / threads);
	printf("passes %llu\n", (unsigned long long)passes);
	return 0;
}
