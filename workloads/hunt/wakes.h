/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many tasks wake up: readers of a pipe (pipe_read(), fs/pipe.c; __wake_up_common(),
 * kernel/sched/wait.c), and those that wait for a futex (futex(2)).
 */
#ifndef WAKES_H
#define WAKES_H

#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "expect.h"

#define READERS 4
#define BYTES 16
#define WAITERS 4

/* Until a reader has the byte: whether it comes within 2 s. */
static int await_reader(int number)
{
	for (int tried = 0; probes->read < number; tried++) {
		if (tried == 2000)
			return 0;
		sleep_ns(1000000);
	}
	return 1;
}

static long slept_of(const pid_t *pids)
{
	char path[32], line[128];
	long sum = 0, slept;

	for (int i = 0; i < READERS; i++) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/status", pids[i]);
		file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file))
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &slept) == 1)
				sum += slept;
		if (file)
			fclose(file);
	}
	return sum;
}

/* A byte wakes one of the readers of a pipe, at most: each wakes up once a byte, and all sleep in between. */
static void probe_readers(void)
{
	pid_t pids[READERS];
	int ends[2], count = 0;
	long slept;

	if (pipe(ends))
		return;
	for (; count < READERS && (pids[count] = fork()) > 0; count++)
		;
	if (count < READERS && !pids[count]) {
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(ends[0], &byte, 1) == 1)
			__atomic_add_fetch(&probes->read, 1, __ATOMIC_SEQ_CST);
		_exit(0);
	}
	sleep_ns(20000000); /* until all wait */
	slept = count == READERS ? slept_of(pids) : 0;
	for (int byte = 1; count == READERS && byte <= BYTES; byte++) {
		expect("write", write(ends[1], "x", 1), 1);
		expect("reader-wakes", await_reader(byte), 1);
	}
	sleep_ns(20000000);
	if (count == READERS && (slept = slept_of(pids) - slept) > BYTES + BYTES / 2)
		expect("wake-ups-of-readers", slept, BYTES);
	while (count--) {
		kill(pids[count], SIGKILL);
		waitpid(pids[count], NULL, 0);
	}
	close(ends[0]);
	close(ends[1]);
}

/* How many wake, where all sleep (wake_up_q(), kernel/sched/core.c). */
static void probe_wake_queues(void)
{
	volatile int *word = &probes->word, *other = &probes->other;
	pid_t pids[WAITERS];
	int count = 0, status;

	*word = *other = 0;
	for (; count < WAITERS; count++) {
		pids[count] = fork();
		if (!pids[count]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(futex_call(word, FUTEX_WAIT, 0, 0, NULL, 0) != 0);
		}
		if (pids[count] < 0)
			break;
	}
	sleep_ns(20000000);
	if (count == WAITERS) {
		expect("wake-two", futex_call(word, FUTEX_WAKE, 2, 0, NULL, 0), 2);
		expect("requeue", futex_call(word, FUTEX_CMP_REQUEUE, 1, 1, other, 0), 2);
		expect("wake-requeued", futex_call(other, FUTEX_WAKE, 9, 0, NULL, 0), 1);
		sleep_ns(20000000);
	}
	while (count--) {
		if (waitpid(pids[count], &status, WNOHANG) == pids[count]) {
			expect("woken", status, 0);
			continue;
		}
		expect("wakes", 0, 1);
		kill(pids[count], SIGKILL);
		waitpid(pids[count], &status, 0);
	}
}

#endif
