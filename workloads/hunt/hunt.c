// SPDX-License-Identifier: GPL-2.0-only
/*
 * hunt LOADS: does loads one after the other, with a mark in the trace around each, and leaves
 * nothing running between them.
 *
 * LOADS are separated by `|`, the parts of a load by `;`, the words of a part by spaces:
 *
 *   time ms=N                             how long it takes (first part)
 *   hog n= start= cpus= nice= later=      busy loops in registers
 *   sleeper ... run= sleep=               work RUN us, sleep SLEEP us
 *   waker ... run= sleep=                 pairs: wakes its wakee, works RUN us, sleeps; the wakee works RUN us
 *   forker ... run= sleep= burst=         forks BURST children that work RUN us, reaps them, sleeps
 *   memory ... mib= node= threads= rest=  touches memory that was first touched from START, or on NODE
 *   hotplug cpu= off= on=                 a CPU goes off line and comes back, ms after the begin
 *   cpuset from= to= at=                  all tasks are in a cpuset, whose CPUs change
 *
 * Parts but `memory` may have fifo=PRIO: SCHED_FIFO at that priority.
 *
 * Tasks start bound to START; when all of them run they are allowed on CPUS, and the time begins. At
 * half of it, those with LATER are allowed on LATER instead. `threads=1` makes one process of
 * `memory`, whose tasks share its memory. With REST=1 nothing is touched in the second quarter of the time.
 *
 * NUMA balancing is on in loads with memory users only, and scans every 100 ms to 1 s there.
 *
 * Prints, for each load, the counters of NUMA balancing and the pages that memory users have touched
 * at begin, half and end, the CPU and the CPU
 * time of each process and where the memory of each task lies at the end. As process 1 of a guest it
 * reads LOADS from /loads, and powers off. Work is counted in turns of a loop: TURNS for each us, about a us in
 * icount mode (8 ns for an instruction), less on hardware.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "shared.h"

#define TURNS 62
#define MOST_PARTS 32
#define MOST_TASKS 256
#define MOST_NODES 64
#define PAGE 4096UL
#define CPUSET "/sys/fs/cgroup/hunt"

enum kind { HOG, SLEEPER, WAKER, FORKER, MEMORY, KINDS };
static const char *const names[] = { "hog", "sleeper", "waker", "forker", "memory" };

struct part {
	enum kind kind;
	int n, nice, fifo, node, threads, rest, has_later;
	long run, sleep, burst, mib;
	cpu_set_t start, cpus, later;
};

struct event {
	long ms;
	enum { OFF, ON, SET, HALF } what;
	int cpu;
	char cpus[128];
};

/* What a task tells; in memory that all share. */
struct told {
	volatile int running;
	pid_t thread;
	volatile unsigned long touched; /* pages, one after the other and again */
	int pages[MOST_NODES];
};

static struct shared {
	volatile int resting, stop;
	struct told tasks[MOST_TASKS];
} *shared;

static struct part parts[MOST_PARTS];
static struct event events[MOST_PARTS];
static pid_t pids[MOST_TASKS * 2];
static int part_count, event_count, pid_count, task_count;
static int part_of[MOST_TASKS * 2];
static long load_ms;
static char cpuset_from[128];

static void mark_load(const char *format, int load)
{
	char text[64];

	snprintf(text, sizeof(text), format, load);
	mark(text);
}

static int put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC), done = -1;

	if (file >= 0) {
		done = write(file, text, strlen(text));
		close(file);
	}
	return done < 0 ? -1 : 0;
}

static void add_event(long ms, int what, int cpu, const char *cpus)
{
	struct event *event = &events[event_count++];

	if (event_count > MOST_PARTS)
		die("too many events");
	*event = (struct event){ .ms = ms, .what = what, .cpu = cpu };
	snprintf(event->cpus, sizeof(event->cpus), "%s", cpus);
}

static const char *value(char **words, const char *key, const char *otherwise)
{
	size_t length = strlen(key);

	for (; *words; words++)
		if (!strncmp(*words, key, length) && (*words)[length] == '=')
			return *words + length + 1;
	if (!otherwise)
		die("a part lacks %s=", key);
	return otherwise;
}

static long number(char **words, const char *key, long otherwise, long least, long most)
{
	const char *text = value(words, key, "");

	return *text ? parse_number(key, text, least, most) : otherwise;
}

static void parse_part(char *text)
{
	char *words[32], *save;
	struct part *part;
	const char *later;
	int count = 0, kind;

	for (char *word = strtok_r(text, " ", &save); word && count < 31; word = strtok_r(NULL, " ", &save))
		words[count++] = word;
	words[count] = NULL;
	if (!count)
		return;
	if (!strcmp(words[0], "time")) {
		load_ms = number(words, "ms", 1000, 10, 600000);
		return;
	}
	if (!strcmp(words[0], "hotplug")) {
		int cpu = number(words, "cpu", -1, 1, CPU_SETSIZE - 1);

		add_event(number(words, "off", 0, 0, 600000), OFF, cpu, "");
		add_event(number(words, "on", 0, 0, 600000), ON, cpu, "");
		return;
	}
	if (!strcmp(words[0], "cpuset")) {
		snprintf(cpuset_from, sizeof(cpuset_from), "%s", value(words, "from", NULL));
		add_event(number(words, "at", 0, 0, 600000), SET, 0, value(words, "to", NULL));
		return;
	}
	for (kind = 0; kind < KINDS && strcmp(words[0], names[kind]); kind++)
		;
	if (kind == KINDS || part_count == MOST_PARTS)
		die("unknown part, or too many: %s", words[0]);
	part = &parts[part_count++];
	later = value(words, "later", "");
	*part = (struct part){
		.kind = kind,
		.n = number(words, "n", 1, 1, MOST_TASKS),
		.nice = number(words, "nice", 0, -20, 19),
		.fifo = number(words, "fifo", 0, 1, 98),
		.run = number(words, "run", 1000, 0, 10000000),
		.sleep = number(words, "sleep", 1000, 0, 10000000),
		.burst = number(words, "burst", 1, 1, 64),
		.mib = number(words, "mib", 4, 1, 4096),
		.node = number(words, "node", -1, 0, MOST_NODES - 1),
		.threads = number(words, "threads", 0, 0, 1),
		.rest = number(words, "rest", 0, 0, 1),
		.cpus = parse_cpulist(value(words, "cpus", NULL)),
		.start = parse_cpulist(value(words, "start", value(words, "cpus", NULL))),
		.has_later = *later != 0,
	};
	if (part->has_later)
		part->later = parse_cpulist(later);
}

static void work(long us)
{
	unsigned long turns = us * TURNS;

	if (turns)
		__asm__ volatile("1:\tdec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
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

static char *new_memory(struct part *part, unsigned long pages)
{
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory");
	madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
	if (part->node >= 0) { /* MPOL_PREFERRED (1): until it is touched, then as everywhere */
		unsigned long mask = 1UL << part->node;

		syscall(SYS_set_mempolicy, 1, &mask, MOST_NODES + 1);
	}
	for (unsigned long page = 0; page < pages; page++)
		memory[page * PAGE] = 1;
	if (part->node >= 0)
		syscall(SYS_set_mempolicy, 0, NULL, 0);
	return memory;
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

			for (int line = 0; line < 8; line++)
				at[line * 64]++;
			told->touched++;
		}
	}
	if (!user->part->threads || !user->number)
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

static void fork_children(struct part *part, int place)
{
	for (;;) {
		for (int i = 0; i < part->burst; i++)
			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				rename_task("child", place, i);
				work(part->run);
				_exit(0);
			}
		while (wait(NULL) > 0)
			;
		pause_us(part->sleep);
	}
}

static void be_woken(struct part *part, int from)
{
	char byte;

	while (read(from, &byte, 1) == 1)
		work(part->run);
	_exit(0);
}

static void run_task(struct part *part, int place, int number, int task, int pipe_end)
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
		__asm__ volatile("1:\tinc %%r12\n\tjmp 1b" : : : "r12", "cc");
		break;
	case SLEEPER:
		for (;;) {
			work(part->run);
			pause_us(part->sleep);
		}
	case WAKER:
		for (;;) {
			if (write(pipe_end, "x", 1) != 1)
				_exit(0);
			work(part->run);
			pause_us(part->sleep);
		}
	default:
		fork_children(part, place);
	}
}

static void begin_task(struct part *part)
{
	struct sched_param priority = { .sched_priority = part->fifo };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpriority(PRIO_PROCESS, 0, part->nice);
	if (part->fifo && sched_setscheduler(0, SCHED_FIFO, &priority))
		_exit(1);
	if (sched_setaffinity(0, sizeof(part->start), &part->start))
		_exit(1);
}

static pid_t start_process(int place)
{
	pid_t pid = fork();

	if (pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (pid) {
		pids[pid_count] = pid;
		part_of[pid_count++] = place;
	}
	return pid;
}

static void start_part(int place)
{
	struct part *part = &parts[place];
	int processes = part->kind == MEMORY && part->threads ? 1 : part->n;

	if (task_count + part->n > MOST_TASKS)
		die("too many tasks");
	for (int i = 0; i < processes; i++) {
		int ends[2] = { -1, -1 };

		if (part->kind == WAKER) {
			if (pipe(ends))
				die("no pipe");
			if (!start_process(place)) {
				begin_task(part);
				rename_task("wakee", place, i);
				close(ends[1]);
				be_woken(part, ends[0]);
			}
			close(ends[0]);
		}
		if (!start_process(place)) {
			begin_task(part);
			run_task(part, place, i, task_count + i, ends[1]);
		}
		if (ends[1] >= 0)
			close(ends[1]);
	}
	for (int i = 0; i < part->n; i++) {
		for (int waited = 0; !shared->tasks[task_count + i].running; waited++) {
			if (waited > 10000)
				die("a task of part %d does not start", place);
			pause_us(2000);
		}
	}
	task_count += part->n;
}

/* A thread has a mask of its own, so the threads of a process are bound one by one. */
static void bind_process(int number, const cpu_set_t *cpus)
{
	struct part *part = &parts[part_of[number]];
	int first = 0;

	sched_setaffinity(pids[number], sizeof(*cpus), cpus);
	if (part->kind != MEMORY || !part->threads)
		return;
	for (int place = 0; place < part_of[number]; place++)
		first += parts[place].n;
	for (int i = 0; i < part->n; i++)
		sched_setaffinity(shared->tasks[first + i].thread, sizeof(*cpus), cpus);
}

static void counters(int load, const char *when)
{
	static char text[65536];
	int file = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
	int length = read(file, text, sizeof(text) - 1);
	unsigned long touched = 0;
	char *save;

	for (int task = 0; task < task_count; task++)
		touched += shared->tasks[task].touched;
	close(file);
	text[length > 0 ? length : 0] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!strncmp(line, "numa_hint_faults ", 17) || !strncmp(line, "numa_pages_migrated ", 20) ||
		    !strncmp(line, "numa_pte_updates ", 17))
			printf("load %d %s %s\n", load, when, line);
	printf("load %d %s pages_touched %lu\n", load, when, touched);
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

static void happen(const struct event *event, int load)
{
	char path[96];

	switch (event->what) {
	case OFF:
	case ON:
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", event->cpu);
		if (put(path, event->what == ON ? "1" : "0"))
			printf("load %d cpu %d refused: %s\n", load, event->cpu, strerror(errno));
		mark_load("hunt: load %d event", load);
		break;
	case SET:
		if (put(CPUSET "/cpuset.cpus", event->cpus))
			die("cannot change the cpuset: %s", strerror(errno));
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

/* Fields 14, 15 and 39 of /proc/PID/stat, user and system time in ticks and the CPU (proc(5)). */
static void tell_where(int load)
{
	for (int i = 0; i < pid_count; i++) {
		char path[32], text[512], *field;
		long user = 0, system = 0, cpu = -1;
		int file, length;

		snprintf(path, sizeof(path), "/proc/%d/stat", pids[i]);
		file = open(path, O_RDONLY | O_CLOEXEC);
		if (file < 0)
			continue;
		length = read(file, text, sizeof(text) - 1);
		close(file);
		text[length > 0 ? length : 0] = '\0';
		field = strchr(text, ' ');
		for (int number = 2; field && number <= 39; number++) {
			if (number == 14)
				user = atol(field + 1);
			if (number == 15)
				system = atol(field + 1);
			if (number == 39)
				cpu = atol(field + 1);
			field = strchr(field + 1, ' ');
		}
		printf("load %d process %d part %d cpu %ld ms %ld\n", load, i, part_of[i], cpu,
		       (user + system) * 1000 / sysconf(_SC_CLK_TCK));
	}
}

static void end_tasks(int load)
{
	shared->stop = 1;
	for (int task = 0, place = 0; place < part_count; place++) {
		struct part *part = &parts[place];

		for (int i = 0; i < part->n; i++, task++) {
			struct told *told = &shared->tasks[task];

			if (part->kind != MEMORY)
				continue;
			for (int waited = 0; told->running != 2 && waited < 2000; waited++)
				pause_us(2000);
			for (int node = 0; node < MOST_NODES; node++)
				if (told->pages[node])
					printf("load %d part %d task %d node %d pages %d\n", load, place, i, node,
					       told->pages[node]);
		}
	}
	for (int i = 0; i < pid_count; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < pid_count; i++)
		waitpid(pids[i], NULL, 0);
	if (*cpuset_from)
		rmdir(CPUSET);
}

/* NUMA balancing scans from the beginning and often, so that seconds show what minutes would. */
static void hurry_scans(void)
{
	static const char *const places[] = { /* since 5.13, and before */
		"/sys/kernel/debug/sched/numa_balancing/", "/proc/sys/kernel/numa_balancing_",
	};
	char path[96];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%sscan_delay_ms", places[i]);
		put(path, "50");
		snprintf(path, sizeof(path), "%sscan_period_min_ms", places[i]);
		put(path, "100");
		snprintf(path, sizeof(path), "%sscan_period_max_ms", places[i]);
		put(path, "1000");
	}
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

static void run_load(char *text, int load)
{
	struct timespec began;
	char *save;

	part_count = event_count = pid_count = task_count = 0;
	*cpuset_from = '\0';
	memset(shared, 0, sizeof(*shared));
	for (char *part = strtok_r(text, ";", &save); part; part = strtok_r(NULL, ";", &save))
		parse_part(part);
	add_event(load_ms / 2, HALF, 0, "");
	qsort(events, event_count, sizeof(*events), by_time);
	balance_numa();
	for (int place = 0; place < part_count; place++)
		start_part(place);
	if (*cpuset_from)
		enter_cpuset();
	for (int i = 0; i < pid_count; i++)
		bind_process(i, &parts[part_of[i]].cpus);
	counters(load, "begin");
	mark_load("hunt: load %d begin", load);
	clock_gettime(CLOCK_MONOTONIC, &began);
	for (int i = 0; i < event_count; i++) {
		if (events[i].what == HALF && load_ms >= 4) {
			sleep_until(&began, load_ms / 4);
			shared->resting = 1;
		}
		sleep_until(&began, events[i].ms);
		happen(&events[i], load);
	}
	sleep_until(&began, load_ms);
	mark_load("hunt: load %d end", load);
	counters(load, "end");
	tell_where(load);
	end_tasks(load);
	pause_us(200000);
	mark_load("hunt: load %d over", load);
}

/* As the only program of a guest: what an init has to do before, and LOADS from the file /loads. */
static char *be_init(void)
{
	static char text[16384];
	int console, file, length;

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
	file = open("/loads", O_RDONLY | O_CLOEXEC);
	length = read(file, text, sizeof(text) - 1);
	text[length > 0 ? length : 0] = '\0';
	return text;
}

int main(int argc, char **argv)
{
	char *save, *load, *loads = argv[1];
	int count = 0;

	if (getpid() == 1)
		loads = be_init();
	else if (argc != 2)
		die("usage: hunt LOADS");
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("no memory");
	hurry_scans();
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
