// SPDX-License-Identifier: GPL-2.0-only
/*
 * bound-hogs COUNT SECONDS START_CPUS ALLOWED_CPUS: can the scheduler spread tasks over the CPUs
 * they are allowed on?
 *
 * COUNT busy loops, named `hog`, start bound to START_CPUS. When all of them run, every one is
 * allowed on ALLOWED_CPUS, and for SECONDS the scheduler does what it does. The program that
 * controls them stays off all of these CPUs where it can, and sleeps meanwhile.
 *
 * Prints a line for each hog: its pid, CPU time in seconds, the CPU it was on last and how often it
 * went round its loop in those SECONDS; and a line for all of them together. Where a CPU stays idle,
 * fewer loops are done, on a machine whose CPUs run side by side.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "shared.h"

#define MAX_HOGS 4096

/* What a hog tells: how far its loop was when the hogs were let go, and at the end. */
struct report {
	volatile char running, counted;
	volatile unsigned long long first, last;
};

static pid_t hogs[MAX_HOGS];
static int count;
static struct report *reports, *mine;

/* Leave the hogs' CPUs alone; on a machine that is all hogs' CPUs there is nowhere to go. */
static void step_aside(const cpu_set_t *start, const cpu_set_t *allowed)
{
	cpu_set_t here, others;

	sched_getaffinity(0, sizeof(here), &here);
	CPU_ZERO(&others);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &here) && !CPU_ISSET(cpu, start) && !CPU_ISSET(cpu, allowed))
			CPU_SET(cpu, &others);
	if (CPU_COUNT(&others))
		sched_setaffinity(0, sizeof(others), &others);
}

/* The loop counts in r12, which is in the context that the signal interrupted. */
static void tell(int signal, siginfo_t *info, void *context)
{
	unsigned long long loops = ((ucontext_t *)context)->uc_mcontext.gregs[REG_R12];

	(void)info;
	if (signal == SIGTERM) {
		mine->last = loops;
		_exit(0);
	}
	mine->first = loops;
	mine->counted = 1;
}

/*
 * Says that it runs and then touches no memory, but when it is asked: NUMA balancing must not find
 * a reason to move it, the load balancer alone is asked. Does not return.
 */
static void hog(void)
{
	struct sigaction action = { .sa_sigaction = tell, .sa_flags = SA_SIGINFO };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "hog");
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	mine->running = 1;
	__asm__ volatile("xor %%r12d, %%r12d\n1:\t" TURN "add $1, %%r12\n\tjmp 1b" : : : "r12", "cc", "memory");
}

static void start_hogs(const cpu_set_t *start)
{
	for (int i = 0; i < count; i++) {
		hogs[i] = fork();
		if (hogs[i] < 0)
			die("cannot start hog %d: %s", i, strerror(errno));
		if (hogs[i] == 0) {
			if (sched_setaffinity(0, sizeof(*start), start))
				_exit(1);
			mine = reports + i;
			hog();
		}
	}
}

static void wait_for(int i, const volatile char *said)
{
	while (!*said) {
		if (waitpid(hogs[i], NULL, WNOHANG))
			die("hog %d ended; are its CPUs online?", i);
		sleep_ns(2000000);
	}
}

/* Ask the hogs how far they are. They still run on their first CPUs then, where they began. */
static void count_first(void)
{
	for (int i = 0; i < count; i++)
		wait_for(i, &reports[i].running);
	for (int i = 0; i < count; i++)
		kill(hogs[i], SIGUSR1);
	for (int i = 0; i < count; i++)
		wait_for(i, &reports[i].counted);
}

/* End the hogs, which tell how far they came, and wait, so that their time counts as ours. */
static void reap(void)
{
	for (int i = 0; i < count; i++)
		kill(hogs[i], SIGTERM);
	for (int i = 0; i < count; i++)
		waitpid(hogs[i], NULL, 0);
}

/* Field 39 of /proc/PID/stat, `processor` (proc(5)); the name before it has no space here. */
static int last_cpu(pid_t pid)
{
	char path[32], text[512], *field = text;
	int file, length;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = open(path, O_RDONLY);
	length = read(file, text, sizeof(text) - 1);
	close(file);
	text[length > 0 ? length : 0] = '\0';
	for (int i = 1; field && i < 39; i++) {
		field = strchr(field, ' ');
		field = field ? field + 1 : NULL;
	}
	return field ? atoi(field) : -1;
}

static double cpu_seconds(pid_t pid)
{
	struct timespec time = { 0 };
	clockid_t clock;

	if (!clock_getcpuclockid(pid, &clock))
		clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	unsigned long long loops, total = 0;
	cpu_set_t start, allowed;
	double *began, *worked;
	int64_t length;
	int *cpus;

	if (argc != 5)
		die("usage: bound-hogs COUNT SECONDS START_CPUS ALLOWED_CPUS");
	count = parse_number("COUNT", argv[1], 1, MAX_HOGS);
	length = parse_seconds(argv[2]);
	start = parse_cpulist(argv[3]);
	allowed = parse_cpulist(argv[4]);
	step_aside(&start, &allowed);
	reports = mmap(NULL, count * sizeof(*reports), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	began = calloc(count, sizeof(*began));
	worked = calloc(count, sizeof(*worked));
	cpus = calloc(count, sizeof(*cpus));
	if (reports == MAP_FAILED || !began || !worked || !cpus)
		die("no memory");

	start_hogs(&start);
	count_first();
	for (int i = 0; i < count; i++) {
		if (sched_setaffinity(hogs[i], sizeof(allowed), &allowed))
			die("cannot bind hog %d: %s", i, strerror(errno));
		began[i] = cpu_seconds(hogs[i]);
	}
	mark("numalab: begin");
	sleep_ns(length);
	mark("numalab: end");
	for (int i = 0; i < count; i++) {
		cpus[i] = last_cpu(hogs[i]);
		worked[i] = cpu_seconds(hogs[i]) - began[i];
	}
	reap();
	for (int i = 0; i < count; i++) {
		loops = reports[i].last - reports[i].first;
		total += loops;
		printf("hog %d pid %d cpu_seconds %.6f last_cpu %d loops %llu\n", i, hogs[i],
		       worked[i], cpus[i], loops);
	}
	printf("total loops %llu per_second %.1f\n", total, total / (length / 1e9));
	return 0;
}
