/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What system calls of the scheduler return, as root and as another user: what must work, and what must be
 * refused. Include it after load.h. After each load a child makes all of them:
 *
 *   load N calls COUNT wrong COUNT NAME RESULT      NAME is the first wrong one, RESULT negative for an error
 *
 * What they must return has been the same from 5.10 to 7.x; older kernels are not asked (sched(7), sched_setattr(2), setpriority(2),
 * sched_rr_get_interval(2), membarrier(2), sched_setaffinity(2), clock_gettime(2)), and also how many readers of a
 * pipe a byte wakes (pipe_read(), fs/pipe.c; __wake_up_common(), kernel/sched/wait.c), and what files of cgroups
 * refuse (admin-guide/cgroup-v2.rst).
 */
#ifndef PROBES_H
#define PROBES_H

#include <ctype.h>
#include <linux/membarrier.h>
#include <sys/utsname.h>

#define KEEP_POLICY 0x08 /* SCHED_FLAG_KEEP_POLICY, and SCHED_FLAG_KEEP_PARAMS */
#define KEEP_PARAMS 0x10
#define RESET 1
#define SMALLEST 48 /* SCHED_ATTR_SIZE_VER0 */
#define NOBODY 65534
#define MS_NS 1000000ULL
#define READERS 4
#define BYTES 16
#define READINGS 8
#define SPIN_NS 300000
#define TURNS 40

/* In memory that all share. */
struct probes {
	int calls, wrong;
	volatile int read, word, other;
	volatile int ran, ready, go, done, visited, level; /* of ranks.h */
	char name[32];
	long result;
};

static struct probes *probes;

static void expect(const char *name, long result, long expected)
{
	if (result == -1)
		result = -errno;
	probes->calls++;
	if (result == expected)
		return;
	if (!probes->wrong++) {
		snprintf(probes->name, sizeof(probes->name), "%s", name);
		probes->result = result;
	}
}

static long set_policy(unsigned int policy, unsigned int priority, uint64_t flags)
{
	struct attributes attributes = { .size = SMALLEST, .policy = policy, .priority = priority, .flags = flags };

	return syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static long set_nice(int nice)
{
	struct attributes attributes = { .size = SMALLEST, .nice = nice };

	return syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static long set_deadline(uint64_t runtime, uint64_t deadline, uint64_t period)
{
	struct attributes attributes = {
		.size = SMALLEST, .policy = DEADLINE, .runtime = runtime, .deadline = deadline, .period = period,
	};

	return syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* The policy, and 1000 times the priority. */
static long policy_now(void)
{
	struct attributes attributes = { 0 };

	if (syscall(SYS_sched_getattr, 0, &attributes, SMALLEST, 0))
		return -1;
	return attributes.policy + 1000L * attributes.priority;
}

static long interval_ms(void)
{
	struct timespec time = { .tv_sec = -1 };

	return sched_rr_get_interval(0, &time) ? -1 : time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static long priority_now(void)
{
	struct sched_param param;

	return sched_getparam(0, &param) ? -1 : param.sched_priority;
}

static void probe_priorities(void)
{
	static const int all[] = { SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE, DEADLINE };

	for (int i = 0; i < 6; i++) {
		int ranked = all[i] == SCHED_FIFO || all[i] == SCHED_RR;

		expect("priority-max", sched_get_priority_max(all[i]), ranked ? 99 : 0);
		expect("priority-min", sched_get_priority_min(all[i]), ranked);
	}
	expect("priority-max-of-none", sched_get_priority_max(99), -EINVAL);
	expect("priority-min-of-none", sched_get_priority_min(99), -EINVAL);
	expect("fifo-0", set_policy(SCHED_FIFO, 0, 0), -EINVAL);
	expect("fifo-100", set_policy(SCHED_FIFO, 100, 0), -EINVAL);
	expect("fair-1", set_policy(SCHED_OTHER, 1, 0), -EINVAL);
	expect("policy-99", set_policy(99, 0, 0), -EINVAL);
	expect("unknown-flag", set_policy(SCHED_OTHER, 0, 1ULL << 40), -EINVAL);
	expect("unchanged", policy_now(), SCHED_OTHER);
	expect("fifo-99", set_policy(SCHED_FIFO, 99, 0), 0);
	expect("rank-of-fifo", policy_now(), SCHED_FIFO + 99000);
	expect("interval-of-fifo", interval_ms(), 0);
}

static void probe_round_robin(long slice_ms)
{
	expect("rr-5", set_policy(SCHED_RR, 5, 0), 0);
	if (slice_ms == 100 && interval_ms() != 99) /* with HZ=300 both are rounded, each in its way */
		expect("interval-of-rr", interval_ms(), slice_ms);
	/* Not used, but before 5.15 it must be a valid priority. */
	expect("keep-all", set_policy(SCHED_OTHER, 6, KEEP_POLICY | KEEP_PARAMS), 0);
	expect("kept-all", policy_now(), SCHED_RR + 5000);
	expect("keep-policy", set_policy(SCHED_OTHER, 7, KEEP_POLICY), 0);
	expect("kept-policy", policy_now(), SCHED_RR + 7000);
	expect("set-param", sched_setparam(0, &(struct sched_param){ 9 }), 0);
	expect("has-param", policy_now(), SCHED_RR + 9000);
	expect("get-param", priority_now(), 9);
	expect("reset", set_policy(SCHED_BATCH, 0, RESET), 0);
	expect("has-reset", sched_getscheduler(0), SCHED_BATCH | SCHED_RESET_ON_FORK);
	expect("no-reset", set_policy(SCHED_OTHER, 0, 0), 0);
	expect("has-no-reset", sched_getscheduler(0), SCHED_OTHER);
}

/* __checkparam_dl(), kernel/sched/deadline.c */
static void probe_deadlines(void)
{
	expect("deadline-0", set_deadline(MS_NS, 0, 0), -EINVAL);
	expect("runtime-1023", set_deadline(1023, MS_NS, MS_NS), -EINVAL);
	expect("runtime-above", set_deadline(10 * MS_NS + 1, 10 * MS_NS, 20 * MS_NS), -EINVAL);
	expect("deadline-above", set_deadline(MS_NS, 10 * MS_NS + 1, 10 * MS_NS), -EINVAL);
	expect("deadline-huge", set_deadline(MS_NS, 1ULL << 63, 1ULL << 63), -EINVAL);
	expect("period-huge", set_deadline(MS_NS, 10 * MS_NS, 1ULL << 63), -EINVAL);
	expect("period-long", set_deadline(MS_NS, 10 * MS_NS, 10000 * MS_NS), -EINVAL);
	expect("period-short", set_deadline(2000, 50000, 50000), -EINVAL);
	expect("unchanged", policy_now(), SCHED_OTHER);
}

static void probe_sizes(void)
{
	struct attributes attributes = { .size = 40 };

	expect("small-size", syscall(SYS_sched_setattr, 0, &attributes, 0), -E2BIG);
	attributes.size = 0;
	expect("no-size", syscall(SYS_sched_setattr, 0, &attributes, 0), 0);
	expect("set-flags", syscall(SYS_sched_setattr, 0, &attributes, 1), -EINVAL);
	expect("get-small", syscall(SYS_sched_getattr, 0, &attributes, SMALLEST - 1, 0), -EINVAL);
	expect("get-flags", syscall(SYS_sched_getattr, 0, &attributes, SMALLEST, 1), -EINVAL);
	expect("get", syscall(SYS_sched_getattr, 0, &attributes, SMALLEST, 0), 0);
	expect("size", attributes.size, SMALLEST);
	expect("no-cpu", sched_setaffinity(0, sizeof(cpu_set_t), &(cpu_set_t){ 0 }), -EINVAL);
	expect("yield", sched_yield(), 0);
}

static long barrier(int command, unsigned int flags)
{
	return syscall(SYS_membarrier, command, flags, 0);
}

static void probe_barriers(void)
{
	long commands = barrier(MEMBARRIER_CMD_QUERY, 0);

	if (commands <= 0 || !(commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		return;
	expect("barrier-unregistered", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0), -EPERM);
	expect("register-barrier", barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0), 0);
	expect("barrier", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0), 0);
	expect("global-barrier", barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0), 0);
	expect("barrier-flags", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 2), -EINVAL);
	expect("barrier-unknown", barrier(3, 0), -EINVAL);
	if (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE)
		expect("core-barrier", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0), -EPERM);
}

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

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec time = { 0 };

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static pid_t fork_hog(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		;
}

/* CPU time is exact when it is read: that of a process grows with that of the thread that reads it, and is the same
 * if that is `alone` (thread_group_cputime(), task_sched_runtime(), kernel/sched).
 */
static void read_clocks(int alone)
{
	uint64_t before, first, process, after;
	int stale = 0;

	for (int reading = 0; reading < READINGS; reading++) {
		uint64_t end = clock_ns(CLOCK_MONOTONIC) + SPIN_NS;

		before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		first = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		while (clock_ns(CLOCK_MONOTONIC) < end)
			;
		process = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		after = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		if (alone)
			expect("process-time", before <= process && process <= after, 1);
		stale += process - first < (after - before) / 4; /* one may be, if the CPU stops just then */
	}
	expect(alone ? "time-since-tick" : "time-in-thread", stale < READINGS / 2, 1);
}

static void *read_in_thread(void *unused)
{
	read_clocks(0);
	return unused;
}

/* And that of a child grows while it runs. */
static void probe_clocks(void)
{
	uint64_t before;
	clockid_t clock;
	pthread_t thread;
	pid_t child;

	read_clocks(1);
	if (!pthread_create(&thread, NULL, read_in_thread, NULL))
		pthread_join(thread, NULL);
	child = fork_hog();
	if (child < 0)
		return;
	expect("clock-of-child", clock_getcpuclockid(child, &clock), 0);
	before = clock_ns(clock);
	for (int tried = 0; tried < 100 && clock_ns(clock) == before; tried++)
		sleep_ns(5000000);
	expect("time-of-child", clock_ns(clock) > before, 1);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

#include "inherit.h"

static int set_cpu(pid_t pid, int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(pid, sizeof(one), &one);
}

static void turn(pid_t pid, int first, int second)
{
	int failed = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int number = 0; number < TURNS; number++)
		failed += set_cpu(pid, number % 2 ? first : second) != 0;
	_exit(failed);
}

#include "ranks.h"

/* Tasks whose mask loses their CPU are distributed over the new one (cpumask_any_and_distribute(), lib/cpumask.c). */
static void probe_distribution(const cpu_set_t *all, int first)
{
	cpu_set_t rest = *all, used;

	CPU_CLR(first, &rest);
	if (CPU_COUNT(&rest) < 2)
		return;
	CPU_ZERO(&used);
	for (int number = 0; number < TURNS / 2; number++) {
		expect("bind", set_cpu(0, first), 0);
		expect("set-rest", sched_setaffinity(0, sizeof(rest), &rest), 0);
		CPU_SET(sched_getcpu(), &used);
	}
	expect("cpus-of-rest", CPU_COUNT(&used) > 1, 1);
	expect("set-all", sched_setaffinity(0, sizeof(*all), all), 0);
}

/* A mask holds when the call returns, for a running task, too, and when two others set its mask at once
 * (affine_move_task(), kernel/sched/core.c).
 */
static void probe_masks(void)
{
	pid_t hog, turners[2];
	cpu_set_t all;
	int first = -1, last = -1, status;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		first = first < 0 ? cpu : first;
		last = cpu;
		expect("set-mask", set_cpu(0, cpu), 0);
		expect("cpu-of-mask", sched_getcpu(), cpu);
	}
	expect("set-masks", sched_setaffinity(0, sizeof(all), &all), 0);
	if (first == last)
		return;
	probe_distribution(&all, first);
	hog = fork_hog();
	if (hog < 0)
		return;
	for (int number = 0; number < 2; number++) {
		turners[number] = fork();
		if (!turners[number])
			turn(hog, number ? last : first, number ? first : last);
	}
	for (int number = 0; number < 2; number++)
		if (turners[number] > 0 && waitpid(turners[number], &status, 0) > 0)
			expect("set-mask-in-turn", status, 0);
	expect("set-mask-of-hog", set_cpu(hog, last), 0);
	expect("cpu-of-hog", read_stat(hog, 39, -1), last); /* its CPU (proc(5)) */
	kill(hog, SIGKILL);
	waitpid(hog, NULL, 0);
}

static int set_file(const char *file, const char *text)
{
	char path[64];

	snprintf(path, sizeof(path), CGROUPS "/probe/%s", file);
	return put(path, text);
}

/* What a group is refused, and what it may have at most (tg_set_cfs_bandwidth(), cpu_weight_write_u64(),
 * sched_group_set_idle(), kernel/sched). Only where a load has had groups in this boot.
 */
static void probe_group(void)
{
	static const struct {
		const char *file, *text;
		long result;
	} settings[] = {
		{ "cpu.max", "999 100000", -EINVAL },	  { "cpu.max", "max 999", -EINVAL },
		{ "cpu.max", "max 1000001", -EINVAL },	  { "cpu.max", "20000000000000 100000", -EINVAL },
		{ "cpu.max", "x 100000", -EINVAL },	  { "cpu.max", "max 1000", 0 },
		{ "cpu.max", "max 1000000", 0 },	  { "cpu.weight", "0", -ERANGE },
		{ "cpu.weight", "10001", -ERANGE },	  { "cpu.weight", "10000", 0 },
		{ "cpu.weight.nice", "-21", -ERANGE },	  { "cpu.weight.nice", "20", -ERANGE },
		{ "cpu.weight.nice", "-20", 0 },	  { "cpu.weight.nice", "19", 0 },
		{ "cpu.idle", "2", -EINVAL },		  { "cpu.idle", "-1", -EINVAL },
		{ "cpu.idle", "1", 0 },			  { "cpu.weight", "100", -EINVAL },
		{ "cpu.idle", "0", 0 },			  { "cpu.weight", "1", 0 },
	};

	if (mkdir(CGROUPS "/probe", 0755))
		return;
	if (!access(CGROUPS "/probe/cpu.idle", W_OK) && !access(CGROUPS "/probe/cpu.max", W_OK))
		for (size_t at = 0; at < sizeof(settings) / sizeof(*settings); at++) {
			char name[32];

			snprintf(name, sizeof(name), "%s-%.14s", settings[at].file, settings[at].text);
			for (char *letter = name; *letter; letter++)
				*letter = isalnum((unsigned char)*letter) ? *letter : '-';
			expect(name, set_file(settings[at].file, settings[at].text), settings[at].result);
		}
	rmdir(CGROUPS "/probe");
}

static void limit(int what, rlim_t most)
{
	setrlimit(what, &(struct rlimit){ most, RLIM_INFINITY });
}

/* user_check_sched_setscheduler() and can_nice(), kernel/sched/syscalls.c, 6.12 */
static void probe_nice_levels(void)
{
	limit(RLIMIT_NICE, 30); /* down to -10 */
	expect("nice-below", setpriority(PRIO_PROCESS, 0, -11), -EACCES);
	expect("set-nice-below", set_nice(-11), -EPERM);
	expect("nice-least", setpriority(PRIO_PROCESS, 0, -10), 0);
	expect("nice-100", setpriority(PRIO_PROCESS, 0, 100), 0);
	expect("nice-is-19", getpriority(PRIO_PROCESS, 0), 19);
	expect("set-nice-least", set_nice(-10), 0);
	expect("set-nice-5", set_nice(5), 0);
	expect("idle", set_policy(SCHED_IDLE, 0, 0), 0);
	limit(RLIMIT_NICE, 0);
	expect("from-idle", set_policy(SCHED_OTHER, 0, 0), -EPERM);
	limit(RLIMIT_NICE, 20);
	expect("from-idle-nice", set_policy(SCHED_OTHER, 0, 0), 0);
}

static void probe_real_time_limits(void)
{
	limit(RLIMIT_RTPRIO, 0);
	expect("fifo-without-limit", set_policy(SCHED_FIFO, 1, 0), -EPERM);
	limit(RLIMIT_RTPRIO, 5);
	expect("fifo-above-limit", set_policy(SCHED_FIFO, 6, 0), -EPERM);
	expect("fifo-at-limit", set_policy(SCHED_FIFO, 5, 0), 0);
	limit(RLIMIT_RTPRIO, 0);
	expect("fifo-lower", set_policy(SCHED_FIFO, 3, 0), 0);
	expect("fifo-higher", set_policy(SCHED_FIFO, 4, 0), -EPERM);
	expect("rr-without-limit", set_policy(SCHED_RR, 3, 0), -EPERM);
	expect("deadline-of-user", set_deadline(MS_NS, 10 * MS_NS, 10 * MS_NS), -EPERM);
	expect("fair-with-reset", set_policy(SCHED_OTHER, 0, RESET), 0);
	expect("fair-without-reset", set_policy(SCHED_OTHER, 0, 0), -EPERM);
}

/* Those of root, who may not change that of the caller. */
static void probe_strangers(pid_t root)
{
	cpu_set_t cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	expect("mask-of-root", sched_setaffinity(root, sizeof(cpus), &cpus), -EPERM);
	expect("nice-of-root", setpriority(PRIO_PROCESS, root, 1), -EPERM);
	expect("policy-of-root", sched_setscheduler(root, SCHED_BATCH, &(struct sched_param){ 0 }), -EPERM);
}

/* What takes the CPU for long happens after two loads of five: in each pattern in which hunts repeat a load, one of
 * three is among them.
 */
static void probe(pid_t root, long slice_ms, unsigned int release, int number)
{
	probe_sizes();
	probe_priorities();
	probe_round_robin(slice_ms);
	probe_deadlines();
	probe_barriers();
	probe_readers();
	probe_clocks();
	probe_masks();
	probe_group();
	probe_children();
	probe_nice_of_ranked();
	probe_wake_queues();
	probe_lock(SCHED_FIFO, 7, -8);
	probe_lock(SCHED_RR, 1, -2);
	probe_time_slice();
	if (number % 5 == 0 || number % 5 == 2) {
		probe_time_limit();
		probe_runtime();
		probe_user_time();
		probe_short_times();
		probe_ranks(release >= 6012);
	}
	limit(RLIMIT_NICE, 0);
	limit(RLIMIT_RTPRIO, 0); /* what they may be at most, another user cannot raise */
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		_exit(2);
	probe_nice_levels();
	probe_real_time_limits();
	probe_strangers(root);
}

/* Of a caller with the usual policy, whose child makes the calls. */
static void tell_probes(int load)
{
	long slice_ms = read_number(RR_SLICE);
	unsigned int major = 0, minor = 0;
	struct utsname name;
	pid_t root = getpid(), child;
	int status = 0;

	if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2 || major * 1000 + minor < 5010)
		return;
	memset(probes, 0, sizeof(*probes));
	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		probe(root, slice_ms, major * 1000 + minor, load);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return;
	expect("ended", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status, 0);
	printf("load %d calls %d wrong %d %s %ld\n", load, probes->calls, probes->wrong,
	       probes->wrong ? probes->name : "nothing", probes->result);
}

#endif
