/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What single calls and files of cgroups return: what must work, and what must be refused
 * (sched(7), sched_setattr(2), setpriority(2), sched_rr_get_interval(2), membarrier(2), admin-guide/cgroup-v2.rst).
 */
#ifndef CALLS_H
#define CALLS_H

#include <ctype.h>
#include <linux/membarrier.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "expect.h"

#define KEEP_POLICY 0x08 /* SCHED_FLAG_KEEP_POLICY, and SCHED_FLAG_KEEP_PARAMS */
#define KEEP_PARAMS 0x10

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

#endif
