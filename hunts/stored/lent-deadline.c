// SPDX-License-Identifier: GPL-2.0-only
// A fair task holds a lock (FUTEX_LOCK_PI) for which a task of a higher class waits, and asks for another policy.
// gcc -O2 -static -pthread lent-deadline.c -o lent-deadline; run it as root.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct attributes { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t dl[3]; };
static struct attributes of_waiter;
static volatile int word;

static void *wait_for_lock(void *unused)
{
	if (syscall(SYS_sched_setattr, 0, &of_waiter, 0))
		perror("sched_setattr of the waiter");
	syscall(SYS_futex, &word, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
	syscall(SYS_futex, &word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
	return unused;
}

static void set_batch(const char *when)
{
	int result = sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 });

	printf("%s: %s\n", when, result ? strerror(errno) : "done");
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
}

static void try(const char *name, struct attributes waiter)
{
	pthread_t thread;

	of_waiter = waiter;
	word = syscall(SYS_gettid);
	pthread_create(&thread, NULL, wait_for_lock, NULL);
	usleep(200000);
	printf("the waiter is of %s; ", name);
	set_batch("SCHED_BATCH for the holder");
	syscall(SYS_futex, &word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
	pthread_join(thread, NULL);
	set_batch("  and without the lock");
}

int main(void)
{
	try("SCHED_FIFO", (struct attributes){ .size = 48, .policy = SCHED_FIFO, .priority = 5 });
	try("SCHED_DEADLINE", (struct attributes){ .size = 48, .policy = 6, .dl = { 10000000, 100000000, 100000000 } });
}
