// SPDX-License-Identifier: GPL-2.0-only
/*
 * hunt LOADS: does loads one after the other, with a mark in the trace around each, and leaves
 * nothing running between them.
 *
 * load.h says what a load is.
 *
 * NUMA balancing is on in loads with memory users only, and scans every 100 ms to 1 s there.
 *
 * Prints, for each load, the counters of NUMA balancing and the pages that memory users have touched
 * at begin, half and end, the utilization, preferred node, account and settings of each process and thread
 * (and accounts.h), what children inherit, the CPU time, load and limits of each group, the turns of lockers
 * and their longest wait for the lock, where the memory of each task lies at the end, what queues of
 * groups hold without tasks, how many tasks count as blocked then, and what system calls do (probes.h).
 *
 * As process 1 of a guest it reads LOADS from /loads, and powers off. Work is counted in turns of a loop
 * (shared.h), one for each us.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "shared.h"

#include "accounts.h"
#include "counters.h"
#include "load.h"
#include "probes.h"
#include "settings.h"

#define MOST_PROCESSES 1024
#define PAGE 4096UL
#define CPUSET CGROUPS "/hunt"

/* What a task tells; in memory that all share. */
struct told {
	volatile int running;
	pid_t thread;
	volatile unsigned long touched; /* pages, one after the other and again */
	volatile unsigned long turns;
	volatile long worst; /* the longest wait for the lock, in ns */
	int pages[MOST_NODES];
};

static struct shared {
	volatile int begun, resting, stop, woken; /* how many wakees have their start mask */
	volatile int refused; /* policies, masks and nice levels that the kernel did not set */
	int denied; /* files of groups that it did not write, tasks that did not move, and CPUs */
	volatile int unbound; /* tasks whose memory did not get bound to its node, as before 5.12 */
	unsigned long long usual_slice;
	volatile int changes, alone; /* changes: odd while one happens; and those of one task alone */
	struct compared compared[MOST_PARTS];
	struct probes probes;
	pthread_mutex_t lock;
	volatile int wakes[MOST_PROCESSES]; /* futexes, one for each wakee */
	struct told tasks[MOST_TASKS];
} *shared;

static pid_t pids[MOST_PROCESSES];
static int pid_count, task_count;
static struct timespec groups_made;
static long long admitted_before; /* for deadline tasks, before the load */
static long long blocked_before, io_before; /* tasks, after the load before */
static int part_of[MOST_PROCESSES], is_wakee[MOST_PROCESSES];

static void mark_load(const char *format, int load)
{
	char text[64];

	snprintf(text, sizeof(text), format, load);
	mark(text);
}

/* The begin of a file as text, without more than fits; 0 if it cannot be opened. */
static int get(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC), length;

	*text = '\0';
	if (file < 0)
		return 0;
	length = read(file, text, size - 1);
	close(file);
	text[length > 0 ? length : 0] = '\0';
	return 1;
}

static void work(long us)
{
	if (us > 0)
		__asm__ volatile("1:\t" TURN "sub $1, %0\n\tjnz 1b" : "+r"(us) : : "cc");
}

static void pause_us(long us)
{
	sleep_ns(us * 1000LL);
}

static void rename_task(const char *kind, int part, int number)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%d.%d", kind, part, number);
	prctl(PR_SET_NAME, name);
}

static void count_pages(struct told *told, char *memory, unsigned long pages)
{
	enum { BATCH = 512 };
	static __thread void *where[BATCH];
	static __thread int status[BATCH];

	for (unsigned long done = 0; done < pages; done += BATCH) {
		unsigned long batch = pages - done < BATCH ? pages - done : BATCH;

		for (unsigned long i = 0; i < batch; i++)
			where[i] = memory + (done + i) * PAGE;
		if (syscall(SYS_move_pages, 0, batch, where, NULL, status, 0))
			return;
		for (unsigned long i = 0; i < batch; i++)
			if (status[i] >= 0 && status[i] < MOST_NODES)
				told->pages[status[i]]++;
	}
}

struct user {
	struct part *part;
	int number, place, task;
	char *memory;
	unsigned long pages;
};

/* The kernel merges mappings that lie side by side, but not if only one is left out of core dumps. */
static char *map_memory(struct part *part, int sharing)
{
	unsigned long bytes = part->mib << 20, area = bytes / part->areas / PAGE * PAGE;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory");
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (int i = 1; i < part->areas; i += 2)
		if (madvise(memory + i * area, area, MADV_DONTDUMP))
			die("no mapping of its own: %s", strerror(errno));
	return memory;
}

static char *new_memory(struct part *part, unsigned long pages)
{
	char *memory = part->memory;

	if (!memory)
		memory = map_memory(part, MAP_PRIVATE);
	if (part->node >= 0) { /* MPOL_PREFERRED (1): until it is touched, then as everywhere */
		unsigned long mask = 1UL << part->node;

		syscall(SYS_set_mempolicy, 1, &mask, MOST_NODES + 1);
		if (part->bound && syscall(SYS_mbind, memory, pages * PAGE, 2 | 1 << 13, &mask, MOST_NODES + 1, 0))
			__atomic_add_fetch(&shared->unbound, 1, __ATOMIC_SEQ_CST);
	}
	for (unsigned long page = 0; page < pages; page++)
		memory[page * PAGE] = 1;
	if (part->node >= 0)
		syscall(SYS_set_mempolicy, 0, NULL, 0);
	return memory;
}

/* With enough areas for all threads, each thread has every n-th one. */
static int is_own(const struct user *user, unsigned long page)
{
	const struct part *part = user->part;
	unsigned long area = page / (user->pages / part->areas);

	return !part->threads || part->areas < part->n || area % part->n == (unsigned long)user->number;
}

static void *use_memory(void *argument)
{
	struct user *user = argument;
	struct told *told = &shared->tasks[user->task];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rename_task(user->part->threads ? "thread" : "memory", user->place, user->number);
	told->thread = syscall(SYS_gettid);
	told->running = 1;
	while (!shared->stop) {
		if (user->part->rest && shared->resting) {
			work(500);
			continue;
		}
		for (unsigned long page = 0; page < user->pages && !shared->stop; page++) {
			volatile char *at = user->memory + page * PAGE;

			if (!is_own(user, page))
				continue;
			for (int line = 0; line < 8; line++)
				at[line * 64]++;
			told->touched++;
		}
	}
	if (!(user->part->threads || user->part->shared) || !user->number)
		count_pages(told, user->memory, user->pages);
	told->running = 2;
	for (;;)
		pause_us(1000000);
	return NULL;
}

/* All tasks of a part that are one process. */
static void use_memory_together(struct part *part, int place, int first)
{
	unsigned long pages = part->mib * 256;
	char *memory = new_memory(part, pages);
	struct user *users = calloc(part->n, sizeof(*users));

	for (int i = 0; i < part->n; i++) {
		pthread_t thread;

		users[i] = (struct user){ part, i, place, first + i, memory, pages };
		if (i && pthread_create(&thread, NULL, use_memory, &users[i]))
			die("cannot start a thread");
	}
	use_memory(&users[0]);
}

/* main() does the same as a child without exec. */
static void execute_child(struct part *part, int place, int number)
{
	char words[3][24];

	snprintf(words[0], sizeof(words[0]), "%d", place);
	snprintf(words[1], sizeof(words[1]), "%d", number);
	snprintf(words[2], sizeof(words[2]), "%ld", part->run);
	execl("/proc/self/exe", "hunt", "child", words[0], words[1], words[2], NULL);
	_exit(1);
}

static int has_hotplug(void)
{
	for (int i = 0; i < event_count; i++)
		if (events[i].what == OFF)
			return 1;
	return 0;
}

static struct birth read_birth(pid_t parent)
{
	struct birth birth = { .changes = shared->changes, .alone = shared->alone };

	if (!read_settings(parent, &birth.parent))
		birth.changes = 1;
	return birth;
}

/* Compares a child with its parent, of which nothing may have changed meanwhile: returns whether. */
static int compare_child(int place, const struct birth *birth, int whole)
{
	struct settings parent;
	int differing[INHERITED];

	if (!compare_settings(&birth->parent, whole, has_hotplug(), shared->usual_slice, differing) ||
	    !read_settings(getppid(), &parent) || memcmp(&parent, &birth->parent, sizeof(parent)))
		return 0;
	if (birth->changes % 2 || shared->changes != birth->changes)
		return 0;
	add_compared(&shared->compared[place], differing);
	return 1;
}

/* A child has the settings of its parent at once, and later on, if only its cpuset has changed. */
static void be_child(struct part *part, int place, int number, const struct birth *birth)
{
	enum { PIECE = 50000 };
	int same = compare_child(place, birth, !number); /* /proc takes its time */

	if (part->exec)
		execute_child(part, place, number);
	rename_task("child", place, number);
	for (long left = part->run; left > 0; left -= PIECE) {
		struct birth later;

		work(left < PIECE ? left : PIECE);
		later = read_birth(getppid());
		if (same && later.alone == birth->alone)
			compare_child(place, &later, 0);
	}
	_exit(0);
}

static void fork_children(struct part *part, int place)
{
	/* Where parents enter a cpuset or a group, their children are to begin in it. */
	while ((*cpuset_from || *part->group) && !shared->begun)
		pause_us(1000);
	for (;;) {
		for (int i = 0; i < part->burst; i++) {
			struct birth birth = read_birth(0);

			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				be_child(part, place, i, &birth);
			}
		}
		while (wait(NULL) > 0)
			;
		pause_us(part->sleep);
	}
}

static long futex(volatile int *word, int operation, int value)
{
	return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void be_woken(struct part *part, int from, volatile int *word)
{
	int seen = 0;
	char byte;

	for (;;) {
		if (part->over == FUTEX) {
			while (*word == seen)
				futex(word, FUTEX_WAIT, seen);
			seen = *word;
		} else if (read(from, &byte, 1) != 1) {
			_exit(0);
		}
		work(part->run);
	}
}

/* The ends of its wakees' pipes, or their futexes. */
static void wake_in_turns(struct part *part, const int *ends, volatile int *words)
{
	for (;;) {
		for (int i = 0; i < part->burst; i++) {
			if (part->over == FUTEX) {
				__atomic_add_fetch(&words[i], 1, __ATOMIC_SEQ_CST);
				futex(&words[i], FUTEX_WAKE, 1);
			} else if (write(ends[i], "x", 1) != 1) {
				_exit(0);
			}
		}
		work(part->run);
		pause_us(part->sleep);
	}
}

static void lock_in_turns(struct part *part, struct told *told)
{
	struct timespec before, after;
	long waited;

	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &before);
		pthread_mutex_lock(&shared->lock);
		clock_gettime(CLOCK_MONOTONIC, &after);
		waited = (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
		if (waited > told->worst)
			told->worst = waited;
		work(part->run);
		pthread_mutex_unlock(&shared->lock);
		told->turns++;
		pause_us(part->sleep);
	}
}

static void run_task(struct part *part, int place, int number, int task, const int *ends, volatile int *words)
{
	struct told *told = &shared->tasks[task];

	if (part->kind == MEMORY) {
		struct user user = { part, number, place, task, NULL, part->mib * 256 };

		if (part->threads)
			use_memory_together(part, place, task);
		user.memory = new_memory(part, user.pages);
		use_memory(&user);
	}
	rename_task(names[part->kind], place, number);
	told->running = 1;
	switch (part->kind) {
	case HOG:
		while (part->yield) {
			work(200);
			sched_yield();
		}
		__asm__ volatile("1:\t" TURN "add $1, %%r12\n\tjmp 1b" : : : "r12", "cc");
		break;
	case SLEEPER:
		for (;;) {
			work(part->run);
			pause_us(part->sleep);
		}
	case WAKER:
		wake_in_turns(part, ends, words);
		break;
	case LOCKER:
		lock_in_turns(part, told);
		break;
	default:
		fork_children(part, place);
	}
}

static void set_attributes(pid_t pid, const struct attributes *attributes)
{
	/* Only what was asked for: older kernels refuse a slice of 0. */
	if (syscall(SYS_sched_setattr, pid, attributes, 0)) {
		printf("policy %s refused: %s\n", policies[attributes->policy], strerror(errno));
		__atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
	}
}

static void begin_task(struct part *part)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpriority(PRIO_PROCESS, 0, part->nice);
	if (sched_setaffinity(0, sizeof(part->start), &part->start))
		_exit(1);
}

static pid_t start_process(int place)
{
	pid_t pid;

	if (pid_count == MOST_PROCESSES)
		die("too many processes");
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (pid) {
		pids[pid_count] = pid;
		part_of[pid_count++] = place;
	}
	return pid;
}

/* Starts the wakees of a waker; returns the ends through which it wakes them, and the first futex. */
static int start_wakees(struct part *part, int place, int number, int *ends)
{
	int first = pid_count;

	for (int i = 0; i < part->burst; i++) {
		int both[2] = { -1, -1 };

		if (part->over == SOCKET ? socketpair(AF_UNIX, SOCK_STREAM, 0, both) : pipe(both))
			die("no pipe");
		is_wakee[pid_count] = 1;
		if (!start_process(place)) {
			begin_task(part);
			rename_task("wakee", place, number * part->burst + i);
			__atomic_add_fetch(&shared->woken, 1, __ATOMIC_SEQ_CST);
			close(both[1]);
			be_woken(part, both[0], &shared->wakes[first + i]);
		}
		close(both[0]);
		ends[i] = both[1];
	}
	return first;
}

/* Whether a count reaches a number within 5 s. */
static int await(volatile int *count, int number)
{
	for (int waited = 0; *count < number; waited++) {
		if (waited > 2500)
			return 0;
		pause_us(2000);
	}
	return 1;
}

/* Whether its tasks start. */
static int start_part(int place)
{
	struct part *part = &parts[place];
	int processes = part->kind == MEMORY && part->threads ? 1 : part->n, wakees = shared->woken;

	if (task_count + part->n > MOST_TASKS)
		die("too many tasks");
	if (part->kind == MEMORY && part->shared)
		part->memory = map_memory(part, MAP_SHARED);
	for (int i = 0; i < processes; i++) {
		int ends[MOST_WAKEES], first = 0;

		if (part->kind == WAKER)
			first = start_wakees(part, place, i, ends);
		is_wakee[pid_count] = 0;
		if (!start_process(place)) {
			if (part->kind == FORKER)
				setpgid(0, 0); /* a signal to the group is one to its children, too */
			begin_task(part);
			run_task(part, place, i, task_count + i, ends, &shared->wakes[first]);
		}
		wakees += part->kind == WAKER ? part->burst : 0;
		for (int end = 0; part->kind == WAKER && end < part->burst; end++)
			close(ends[end]);
	}
	task_count += part->n;
	if (!await(&shared->woken, wakees))
		return 0;
	for (int i = task_count - part->n; i < task_count; i++)
		if (!await(&shared->tasks[i].running, 1))
			return 0;
	return 1;
}

/* A thread has attributes of its own, so the threads of a process are changed one by one. */
static void for_threads(int number, void (*change)(pid_t, const void *), const void *value)
{
	struct part *part = &parts[part_of[number]];
	int first = 0;

	change(pids[number], value);
	if (part->kind != MEMORY || !part->threads)
		return;
	for (int place = 0; place < part_of[number]; place++)
		first += parts[place].n;
	for (int i = 1; i < part->n; i++)
		change(shared->tasks[first + i].thread, value);
}

static void bind_thread(pid_t pid, const void *cpus)
{
	if (sched_setaffinity(pid, sizeof(cpu_set_t), cpus) && errno != ESRCH)
		__atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
}

static void renice_thread(pid_t pid, const void *nice)
{
	if (setpriority(PRIO_PROCESS, pid, *(const long *)nice) && errno != ESRCH)
		__atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
}

static void reclass_thread(pid_t pid, const void *attributes)
{
	set_attributes(pid, attributes);
}

/* Wakees with a mask of their own keep it. */
static void bind_process(int number, const cpu_set_t *cpus)
{
	struct part *part = &parts[part_of[number]];

	for_threads(number, bind_thread, is_wakee[number] && part->has_wakee ? &part->wakee : cpus);
}

/* When all have started: a task of a lower priority could not start beside one of a higher. */
static void classify_tasks(void)
{
	for (int i = 0; i < pid_count; i++) {
		const struct attributes *attributes = &parts[part_of[i]].attributes;

		if (attributes->policy || attributes->runtime || attributes->flags)
			for_threads(i, reclass_thread, attributes);
	}
}

static void counters(int load, const char *when)
{
	static char text[65536];
	unsigned long touched = 0;
	char *save;

	for (int task = 0; task < task_count; task++)
		touched += shared->tasks[task].touched;
	get("/proc/vmstat", text, sizeof(text));
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!strncmp(line, "numa_hint_faults ", 17) || !strncmp(line, "numa_pages_migrated ", 20) ||
		    !strncmp(line, "numa_pte_updates ", 17) ||
		    !strncmp(line, "numa_hint_faults_local ", 23))
			printf("load %d %s %s\n", load, when, line);
	printf("load %d %s pages_touched %lu\n", load, when, touched);
	printf("load %d %s refused %d\n", load, when, shared->refused);
	printf("load %d %s denied %d\n", load, when, shared->denied);
	printf("load %d %s unbound %d\n", load, when, shared->unbound);
}

static int by_time(const void *a, const void *b)
{
	const struct event *one = a, *other = b;

	return (one->ms > other->ms) - (one->ms < other->ms);
}

static void sleep_until(const struct timespec *began, long ms)
{
	struct timespec when = *began;

	when.tv_sec += ms / 1000;
	when.tv_nsec += ms % 1000 * 1000000;
	if (when.tv_nsec >= 1000000000) {
		when.tv_sec++;
		when.tv_nsec -= 1000000000;
	}
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

/* 0 if it was refused. */
static int put_in(const struct group *group, const char *file, const char *text)
{
	char path[PATH + 32];

	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	if (!put(path, text))
		return 1;
	shared->denied += errno != ENOENT; /* an old kernel does not have the file */
	printf("group %s: %s %s refused: %s\n", group->name, file, text, strerror(errno));
	return 0;
}

static void write_quota(char *text, const struct group *group)
{
	if (group->quota)
		sprintf(text, "%ld %ld", group->quota * 1000, group->period * 1000);
	else
		sprintf(text, "max %ld", group->period * 1000);
}

static int put_quota(const struct group *group)
{
	char text[64];

	write_quota(text, group);
	return put_in(group, "cpu.max", text);
}

static int put_burst(const struct group *group, long burst)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", burst * 1000);
	return put_in(group, "cpu.max.burst", text);
}

static int put_weight(const struct group *group, long weight)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", weight);
	return put_in(group, "cpu.weight", text);
}

/* 1 if a file reads other than was written. */
static int is_wrong(const struct group *group, const char *file, const char *written)
{
	char path[PATH + 32], text[64];

	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	if (!get(path, text, sizeof(text)))
		return 0; /* an old kernel */
	text[strcspn(text, "\n")] = '\0';
	return strcmp(text, written) != 0;
}

static int has_wrong_cpus(const struct group *group)
{
	char path[PATH + 32], text[LIST];
	cpu_set_t written, read;

	snprintf(path, sizeof(path), "%s/cpuset.cpus", group->path);
	if (!*group->cpus || !get(path, text, sizeof(text)))
		return 0;
	text[strcspn(text, "\n")] = '\0';
	if (!*text)
		return 1;
	written = parse_cpulist(group->cpus);
	read = parse_cpulist(text);
	return !CPU_EQUAL(&written, &read);
}

/* How many of a group's files read other than was written. */
static int count_wrong(const struct group *group)
{
	char quota[64], burst[32], weight[24];

	write_quota(quota, group);
	snprintf(burst, sizeof(burst), "%ld", group->burst * 1000);
	snprintf(weight, sizeof(weight), "%ld", group->weight);
	return is_wrong(group, "cpu.max", quota) + is_wrong(group, "cpu.max.burst", burst) +
	       is_wrong(group, "cpu.idle", group->idle ? "1" : "0") + has_wrong_cpus(group) +
	       (!group->idle && is_wrong(group, "cpu.weight", weight));
}

static void move_process(int number, const char *group)
{
	char text[24];

	snprintf(text, sizeof(text), "%d", pids[number]);
	put_in(find_group(group), "cgroup.procs", text);
}

/* Parents come before their children. */
static void make_groups(void)
{
	if (!group_count)
		return;
	clock_gettime(CLOCK_MONOTONIC, &groups_made);
	mount("none", CGROUPS, "cgroup2", 0, NULL); /* it may be there already */
	put(CGROUPS "/cgroup.subtree_control", "+cpuset +cpu");
	for (int i = 0; i < group_count; i++) {
		struct group *group = &groups[i];
		size_t length = strlen(group->path);

		if (mkdir(group->path, 0755) && errno != EEXIST)
			die("no group %s: %s", group->name, strerror(errno));
		for (int child = i + 1; child < group_count; child++)
			if (!strncmp(groups[child].path, group->path, length) && groups[child].path[length] == '/') {
				put_in(group, "cgroup.subtree_control", "+cpuset +cpu");
				break;
			}
		put_in(group, "cpu.idle", group->idle ? "1" : "0");
		if (!group->idle)
			put_weight(group, group->weight);
		put_quota(group);
		if (group->burst && put_burst(group, group->burst))
			put_quota(group); /* which keeps the burst */
		put_in(group, "cpuset.cpus", *group->cpus ? group->cpus : "\n");
		if (group->partition)
			put_in(group, "cpuset.cpus.partition", "root");
	}
	for (int i = 0; i < pid_count; i++)
		if (*parts[part_of[i]].group)
			move_process(i, parts[part_of[i]].group);
}

static void remove_groups(void)
{
	for (int i = group_count - 1; i >= 0; i--)
		for (int tried = 0; rmdir(groups[i].path) && errno == EBUSY && tried < 1000; tried++)
			pause_us(2000); /* until the children of forkers are gone */
}

/* A burst that is larger than a quota, before or after, is refused. */
static void change_quota(struct group *group, const struct event *event)
{
	struct group changed = *group;

	if (event->quota >= 0)
		changed.quota = event->quota;
	if (event->period)
		changed.period = event->period;
	if (changed.burst > event->burst && event->burst >= 0 && put_burst(group, event->burst))
		changed.burst = group->burst = event->burst;
	if ((event->quota >= 0 || event->period) && put_quota(&changed))
		*group = changed;
	if (group->burst < event->burst && put_burst(group, event->burst))
		group->burst = event->burst;
}

static void change_group(const struct event *event)
{
	struct group *group = find_group(event->group);

	if (event->weight && put_weight(group, event->weight))
		group->weight = event->weight;
	if (*event->cpus && put_in(group, "cpuset.cpus", event->cpus))
		strcpy(group->cpus, event->cpus);
	change_quota(group, event);
	if (event->idle >= 0 && put_in(group, "cpu.idle", event->idle ? "1" : "0")) {
		group->idle = event->idle;
		if (!group->idle)
			put_weight(group, group->weight); /* the kernel forgot it */
	}
}

static void change_part(const struct event *event)
{
	cpu_set_t cpus;

	if (*event->cpus)
		cpus = parse_cpulist(event->cpus);
	for (int i = 0; i < pid_count; i++) {
		if (part_of[i] != event->part)
			continue;
		if (*event->into)
			move_process(i, event->into);
		if (*event->cpus)
			bind_process(i, &cpus);
		if (event->nice != NO_NICE)
			for_threads(i, renice_thread, &event->nice);
		if (event->attributes.size)
			for_threads(i, reclass_thread, &event->attributes);
		if (event->stop)
			kill(pids[i], SIGSTOP);
		if (event->go)
			kill(pids[i], SIGCONT);
	}
}

static void happen(const struct event *event, int load)
{
	char path[96];

	switch (event->what) {
	case OFF:
	case ON:
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", event->cpu);
		if (put(path, event->what == ON ? "1" : "0")) {
			printf("load %d cpu %d refused: %s\n", load, event->cpu, strerror(errno));
			shared->denied++;
		}
		mark_load("hunt: load %d event", load);
		break;
	case SET:
		if (put(CPUSET "/cpuset.cpus", event->cpus))
			die("cannot change the cpuset: %s", strerror(errno));
		mark_load("hunt: load %d event", load);
		break;
	case CHANGE:
		if (*event->group)
			change_group(event);
		else
			change_part(event);
		mark_load("hunt: load %d event", load);
		break;
	case HALF:
		shared->resting = 0;
		for (int i = 0; i < pid_count; i++)
			if (parts[part_of[i]].has_later)
				bind_process(i, &parts[part_of[i]].later);
		counters(load, "half");
		mark_load("hunt: load %d half", load);
	}
}

static void enter_cpuset(void)
{
	char text[32];

	mount("none", "/sys/fs/cgroup", "cgroup2", 0, NULL); /* it may be there already */
	put("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
	if (mkdir(CPUSET, 0755) && errno != EEXIST)
		die("no cpuset: %s", strerror(errno));
	if (put(CPUSET "/cpuset.cpus", cpuset_from))
		die("cannot set the cpuset: %s", strerror(errno));
	for (int i = 0; i < pid_count; i++) {
		snprintf(text, sizeof(text), "%d", pids[i]);
		if (put(CPUSET "/cgroup.procs", text))
			die("cannot enter the cpuset: %s", strerror(errno));
	}
}

/* The value of a line `NAME : VALUE` of /proc/PID/sched; -1 without it. */
static long field_of(const char *text, const char *name)
{
	const char *field = strstr(text, name);

	field = field ? strchr(field, ':') : NULL;
	return field ? atol(field + 1) : -1;
}

/* /proc/PID/schedstat: ns on a CPU and ns in run queues (Documentation/scheduler/sched-stats.rst). */
static void tell_account(int load, pid_t pid, long switches, long migrations)
{
	unsigned long long ran, waited;
	char path[32], text[96];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	if (get(path, text, sizeof(text)) && sscanf(text, "%llu %llu", &ran, &waited) == 2)
		printf("load %d pid %d ran_ns %llu waited_ns %llu switches %ld migrations %ld\n", load, pid, ran,
		       waited, switches, migrations);
}

/* What the scheduler prints of itself; NULL without CONFIG_SCHED_DEBUG. */
static FILE *open_debug(void)
{
	FILE *file = fopen("/sys/kernel/debug/sched/debug", "re"); /* since 5.13 */

	return file ? file : fopen("/proc/sched_debug", "re");
}

/* The group whose queue a line is of (print_cfs_rq()), -1 for none; AT is that of the line before. */
static int group_at(const char *line, int at)
{
	const char *path = strstr(line, "]:");

	if (*line == ' ' || *line == '\n')
		return at;
	if (!path || strncmp(line, "cfs_rq[", 7))
		return -1;
	for (at = group_count - 1; at >= 0; at--) {
		const char *name = groups[at].path + strlen(CGROUPS);

		if (!strncmp(path + 2, name, strlen(name)) && path[2 + strlen(name)] == '\n')
			break;
	}
	return at;
}

/*
 * The load of each group, and what of it queues have that the kernel still updates: all of it, but that
 * of throttled queues (list_add_leaf_cfs_rq(), kernel/sched/fair.c; print_cfs_rq(), kernel/sched/debug.c).
 */
static void sum_loads(long *loads, long *listed)
{
	FILE *file = open_debug();
	char line[PATH + 64];
	int at = -1;

	while (file && fgets(line, sizeof(line), file)) {
		long value;

		at = group_at(line, at);
		if (at >= 0 && sscanf(line, " .tg_load_avg_contrib : %ld", &value) == 1)
			listed[at] = (listed[at] == -1 ? 0 : listed[at]) + value;
		else if (at >= 0 && sscanf(line, " .tg_load_avg : %ld", &value) == 1)
			loads[at] = value;
	}
	if (file)
		fclose(file);
}

/* The number in a line `NAME NUMBER`; -1 without it. */
static long long line_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	return line ? atoll(line + strlen(name)) : -1;
}

static unsigned long long used_before[MOST_GROUPS];
static struct timespec noted;
static long delay_us; /* from there to the begin: real-time tasks may take all CPUs */
static long long throttled_before[MOST_GROUPS];

/* Reads cpu.stat of a group. */
static int read_usage(int place, char *text, size_t size, unsigned long long *used)
{
	char path[PATH + 32];

	snprintf(path, sizeof(path), "%s/cpu.stat", groups[place].path);
	return get(path, text, size) && sscanf(text, "usage_usec %llu", used) == 1;
}

/* Tasks run in their groups before a load begins, on large machines for long. */
static void note_usage(void)
{
	char text[512];

	clock_gettime(CLOCK_MONOTONIC, &noted);
	for (int i = 0; i < group_count; i++) {
		used_before[i] = 0;
		throttled_before[i] = 0;
		if (read_usage(i, text, sizeof(text), &used_before[i]))
			throttled_before[i] = line_of(text, "\nnr_throttled ");
	}
}

/* What cpu.stat says of a quota since the groups were made, but LATE since the begin; -1 on older kernels. */
static void tell_limits(int load, int place, const char *text)
{
	long long throttled = line_of(text, "\nnr_throttled ");
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("load %d group %s since_us %lld used_us %lld user_us %lld system_us %lld periods %lld throttled %lld"
	       " throttled_us %lld bursts %lld burst_us %lld late %lld\n",
	       load, groups[place].name,
	       (now.tv_sec - groups_made.tv_sec) * 1000000LL + (now.tv_nsec - groups_made.tv_nsec) / 1000,
	       line_of(text, "usage_usec "), line_of(text, "\nuser_usec "), line_of(text, "\nsystem_usec "),
	       line_of(text, "\nnr_periods "),
	       throttled, line_of(text, "\nthrottled_usec "),
	       line_of(text, "\nnr_bursts "), line_of(text, "\nburst_usec "),
	       throttled - throttled_before[place]);
}

/*
 * Of each group: its CPU time since the begin, its load, and the files that are wrong
 * (admin-guide/cgroup-v2.rst).
 */
static void tell_groups(int load)
{
	long loads[MOST_GROUPS] = { 0 }, listed[MOST_GROUPS];

	for (int i = 0; i < group_count; i++)
		listed[i] = -1;
	if (group_count) {
		pause_us(100000); /* until what just stopped is forgotten */
		sum_loads(loads, listed);
	}
	for (int i = 0; i < group_count; i++) {
		unsigned long long used;
		char text[512];

		if (read_usage(i, text, sizeof(text), &used)) {
			printf("load %d group %s used_us %lld load %ld listed %ld wrong %d delay_us %ld\n", load,
			       groups[i].name, (long long)(used - used_before[i]), loads[i], listed[i],
			       count_wrong(&groups[i]), delay_us);
			tell_limits(load, i, text);
		}
	}
}

/* Waits up to a second, until the children of forkers are gone. */
static void await_empty(const struct group *group)
{
	char path[PATH + 32], text[128];

	snprintf(path, sizeof(path), "%s/cgroup.events", group->path);
	for (int tried = 0; tried < 100; tried++) {
		if (!get(path, text, sizeof(text)) || !strstr(text, "populated 1"))
			return;
		pause_us(10000);
	}
}

struct left {
	long on[CPU_SETSIZE], sum;
	char field[32];
};

/* What without tasks is 0 in a queue (print_cfs_rq(), 5.10 to 7.3). */
static int counts_tasks(const char *field)
{
	return !strcmp(field, "nr_running") || !strcmp(field, "nr_queued") || !strncmp(field, "h_nr_", 5) ||
	       !strncmp(field, "idle_", 5) || !strncmp(field, "throttle", 8);
}

/* A queue that is no longer printed, as the kernel does not update it, keeps what it had. */
static int read_left(struct left *left)
{
	FILE *file = open_debug();
	int at = -1, cpu = 0, any = 0;
	char line[PATH + 64];

	while (file && fgets(line, sizeof(line), file)) {
		char field[32];
		long value;

		at = group_at(line, at);
		if (at < 0)
			continue;
		if (sscanf(line, "cfs_rq[%d]", &cpu) == 1 && cpu >= 0 && cpu < CPU_SETSIZE) {
			left[at].sum -= left[at].on[cpu];
			left[at].on[cpu] = 0;
		} else if (sscanf(line, " .%31s : %ld", field, &value) == 2 && value && counts_tasks(field)) {
			left[at].on[cpu] += labs(value);
			left[at].sum += labs(value);
			strcpy(left[at].field, field);
		}
	}
	if (file)
		fclose(file);
	for (int i = 0; i < group_count; i++)
		any |= left[i].sum != 0;
	return any;
}

/* What the queues of groups hold 5 s after their last tasks; throttled ones need periods. */
static void tell_left(int load)
{
	static struct left left[MOST_GROUPS];

	if (!group_count || access("/proc/self/sched", F_OK))
		return;
	memset(left, 0, sizeof(left));
	for (int i = 0; i < group_count; i++)
		await_empty(&groups[i]);
	pause_us(100000); /* an idle CPU forgets at once who sleeps */
	for (int tried = 0; tried < 50 && read_left(left); tried++)
		pause_us(100000);
	for (int i = 0; i < group_count; i++)
		printf("load %d group %s left %ld %s\n", load, groups[i].name, left[i].sum,
		       left[i].sum ? left[i].field : "nothing");
}

static void tell_settings_of(pid_t pid, const void *whose)
{
	tell_settings(pid, whose);
}

static void tell_all_settings(int load)
{
	char whose[64];

	for (int i = 0; i < pid_count; i++) {
		snprintf(whose, sizeof(whose), "load %d part %d wakee %d", load, part_of[i], is_wakee[i]);
		for_threads(i, tell_settings_of, whose);
	}
	for (int place = 0; place < part_count; place++)
		if (parts[place].kind == FORKER)
			tell_compared(load, place, &shared->compared[place]);
}

/* To all tasks, also the children of forkers: what they run is in the accounts of groups. */
static void signal_all(int signal)
{
	for (int i = 0; i < pid_count; i++)
		kill(parts[part_of[i]].kind == FORKER ? -pids[i] : pids[i], signal);
}

/*
 * What the kernel takes for the utilization of each process, and the node that NUMA balancing prefers
 * for it; its account, and those of the groups. Of a task that is stopped the utilization is that of the
 * moment at which it stopped.
 */
static void tell_task_states(int load)
{
	static char text[8192];

	if (access("/proc/self/sched", F_OK))
		return; /* a kernel without CONFIG_SCHED_DEBUG */
	signal_all(SIGSTOP);
	pause_us(10000);
	tell_cpus(load, "last");
	mark_load("hunt: load %d stopped", load);
	for (int i = 0; i < pid_count; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/proc/%d/sched", pids[i]);
		if (!get(path, text, sizeof(text)))
			continue;
		printf("load %d pid %d utilization %ld preferred %ld\n", load, pids[i],
		       field_of(text, "se.avg.util_avg"), field_of(text, "numa_preferred_nid"));
		tell_account(load, pids[i], field_of(text, "nr_switches"), field_of(text, "se.nr_migrations"));
		tell_threads(load, pids[i]);
	}
	tell_threads(load, getpid()); /* it may be in a NUMA group, as it shares memory with all */
	tell_all_settings(load);
	tell_groups(load);
	signal_all(SIGCONT);
}

/* Tasks that ended, and not because one that they talk to did. */
static void tell_deaths(int load)
{
	for (int i = 0; i < pid_count; i++) {
		siginfo_t info = { 0 };

		if (waitid(P_PID, pids[i], &info, WNOHANG | WEXITED | WNOWAIT) || !info.si_pid)
			continue;
		if (info.si_code == CLD_EXITED && info.si_status)
			printf("load %d part %d ended with %d\n", load, part_of[i], info.si_status);
		else if (info.si_code != CLD_EXITED && info.si_status != SIGPIPE)
			printf("load %d part %d ended by signal %d\n", load, part_of[i], info.si_status);
	}
}

static void end_tasks(int load)
{
	shared->stop = 1;
	for (int task = 0, place = 0; place < part_count; place++) {
		struct part *part = &parts[place];

		for (int i = 0; i < part->n; i++, task++) {
			struct told *told = &shared->tasks[task];

			if (part->kind == LOCKER)
				printf("load %d part %d task %d turns %lu worst_us %ld\n", load, place, i,
				       told->turns, told->worst / 1000);
			if (part->kind != MEMORY)
				continue;
			for (int waited = 0; told->running == 1 && waited < 2000; waited++)
				pause_us(2000);
			for (int node = 0; node < MOST_NODES; node++)
				if (told->pages[node])
					printf("load %d part %d task %d node %d pages %d\n", load, place, i, node,
					       told->pages[node]);
		}
	}
	tell_deaths(load);
	for (int i = 0; i < pid_count; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < pid_count; i++)
		waitpid(pids[i], NULL, 0);
	if (*cpuset_from)
		rmdir(CPUSET);
	tell_left(load);
	remove_groups();
	for (int place = 0; place < part_count; place++)
		if (parts[place].memory)
			munmap(parts[place].memory, parts[place].mib << 20);
}

/* NUMA balancing scans from the beginning and often, so that seconds show what minutes would. */
static long usual_mib; /* that are scanned at once */
static const char *const scans[] = { /* since 5.13, and before */
	"/sys/kernel/debug/sched/numa_balancing/", "/proc/sys/kernel/numa_balancing_",
};

static void tune_scans(const char *name, long number)
{
	char path[96], text[16];

	snprintf(text, sizeof(text), "%ld", number);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s%s", scans[i], name);
		put(path, text);
	}
}

static void hurry_scans(void)
{
	char path[96], text[16];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s" SCANNED, scans[i]);
		if (get(path, text, sizeof(text)))
			usual_mib = atol(text);
	}
	tune_scans("scan_delay_ms", 50);
	tune_scans("scan_period_min_ms", 100);
	tune_scans("scan_period_max_ms", 1000);
}

/*
 * Without memory users load balancing is asked alone: a fault on its code can move a hog, too.
 * A kernel without NUMA balancing has neither of the two places.
 */
static void balance_numa(void)
{
	int wanted = 0;

	for (int place = 0; place < part_count; place++)
		wanted |= parts[place].kind == MEMORY;
	if (put("/proc/sys/kernel/numa_balancing", wanted ? "1" : "0") &&
	    !access("/sys/kernel/debug/sched/numa_balancing", F_OK))
		die("cannot turn NUMA balancing on or off: /proc/sys/kernel/numa_balancing: %s",
		    strerror(errno));
}

/* One lock of all processes, which lends a waiter's priority to its holder. */
static void make_lock(void)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	if (pthread_mutex_init(&shared->lock, &attributes))
		die("no lock with priority inheritance");
}

/* Whether a task has a policy, at first or after a change. */
static int uses(unsigned policy)
{
	int does = 0;

	for (int place = 0; place < part_count; place++)
		does |= parts[place].attributes.policy == policy;
	for (int i = 0; i < event_count; i++)
		does |= events[i].attributes.policy == policy;
	return does;
}

/* Before real-time tasks, which would delay what the load asks for. Its children are not (sched(7)). */
static void go_first(int wanted)
{
	struct sched_param param = { .sched_priority = wanted ? 99 : 0 };

	sched_setscheduler(0, wanted ? SCHED_FIFO | SCHED_RESET_ON_FORK : SCHED_OTHER, &param);
}

/* The sum of a line `.NAME : VALUE` over all CPUs on line (print_cpu(), print_dl_rq()). */
static long long sum_of(const char *format)
{
	FILE *file = open_debug();
	long long sum = 0, value;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, format, &value) == 1)
			sum += value;
	if (file)
		fclose(file);
	return sum;
}

/* What is admitted for deadline tasks, once for each CPU of a root domain. */
static long long sum_admitted(void)
{
	return sum_of(" .dl_bw->total_bw : %lld");
}

/* Tasks in uninterruptible sleep: the sum only counts, as each wakes up on any CPU. */
static long long sum_blocked(void)
{
	return (int)sum_of(" .nr_uninterruptible : %lld"); /* 5.14 to 5.18 print it without a sign */
}

/* Tasks that wait for a device (proc(5)). */
static long long count_io(void)
{
	static char text[65536];

	return get("/proc/stat", text, sizeof(text)) ? line_of(text, "\nprocs_blocked ") : 0;
}

/* What a count is more than before, up to 2 s later: it may take periods until all is given back. */
static long long left_of(long long (*count)(void), long long before)
{
	long long left = 0;

	for (int tried = 0; tried < 20 && (left = count() - before); tried++)
		pause_us(100000);
	return left;
}

/* Not where CPUs have gone: each has a part of the count. */
static void tell_blocked(int load)
{
	static long cpus_before;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), blocked = left_of(sum_blocked, blocked_before);
	long io = left_of(count_io, io_before);

	blocked_before += blocked;
	io_before += io;
	if (load >= 0 && cpus == cpus_before)
		printf("load %d end blocked %ld\nload %d end blocked_by_io %ld\n", load, blocked, load, io);
	cpus_before = cpus;
}

static void end_load(int load)
{
	end_tasks(load);
	if (scan_mib && usual_mib)
		tune_scans(SCANNED, usual_mib);
	go_first(0);
	pause_us(200000);
	if (uses(SCHED_DEADLINE))
		printf("load %d end admitted_left %lld\n", load, left_of(sum_admitted, admitted_before));
	tell_blocked(load);
	tell_probes(load);
	mark_load("hunt: load %d over", load);
}

static void begin_change(int alone)
{
	shared->alone += alone;
	shared->changes++;
}

static void run_load(char *text, int load)
{
	struct timespec began;
	char *save;

	part_count = event_count = pid_count = task_count = group_count = 0;
	load_number = load;
	load_ms = 0;
	scan_mib = 0;
	*cpuset_from = '\0';
	memset(shared, 0, sizeof(*shared));
	shared->usual_slice = read_usual_slice();
	make_lock();
	for (char *part = strtok_r(text, ";", &save); part; part = strtok_r(NULL, ";", &save))
		parse_part(part);
	load_ms = load_ms ? load_ms : 1000;
	add_event(load_ms / 2, HALF, 0, "");
	qsort(events, event_count, sizeof(*events), by_time);
	admitted_before = uses(SCHED_DEADLINE) ? sum_admitted() : 0;
	balance_numa();
	if (scan_mib)
		tune_scans(SCANNED, scan_mib);
	go_first(uses(SCHED_FIFO) || uses(SCHED_RR));
	tell_cpus(load, "first");
	for (int place = 0; place < part_count; place++)
		if (!start_part(place)) {
			printf("load %d part %d does not start\n", load, place);
			end_load(load);
			return;
		}
	begin_change(1);
	classify_tasks();
	if (*cpuset_from)
		enter_cpuset();
	make_groups();
	for (int i = 0; i < pid_count; i++)
		bind_process(i, &parts[part_of[i]].cpus);
	shared->changes++;
	shared->begun = 1;
	counters(load, "begin");
	tell_counters(load, "begin");
	note_usage();
	mark_load("hunt: load %d begin", load);
	clock_gettime(CLOCK_MONOTONIC, &began);
	delay_us = (began.tv_sec - noted.tv_sec) * 1000000L + (began.tv_nsec - noted.tv_nsec) / 1000;
	for (int i = 0; i < event_count; i++) {
		if (events[i].what == HALF && load_ms >= 4) {
			sleep_until(&began, load_ms / 4);
			shared->resting = 1;
		}
		sleep_until(&began, events[i].ms);
		begin_change(events[i].what != SET && !*events[i].group);
		happen(&events[i], load);
		shared->changes++;
	}
	sleep_until(&began, load_ms);
	mark_load("hunt: load %d end", load);
	tell_counters(load, "end");
	counters(load, "end");
	tell_task_states(load); /* which sends interrupts, and so comes after the counters */
	end_load(load);
}

/* As the only program of a guest: what an init has to do before, and LOADS from the file /loads. */
static char *be_init(void)
{
	static char text[16384];
	int console;

	mkdir("/dev", 0755);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("none", "/dev", "devtmpfs", 0, NULL);
	mount("none", "/proc", "proc", 0, NULL);
	mount("none", "/sys", "sysfs", 0, NULL);
	mount("none", "/sys/kernel/debug", "debugfs", 0, NULL);
	console = open("/dev/console", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(console, i);
	get("/loads", text, sizeof(text));
	return text;
}

int main(int argc, char **argv)
{
	char *save, *load, *loads = argv[1];
	int count = 0;

	if (getpid() == 1)
		loads = be_init();
	else if (argc == 5 && !strcmp(argv[1], "child")) {
		rename_task("child", parse_number("PART", argv[2], 0, MOST_PARTS), parse_number("NUMBER", argv[3], 0, 999));
		work(parse_number("RUN", argv[4], 0, 10000000));
		return 0;
	} else if (argc != 2)
		die("usage: hunt LOADS");
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("no memory");
	probes = &shared->probes;
	hurry_scans();
	count_balancing();
	tell_blocked(-1);
	mark("numalab: begin");
	for (load = strtok_r(loads, "|", &save); load; load = strtok_r(NULL, "|", &save)) {
		run_load(load, count++);
		fflush(stdout);
	}
	mark("numalab: end");
	printf("loads %d done\n", count);
	fflush(stdout);
	if (getpid() == 1)
		reboot(RB_POWER_OFF);
	return 0;
}
