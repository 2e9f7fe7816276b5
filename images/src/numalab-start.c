// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two steps of init between the boot and the job.
 *
 * numalab-start hold TURNS keeps the boot CPU busy for a while. Meanwhile the host may stop the
 * guest and save it: nothing of the job has been read yet. The host finds the place by HELD and
 * STILL in registers while that CPU is in user mode (lab/numalab/guest/hold.py).
 *
 * Where time is counted in instructions, a guest goes on in the same way wherever it was stopped in
 * there, if all other CPUs are halted:
 * - A turn takes 150 ns of the guest's time and some 4000 of the host's, so that the loop lies
 *   between two ticks and the host can meet it. `pause` lets the other CPUs end what they do.
 * - Around it is a moment in which all CPUs are idle. From such a moment on QEMU counts the 100 ms
 *   after which a CPU loses its turn (rr_start_kick_timer(), accel/tcg/tcg-accel-ops-rr.c, 7.2).
 *
 * numalab-start vary SEED COMMAND... is where two runs begin to differ: it adds SEED to the kernel's
 * random numbers, moves to another CPU, sleeps for up to VARIED_US, so that ticks and balancing come
 * at other times of the job, and becomes COMMAND.
 */
#define _GNU_SOURCE
#include <linux/random.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "numalab.h"

#define HELD 0x6e756d616c616221L
#define STILL 0x7374617274206d65L
#define TICK_NS 3000 /* an interruption of at least that length was a tick */
#define SETTLE_NS 300000 /* the other CPUs may have theirs at the same time */
#define IDLE_NS 2000000
#define VARIED_US 64000

static void stay_on_boot_cpu(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* A beat, as init's `say` writes them; it has left the guest when this returns. */
static void tell_held(void)
{
	struct timespec up;

	clock_gettime(CLOCK_BOOTTIME, &up);
	printf("{\"phase\": \"held\", \"uptime\": %lld.%02ld}\n", (long long)up.tv_sec,
	       up.tv_nsec / 10000000);
	fflush(stdout);
	tcdrain(STDOUT_FILENO);
}

/* Wait until a tick is over. */
static void await_tick(void)
{
	int64_t before, time = now();
	int64_t latest = time + 20000000; /* there may be none: nohz_full */

	do {
		before = time;
		time = now();
	} while (time - before < TICK_NS && time < latest);
	latest = time + SETTLE_NS;
	while (now() < latest)
		asm volatile("pause");
}

static void hold(int turns)
{
	register int left asm("r14") = turns; /* the host reads it (lab/numalab/guest/hold.py) */

	stay_on_boot_cpu();
	sleep_ns(IDLE_NS);
	tell_held();
	await_tick();
	asm volatile("movq %1, %%r12\n\t"
		     "movq %2, %%r13\n"
		     "1:\n\t"
		     "pause\n\t"
		     ".rept 4\n\t"
		     "fld1\n\t"
		     "fldpi\n\t"
		     "fpatan\n\t"
		     "fstp %%st(0)\n\t"
		     ".endr\n\t"
		     "decl %0\n\t"
		     "jnz 1b\n\t"
		     "xorl %%r12d, %%r12d"
		     : "+r"(left)
		     : "i"(HELD), "i"(STILL)
		     : "r12", "r13", "cc", "st", "st(1)", "st(2)");
	sleep_ns(IDLE_NS);
}

/* Go on from one of the CPUs of this process. */
static void move(uint64_t number)
{
	int wanted, cpus = sysconf(_SC_NPROCESSORS_CONF);
	size_t size = CPU_ALLOC_SIZE(cpus);
	cpu_set_t *all = CPU_ALLOC(cpus), *single = CPU_ALLOC(cpus);

	if (!all || !single || sched_getaffinity(0, size, all) || !CPU_COUNT_S(size, all))
		return;
	wanted = number % CPU_COUNT_S(size, all);
	CPU_ZERO_S(size, single);
	for (int cpu = 0; cpu < cpus; cpu++)
		if (CPU_ISSET_S(cpu, size, all) && wanted-- == 0)
			CPU_SET_S(cpu, size, single);
	sched_setaffinity(0, size, single);
	sched_setaffinity(0, size, all);
}

static void vary(uint64_t seed)
{
	struct { /* struct rand_pool_info, whose array has no length */
		int entropy_bits, size;
		uint64_t bytes[4];
	} pool = { .entropy_bits = 256, .size = sizeof(pool.bytes) };
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1; /* no seed gives 0, which stays 0 */
	int file = open("/dev/urandom", O_WRONLY | O_CLOEXEC);

	if (!state)
		state = 1;
	for (int i = 0; i < 4; i++)
		pool.bytes[i] = random_next(&state);
	/* Not the end of PID 1, which would be a panic. */
	if (file < 0 || ioctl(file, RNDADDENTROPY, &pool))
		fprintf(stderr, "numalab-start: the seed has no effect: %s\n", strerror(errno));
	/* Before Linux 4.14 there is no such request; the numbers are taken in later. */
	ioctl(file, RNDRESEEDCRNG);
	close(file);
	move(random_next(&state));
	sleep_ns(random_next(&state) % (VARIED_US * 1000));
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "hold")) {
		hold(parse_number("TURNS", argv[2], 1, 1000000));
		return 0;
	}
	if (argc < 4 || strcmp(argv[1], "vary"))
		die("usage: numalab-start hold TURNS | vary SEED COMMAND...");
	vary(strtoull(argv[2], NULL, 10));
	execv(argv[3], argv + 3);
	die("cannot start %s: %s", argv[3], strerror(errno));
}
