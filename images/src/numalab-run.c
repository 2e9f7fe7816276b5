// SPDX-License-Identifier: GPL-2.0-only
/*
 * numalab-run FOLDER PERIOD_MS WHAT -- COMMAND...: runs the job's command and ends as it does.
 *
 * FOLDER/times gets what the command cost: elapsed by CLOCK_MONOTONIC, user and system of it and of
 * its descendants that were waited for (wait4(2)), in seconds.
 *
 * With a PERIOD_MS above 0, FOLDER/samples gets the counters that WHAT names (letters: v vmstat,
 * s schedstat, t CPUs and NUMA faults of tasks, p pages of processes by node), before the command, every
 * period, and after it. A shell loop would start processes that the scheduler under test has to
 * place; this one sleeps on the boot CPU and reads. Each sample begins with `@ NANOSECONDS`, of
 * CLOCK_MONOTONIC, which is the trace clock `mono`. Names of tasks are written in hexadecimal.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "times.h"

#define MAX_NODES 64
#define MAX_OUTPUT (64 << 20)
#define MAX_TASKS 4096
#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

static char out[1 << 20], text[1 << 18];
static size_t used;
static long written;
static int samples = -1;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(out + used, sizeof(out) - used, format, arguments);
	va_end(arguments);
	if (length > 0 && used + length < sizeof(out))
		used += length;
}

static void flush_out(void)
{
	if (written + (long)used <= MAX_OUTPUT && write(samples, out, used) == (ssize_t)used)
		written += used;
	used = 0;
}

/* Read a small file into `text`; return whether there was anything. */
static int slurp(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;

	text[0] = '\0';
	if (file < 0)
		return 0;
	while (length < sizeof(text) - 1 &&
	       (got = read(file, text + length, sizeof(text) - 1 - length)) > 0)
		length += got;
	close(file);
	text[length] = '\0';
	return length > 0;
}

static int starts(const char *line, const char *with)
{
	return strncmp(line, with, strlen(with)) == 0;
}

static void sample_lines(const char *path, const char *kind, int (*wanted)(const char *))
{
	char *rest = text, *line;

	if (!slurp(path))
		return;
	while ((line = strsep(&rest, "\n")))
		if (wanted(line))
			put("%s %s\n", kind, line);
}

static int of_numa(const char *line)
{
	return starts(line, "numa_") || starts(line, "pgmigrate_") || starts(line, "pgfault ") ||
	       starts(line, "pgmajfault ");
}

static int of_cpu(const char *line)
{
	return starts(line, "cpu") || starts(line, "version");
}

/* The number after `name` and its colon in /proc/PID/sched, -1 where it is not. */
static long sched_number(const char *name)
{
	char *found = strstr(text, name);

	found = found ? strchr(found, ':') : NULL;
	return found ? strtol(found + 1, NULL, 10) : -1;
}

/* The CPUs that a task may use (sched_setaffinity(2) and its cpuset), as `cpus=0-3,8`. */
static void put_cpus(int task)
{
	const char *before = " cpus=";
	cpu_set_t cpus;
	int last;

	if (sched_getaffinity(task, sizeof(cpus), &cpus))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu = last + 1) {
		for (last = cpu; last + 1 < CPU_SETSIZE && CPU_ISSET(cpu, &cpus) &&
				 CPU_ISSET(last + 1, &cpus); last++)
			;
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		put(last > cpu ? "%s%d-%d" : "%s%d", before, cpu, last);
		before = ",";
	}
}

/* The lines that sched_show_numa() and print_numa_stats() write in kernel/sched/debug.c. */
static void sample_task(int process, int task)
{
	char path[64], comm[64];
	char *line, *group;
	long a, b, c, d;
	int node, file, length;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", process, task);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return;
	length = read(file, comm, sizeof(comm));
	close(file);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/sched", process, task);
	if (!slurp(path) || !(group = strstr(text, "numa_group_id=")))
		return;
	put("task %d %d %ld %ld ", process, task, sched_number("numa_preferred_nid"),
	    strtol(group + strlen("numa_group_id="), NULL, 10));
	for (int i = 0; i < length - 1; i++)
		put("%02x", (unsigned char)comm[i]);
	for (line = strstr(group, "numa_faults node="); line;
	     line = strstr(line + 1, "numa_faults node="))
		if (sscanf(line, "numa_faults node=%d task_private=%ld task_shared=%ld "
				 "group_private=%ld group_shared=%ld", &node, &a, &b, &c, &d) == 5)
			put(" %d:%ld:%ld:%ld:%ld", node, a, b, c, d);
	put_cpus(task);
	put("\n");
}

/* Pages of a process by node, in KiB: sums over the lines of numa_maps(5). */
static void sample_pages(int process)
{
	long kib[MAX_NODES] = { 0 }, pages;
	char path[64], *field, *end;
	int touched = 0, more = 1;
	static char line[1 << 16];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/numa_maps", process);
	file = fopen(path, "re");
	if (!file)
		return;
	while (more && fgets(line, sizeof(line), file)) {
		char *size = strstr(line, " kernelpagesize_kB=");
		long page_kib = size ? strtol(size + strlen(" kernelpagesize_kB="), NULL, 10) : 4;

		for (field = strstr(line, " N"); field; field = strstr(field + 1, " N")) {
			long node = strtol(field + 2, &end, 10);

			if (end == field + 2 || *end != '=' || node < 0 || node >= MAX_NODES)
				continue;
			pages = strtol(end + 1, NULL, 10);
			kib[node] += pages * page_kib;
			touched = 1;
		}
	}
	fclose(file);
	if (!touched)
		return;
	put("pages %d", process);
	for (int node = 0; node < MAX_NODES; node++)
		if (kib[node])
			put(" %d:%ld", node, kib[node]);
	put("\n");
}

/* Field 9 of /proc/PID/stat; the name before it may hold anything, also a closing bracket. */
static int is_kernel_thread(int process)
{
	char path[32], *after;
	unsigned flags = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", process);
	if (!slurp(path) || !(after = strrchr(text, ')')))
		return 1;
	if (sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
		return 1;
	return (flags & PF_KTHREAD) != 0;
}

/* The command and what it started have larger numbers than this process. */
static void sample_processes(const char *what)
{
	DIR *all = opendir("/proc"), *tasks;
	struct dirent *entry;
	char path[64];
	int seen = 0;

	while (all && seen < MAX_TASKS && (entry = readdir(all))) {
		int process = atoi(entry->d_name);

		if (process <= getpid() || is_kernel_thread(process))
			continue;
		if (strchr(what, 'p'))
			sample_pages(process);
		snprintf(path, sizeof(path), "/proc/%d/task", process);
		tasks = strchr(what, 't') ? opendir(path) : NULL;
		while (tasks && seen < MAX_TASKS && (entry = readdir(tasks)))
			if (atoi(entry->d_name) > 0) {
				sample_task(process, atoi(entry->d_name));
				seen++;
			}
		if (tasks)
			closedir(tasks);
	}
	if (all)
		closedir(all);
}

static void sample(const char *what)
{
	put("@ %lld\n", (long long)now());
	if (strchr(what, 'v'))
		sample_lines("/proc/vmstat", "vmstat", of_numa);
	if (strchr(what, 's'))
		sample_lines("/proc/schedstat", "schedstat", of_cpu);
	if (strpbrk(what, "tp"))
		sample_processes(what);
	flush_out();
}

static void stay_on_boot_cpu(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

int main(int argc, char **argv)
{
	/* So that only the end of the command wakes this: no SIGCHLD when it stops or continues. */
	struct sigaction only_end = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP };
	struct timespec period;
	struct rusage cost;
	const char *what;
	char path[256];
	int64_t begin;
	sigset_t child_ends;
	int status, ms;
	pid_t child;

	if (argc < 6 || strcmp(argv[4], "--"))
		return 125;
	ms = atoi(argv[2]);
	what = argv[3];
	period = (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
	sigemptyset(&child_ends);
	sigaddset(&child_ends, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child_ends, NULL);
	sigaction(SIGCHLD, &only_end, NULL);
	snprintf(path, sizeof(path), "%s/samples", argv[1]);
	if (ms > 0 && (samples = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) >= 0)
		sample(what);
	begin = now();
	child = fork();
	if (child == 0) {
		/* Or `kill 0` in the command, as in many a `trap`, would end this program and init. */
		setpgid(0, 0);
		sigprocmask(SIG_UNBLOCK, &child_ends, NULL);
		/* init starts this with `&`, so that its shell has both ignored (sh(1) of POSIX). */
		signal(SIGINT, SIG_DFL);
		signal(SIGQUIT, SIG_DFL);
		execvp(argv[5], argv + 5);
		fprintf(stderr, "%s: %s\n", argv[5], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126); /* as env(1) has it */
	}
	if (child < 0)
		return 125;
	if (samples >= 0)
		stay_on_boot_cpu();
	while (samples >= 0 && sigtimedwait(&child_ends, NULL, &period) < 0)
		sample(what);
	while (wait4(child, &status, 0, &cost) < 0)
		if (errno != EINTR)
			return 125;
	snprintf(path, sizeof(path), "%s/times", argv[1]);
	write_times(path, now() - begin, &cost);
	if (samples >= 0)
		sample(what);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
