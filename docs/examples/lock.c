/*
 * Acquisitions of a lock in a microsecond, by 1, 2, 4, ... threads.
 *
 *   lock KIND...
 *
 * KIND is spin, ticket, mcs or mutex; or instead of a lock
 *   add    an atomic addition
 *   share  a store to a word of its own in a line that all threads share
 *   pass   a flag that goes from thread to thread
 *
 * Thread n runs on the n-th CPU that the program may use, so that the threads fill one node after the
 * other. `taskset -c 0,4 lock pass` measures two CPUs.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, MOST = 256, WARM_UP_US = 1000, WINDOW_US = 1000, WINDOWS = 5 };
#define OWN_LINE _Alignas(LINE)

struct waiter {
	OWN_LINE _Atomic(struct waiter *) next;
	atomic_bool waits;
};

static struct {
	OWN_LINE atomic_bool taken;
	OWN_LINE atomic_uint next;
	OWN_LINE atomic_uint served;
	OWN_LINE _Atomic(struct waiter *) last;
	OWN_LINE pthread_mutex_t mutex;
	OWN_LINE atomic_ulong sum;
	OWN_LINE atomic_ulong words[LINE / sizeof(long)];
	OWN_LINE atomic_int turn;
	OWN_LINE unsigned long guarded; /* what the lock protects */
	OWN_LINE atomic_int ready;
	OWN_LINE atomic_bool stop;
} shared = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct thread {
	OWN_LINE atomic_ulong done;
	struct waiter waiter;
	void (*once)(struct thread *);
	int number, count, cpu;
	pthread_t id;
};

static struct thread threads[MOST];

static void spin(struct thread *me)
{
	(void)me;
	while (atomic_exchange_explicit(&shared.taken, true, memory_order_acquire))
		__builtin_ia32_pause();
	shared.guarded++;
	atomic_store_explicit(&shared.taken, false, memory_order_release);
}

static void ticket(struct thread *me)
{
	unsigned mine = atomic_fetch_add(&shared.next, 1);

	(void)me;
	while (atomic_load_explicit(&shared.served, memory_order_acquire) != mine)
		__builtin_ia32_pause();
	shared.guarded++;
	atomic_store_explicit(&shared.served, mine + 1, memory_order_release);
}

/* Mellor-Crummey and Scott, "Algorithms for scalable synchronization", ACM TOCS 9(1), 1991. */
static void mcs(struct thread *me)
{
	struct waiter *waiter = &me->waiter, *before, *expected = waiter;

	atomic_store_explicit(&waiter->next, NULL, memory_order_relaxed);
	atomic_store_explicit(&waiter->waits, true, memory_order_relaxed);
	before = atomic_exchange(&shared.last, waiter);
	if (before) {
		atomic_store_explicit(&before->next, waiter, memory_order_release);
		while (atomic_load_explicit(&waiter->waits, memory_order_acquire))
			__builtin_ia32_pause();
	}
	shared.guarded++;
	if (!atomic_load_explicit(&waiter->next, memory_order_acquire)) {
		if (atomic_compare_exchange_strong(&shared.last, &expected, NULL))
			return;
		while (!atomic_load_explicit(&waiter->next, memory_order_acquire))
			__builtin_ia32_pause();
	}
	atomic_store_explicit(&atomic_load(&waiter->next)->waits, false, memory_order_release);
}

static void mutex(struct thread *me)
{
	(void)me;
	pthread_mutex_lock(&shared.mutex);
	shared.guarded++;
	pthread_mutex_unlock(&shared.mutex);
}

static void add(struct thread *me)
{
	(void)me;
	atomic_fetch_add(&shared.sum, 1);
}

static void share(struct thread *me)
{
	atomic_store_explicit(&shared.words[me->number % (LINE / (int)sizeof(long))], 1,
			      memory_order_relaxed);
}

static void pass(struct thread *me)
{
	while (atomic_load_explicit(&shared.turn, memory_order_acquire) != me->number)
		if (atomic_load_explicit(&shared.stop, memory_order_relaxed))
			return;
	atomic_store_explicit(&shared.turn, (me->number + 1) % me->count, memory_order_release);
}

static const struct {
	const char *name;
	void (*once)(struct thread *);
} kinds[] = {{"spin", spin}, {"ticket", ticket}, {"mcs", mcs}, {"mutex", mutex},
	      {"add", add},   {"share", share},   {"pass", pass}};

static void *run(void *argument)
{
	struct thread *me = argument;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET((size_t)me->cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	atomic_fetch_add(&shared.ready, 1);
	while (!atomic_load_explicit(&shared.stop, memory_order_relaxed)) {
		me->once(me);
		atomic_fetch_add_explicit(&me->done, 1, memory_order_relaxed);
	}
	return NULL;
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static unsigned long done(int count)
{
	unsigned long sum = 0;

	for (int number = 0; number < count; number++)
		sum += atomic_load(&threads[number].done);
	return sum;
}

static int by_size(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/*
 * Acquisitions in a microsecond by `count` threads: the median of some windows. In a window in which
 * something else runs on a CPU, the other threads have the lock for themselves.
 */
static double measure(void (*once)(struct thread *), int count)
{
	double rates[WINDOWS];

	atomic_store(&shared.stop, false);
	atomic_store(&shared.turn, 0);
	atomic_store(&shared.ready, 0);
	for (int number = 0; number < count; number++) {
		threads[number].once = once;
		threads[number].number = number;
		threads[number].count = count;
		if (pthread_create(&threads[number].id, NULL, run, &threads[number]))
			exit(1);
	}
	while (atomic_load(&shared.ready) < count)
		usleep(WARM_UP_US);
	usleep(WARM_UP_US);
	for (int window = 0; window < WINDOWS; window++) {
		unsigned long before = done(count);
		double began = now_us();

		usleep(WINDOW_US);
		rates[window] = (double)(done(count) - before) / (now_us() - began);
	}
	atomic_store(&shared.stop, true);
	for (int number = 0; number < count; number++)
		pthread_join(threads[number].id, NULL);
	qsort(rates, WINDOWS, sizeof(*rates), by_size);
	return rates[WINDOWS / 2];
}

/* Gives each thread a CPU, and returns how many there are. */
static int find_cpus(void)
{
	int count = 0;
	cpu_set_t cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (int cpu = 0; cpu < CPU_SETSIZE && count < MOST; cpu++)
		if (CPU_ISSET((size_t)cpu, &cpus))
			threads[count++].cpu = cpu;
	return count;
}

int main(int argc, char **argv)
{
	int cpus = find_cpus();

	printf("threads");
	for (int place = 1; place < argc; place++)
		printf(" %8s", argv[place]);
	puts("");
	for (int count = 1; count <= cpus; count *= 2) {
		printf("%7d", count);
		for (int place = 1; place < argc; place++) {
			void (*once)(struct thread *) = NULL;

			for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++)
				if (!strcmp(kinds[kind].name, argv[place]))
					once = kinds[kind].once;
			if (!once) {
				fprintf(stderr, "lock: no kind %s\n", argv[place]);
				return 2;
			}
			printf(" %8.2f", measure(once, count));
		}
		puts("");
	}
	return 0;
}
