/*
 * What one pass over memory costs, on the CPUs and the node that numactl chooses.
 *
 *   numactl -C 0-7 -m 1 passes MIB
 *
 * chase   the first CPU follows pointers in random order, once: right after it wrote 8 MiB, whose
 *         lines the caches must write back, and after it read them; ns for each load
 * memset, stosb, memcpy
 *         by the first CPU, MB/s of the bytes that are written
 * read    all CPUs read MIB each, one word of a line, MB/s of the lines
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, MOST = 256, FLUSH = 8 << 20 };

static size_t bytes;
static pthread_barrier_t barrier;
static volatile uint64_t sink;

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static char *allocate(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	memset(memory, 1, size);
	return memory;
}

static void read_lines(const char *memory, size_t size)
{
	for (size_t i = 0; i < size; i += 8 * LINE) {
#define LOAD(n) sink = *(const volatile uint64_t *)(memory + i + (n) * LINE);
		LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7)
	}
}

/* Links all lines to one circle in random order (Sattolo's algorithm). */
static void link_lines(char *memory)
{
	size_t lines = bytes / LINE;
	size_t *order = malloc(lines * sizeof(*order));

	if (!order)
		exit(1);
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	srandom(1);
	for (size_t i = lines - 1; i > 0; i--) {
		size_t other = (size_t)random() % i, kept = order[i];

		order[i] = order[other];
		order[other] = kept;
	}
	for (size_t i = 0; i < lines; i++)
		*(void **)(memory + order[i] * LINE) = memory + order[(i + 1) % lines] * LINE;
	free(order);
}

static double chase(char *memory, char *flush, int write)
{
	void **at = (void **)memory;
	double began;

	link_lines(memory);
	if (write)
		memset(flush, 2, FLUSH);
	else
		read_lines(flush, FLUSH);
	began = now_ns();
	for (size_t i = 0; i < bytes / LINE; i += 16) {
#define NEXT at = (void **)*at;
		NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT
	}
	sink = (uint64_t)at;
	return (now_ns() - began) / (double)(bytes / LINE);
}

static void stosb(char *to, size_t size)
{
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(3) : "memory");
}

static double rate(double began)
{
	return (double)bytes * 1e3 / (now_ns() - began);
}

struct reader {
	pthread_t thread;
	int cpu;
	double began, ended;
};

static void *reader(void *argument)
{
	struct reader *me = argument;
	cpu_set_t mine;
	char *memory;

	CPU_ZERO(&mine);
	CPU_SET((size_t)me->cpu, &mine);
	sched_setaffinity(0, sizeof(mine), &mine);
	memory = allocate(bytes);
	pthread_barrier_wait(&barrier);
	me->began = now_ns();
	read_lines(memory, bytes);
	me->ended = now_ns();
	return NULL;
}

/* From when the first thread begins to when the last one ends. */
static double read_all(const int *cpus, int count)
{
	struct reader readers[MOST];
	double first = 0, last = 0;

	pthread_barrier_init(&barrier, NULL, (unsigned)count);
	for (int i = 0; i < count; i++) {
		readers[i].cpu = cpus[i];
		if (pthread_create(&readers[i].thread, NULL, reader, &readers[i]))
			exit(1);
	}
	for (int i = 0; i < count; i++) {
		pthread_join(readers[i].thread, NULL);
		first = i && first < readers[i].began ? first : readers[i].began;
		last = last > readers[i].ended ? last : readers[i].ended;
	}
	return (double)bytes * count * 1e3 / (last - first);
}

int main(int argc, char **argv)
{
	int count = 0, cpus[MOST];
	char *memory, *flush;
	cpu_set_t may;
	double began;

	if (argc != 2 || atoi(argv[1]) < 1) {
		fputs("usage: passes MIB\n", stderr);
		return 2;
	}
	bytes = (size_t)atoi(argv[1]) << 20;
	sched_getaffinity(0, sizeof(may), &may);
	for (int cpu = 0; cpu < CPU_SETSIZE && count < MOST; cpu++)
		if (CPU_ISSET((size_t)cpu, &may))
			cpus[count++] = cpu;
	printf("read %8.0f MB/s by %d CPUs\n", read_all(cpus, count), count);
	CPU_ZERO(&may);
	CPU_SET((size_t)cpus[0], &may);
	sched_setaffinity(0, sizeof(may), &may);
	memory = allocate(bytes);
	flush = allocate(FLUSH);
	for (int pass = 0; pass < 3; pass++) {
		printf("chase %7.1f ns after writing,", chase(memory, flush, 1));
		printf(" %7.1f ns after reading\n", chase(memory, flush, 0));
	}
	began = now_ns();
	memset(memory, 4, bytes);
	printf("memset %6.0f MB/s\n", rate(began));
	began = now_ns();
	stosb(memory, bytes);
	printf("stosb %7.0f MB/s\n", rate(began));
	began = now_ns();
	memcpy(flush, memory, bytes < FLUSH ? bytes : FLUSH);
	printf("memcpy %6.0f MB/s\n", rate(began));
	return 0;
}
