/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LOADS are separated by `|`, the parts of a load by `;`, the words of a part by spaces:
 *
 *   time ms=N scan=                       how long it takes (first part); NUMA balancing scans SCAN MiB of a
 *                                         process at once (256 in the kernel)
 *   hog n= start= cpus= nice= later=      busy loops in registers; yield=1: yields each 200 us
 *   sleeper ... run= sleep=               work RUN us, sleep SLEEP us
 *   waker ... run= sleep= burst= wakee= over=
 *                                         wakes its BURST wakees over a pipe, socket or futex, works RUN us,
 *                                         sleeps; a wakee works RUN us, on the CPUs of WAKEE if given
 *   forker ... run= sleep= burst= exec=   forks BURST children that work RUN us (exec=1: in a program of their
 *                                         own), reaps them, sleeps
 *   memory ... mib= areas= node= threads= shared= rest= bound=
 *                                         touches memory that was first touched from START, or on NODE; it is of
 *                                         AREAS mappings: with enough of them each thread has its own; with
 *                                         BOUND=1 it is bound to NODE, and NUMA balancing scans it (MPOL_BIND |
 *                                         MPOL_F_NUMA_BALANCING, set_mempolicy(2))
 *   locker ... run= sleep=                takes the lock of all lockers (with priority inheritance), works RUN us
 *                                         with it, gives it back, sleeps
 *   group name= parent= weight= quota= period= burst= cpus= idle= partition=
 *                                         a cgroup; QUOTA ms of CPU time in each PERIOD ms (100), of which it may
 *                                         save BURST ms; partition=1: CPUS are taken from all others
 *   hotplug cpu= off= on=                 a CPU goes off line and comes back, ms after the begin
 *   cpuset from= to= at=                  all tasks are in a cpuset, whose CPUs change
 *   change at= [times= every=] part= [cpus= nice= policy= priority= runtime= period= into= stop= go=]
 *   change at= [times= every=] group= [cpus= weight= quota= period= burst= idle=]
 *                                         what changes, ms after the begin, TIMES times, each EVERY ms; INTO is
 *                                         another group for the tasks; stop=1 and go=1: SIGSTOP, SIGCONT;
 *                                         quota=0: no limit
 *
 * Every part may have policy=fair|batch|idle|fifo|rr|deadline, with priority= (fifo, rr), or runtime= and
 * period= and, if shorter, deadline= in us, reclaim=1 (deadline), resets=1; slice= in us (fair, batch);
 * group=NAME.
 *
 * Tasks start bound to START; when all of them run they are allowed on CPUS, and the time begins. At
 * half of it, those with LATER are allowed on LATER instead. `threads=1` makes one process of
 * `memory`, whose tasks share its memory; with shared=1 its processes share it. With REST=1 nothing is
 * touched in the second quarter of the time.
 */
#ifndef LOAD_H
#define LOAD_H

#include "shared.h"

#define SCANNED "scan_size_mb" /* which few loads set */
#define MOST_PARTS 32
#define MOST_TASKS 256
#define MOST_WAKEES 16
#define MOST_GROUPS 16
#define MOST_EVENTS 256
#define MOST_NODES 64
#define MOST_AREAS 256
#define CGROUPS "/sys/fs/cgroup"
#define NO_NICE 99
#define PATH 512 /* of groups below each other, as many as there may be */
#define LIST 1024 /* a cpulist */

enum kind { HOG, SLEEPER, WAKER, FORKER, MEMORY, LOCKER, KINDS };
static const char *const names[] = { "hog", "sleeper", "waker", "forker", "memory", "locker" };

/* In the order of SCHED_OTHER (0) to SCHED_DEADLINE (6) of linux/sched.h. */
static const char *const policies[] = { "fair", "fifo", "rr", "batch", "", "idle", "deadline" };
enum { POLICIES = 7, DEADLINE = 6 };
static const char *const channels[] = { "pipe", "socket", "futex" };
enum { PIPE, SOCKET, FUTEX, CHANNELS };

/* sched_setattr(2) */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

struct part {
	enum kind kind;
	int n, nice, node, areas, threads, shared, bound, rest, exec, yield, over, has_later, has_wakee;
	long run, sleep, burst, mib;
	struct attributes attributes;
	char group[16], *memory;
	cpu_set_t start, cpus, later, wakee;
};

struct group {
	char name[16], path[PATH], cpus[LIST];
	long weight, quota, period, burst, idle, partition;
};

struct event {
	long ms;
	enum { OFF, ON, SET, HALF, CHANGE } what;
	int cpu, part, stop, go;
	char cpus[LIST], group[16], into[16];
	long nice, weight, quota, period, burst, idle; /* quota, burst and idle: -1 if they stay */
	struct attributes attributes; /* where size is not 0 */
};

static struct part parts[MOST_PARTS];
static struct group groups[MOST_GROUPS];
static struct event events[MOST_EVENTS];
static int part_count, event_count, group_count;
static int load_number;
static long load_ms, scan_mib;
static char cpuset_from[LIST];

static void copy(char *to, size_t size, const char *text)
{
	if (snprintf(to, size, "%s", text) >= (int)size)
		die("longer than %zu letters: %s", size - 1, text);
}

static struct event *add_event(long ms, int what, int cpu, const char *cpus)
{
	struct event *event = &events[event_count++];

	if (event_count > MOST_EVENTS)
		die("too many events");
	*event = (struct event){ .ms = ms, .what = what, .cpu = cpu, .part = -1, .nice = NO_NICE };
	copy(event->cpus, sizeof(event->cpus), cpus);
	return event;
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

/* Words of another name, or without a value, would be ignored. */
static void allow(char **words, const char *valid)
{
	char name[40];

	for (char **word = words + 1; *word; word++) {
		snprintf(name, sizeof(name), " %.*s ", (int)strcspn(*word, "="), *word);
		if (!strchr(*word, '=') || !strstr(valid, name))
			die("%s has no %s (valid:%s)", words[0], *word, valid);
	}
}

static cpu_set_t existing_cpus(const char *text)
{
	cpu_set_t cpus = parse_cpulist(text);
	long count = sysconf(_SC_NPROCESSORS_CONF);

	for (int cpu = count; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus))
			die("the machine has no CPU %d of %s", cpu, text);
	return cpus;
}

static long number(char **words, const char *key, long otherwise, long least, long most)
{
	const char *text = value(words, key, "");

	return *text ? parse_number(key, text, least, most) : otherwise;
}

static int choice(char **words, const char *key, const char *const *choices, int count, int otherwise)
{
	const char *text = value(words, key, "");
	int place;

	if (!*text)
		return otherwise;
	for (place = 0; place < count && strcmp(text, choices[place]); place++)
		;
	if (place == count)
		die("not a %s: %s", key, text);
	return place;
}

static struct attributes parse_attributes(char **words)
{
	long period = number(words, "period", 0, 0, 10000000) * 1000;
	struct attributes attributes = {
		.size = sizeof(attributes),
		.policy = choice(words, "policy", policies, POLICIES, 0),
		.nice = number(words, "nice", 0, -20, 19),
		.priority = number(words, "priority", 0, 1, 98),
		.runtime = number(words, "runtime", 0, 0, 10000000) * 1000,
		.deadline = number(words, "deadline", 0, 0, 10000000) * 1000,
		.period = period,
	};

	if (!attributes.deadline)
		attributes.deadline = period;
	if (attributes.policy != DEADLINE)
		attributes.runtime = number(words, "slice", 0, 0, 100000) * 1000;
	if (number(words, "resets", 0, 0, 1))
		attributes.flags |= 1; /* SCHED_FLAG_RESET_ON_FORK */
	if (number(words, "reclaim", 0, 0, 1))
		attributes.flags |= 2; /* SCHED_FLAG_RECLAIM */
	return attributes;
}

static void name_group(char *name, const char *text)
{
	copy(name, 16, text);
	for (const char *letter = name; *letter; letter++)
		if (*letter < 'a' || *letter > 'z')
			die("not the name of a group: %s", text);
}

static struct group *find_group(const char *name)
{
	for (int i = 0; i < group_count; i++)
		if (!strcmp(groups[i].name, name))
			return &groups[i];
	die("no group is called %s", name);
	return NULL;
}

static void parse_group(char **words)
{
	struct group *group = &groups[group_count];
	const char *parent = value(words, "parent", "");
	const char *above = *parent ? find_group(parent)->path : CGROUPS;
	char name[16];

	allow(words, " name parent weight quota period burst cpus idle partition ");
	if (group_count == MOST_GROUPS)
		die("too many groups");
	*group = (struct group){
		.weight = number(words, "weight", 100, 1, 10000),
		.quota = number(words, "quota", 0, 0, 100000),
		.period = number(words, "period", 100, 1, 1000),
		.burst = number(words, "burst", 0, 0, 100000),
		.idle = number(words, "idle", 0, 0, 1),
		.partition = number(words, "partition", 0, 0, 1),
	};
	name_group(name, value(words, "name", NULL));
	strcpy(group->name, name);
	copy(group->cpus, sizeof(group->cpus), value(words, "cpus", ""));
	/* Not those of an earlier load, which some kernels keep for a while, with their accounts. */
	if (snprintf(group->path, PATH, "%s/hunt%d-%s", above, load_number, name) >= PATH)
		die("too many groups below each other");
	group_count++;
}

static void parse_change(char **words)
{
	long times = number(words, "times", 1, 1, MOST_EVENTS), every = number(words, "every", 0, 0, 600000);
	struct event *event = add_event(number(words, "at", 0, 0, 600000), CHANGE, 0, value(words, "cpus", ""));
	struct event first;

	allow(words, *value(words, "group", "") ? " at times every group cpus weight quota period burst idle " :
		     *value(words, "policy", "") ? " at times every part cpus nice into stop go policy"
						   " priority runtime period " :
		     " at times every part cpus nice into stop go ");
	name_group(event->group, value(words, "group", ""));
	event->part = number(words, "part", -1, 0, MOST_PARTS - 1);
	event->nice = number(words, "nice", NO_NICE, -20, 19);
	event->weight = number(words, "weight", 0, 1, 10000);
	event->quota = number(words, "quota", -1, 0, 100000);
	event->burst = number(words, "burst", -1, 0, 100000);
	event->idle = number(words, "idle", -1, 0, 1);
	event->period = *event->group ? number(words, "period", 0, 1, 1000) : 0;
	event->stop = number(words, "stop", 0, 0, 1);
	event->go = number(words, "go", 0, 0, 1);
	name_group(event->into, value(words, "into", ""));
	if (*value(words, "policy", ""))
		event->attributes = parse_attributes(words);
	first = *event;
	for (long number = 1; number < times; number++) {
		event = add_event(0, CHANGE, 0, "");
		*event = first;
		event->ms += number * every;
	}
}

static void parse_part(char *text)
{
	char *words[32], *save;
	struct part *part;
	const char *later, *wakee;
	int count = 0, kind;

	for (char *word = strtok_r(text, " ", &save); word && count < 31; word = strtok_r(NULL, " ", &save))
		words[count++] = word;
	words[count] = NULL;
	if (count == 31)
		die("a part has too many words");
	if (!count)
		return;
	if (!strcmp(words[0], "time")) {
		allow(words, " ms scan ");
		if (load_ms)
			die("a load has time only once");
		load_ms = parse_number("ms", value(words, "ms", NULL), 10, 600000);
		scan_mib = number(words, "scan", 0, 1, 256);
		return;
	}
	if (!strcmp(words[0], "hotplug")) {
		allow(words, " cpu off on ");
		int cpu = number(words, "cpu", -1, 1, CPU_SETSIZE - 1);

		add_event(number(words, "off", 0, 0, 600000), OFF, cpu, "");
		add_event(number(words, "on", 0, 0, 600000), ON, cpu, "");
		return;
	}
	if (!strcmp(words[0], "cpuset")) {
		allow(words, " from to at ");
		if (*cpuset_from)
			die("a load has cpuset only once");
		copy(cpuset_from, sizeof(cpuset_from), value(words, "from", NULL));
		add_event(number(words, "at", 0, 0, 600000), SET, 0, value(words, "to", NULL));
		return;
	}
	if (!strcmp(words[0], "group")) {
		parse_group(words);
		return;
	}
	if (!strcmp(words[0], "change")) {
		parse_change(words);
		return;
	}
	for (kind = 0; kind < KINDS && strcmp(words[0], names[kind]); kind++)
		;
	if (kind == KINDS || part_count == MOST_PARTS)
		die("unknown part, or too many: %s", words[0]);
	allow(words, " n start cpus nice later run sleep burst wakee over exec mib areas node threads shared rest bound"
		     " yield policy priority runtime period deadline reclaim resets slice group ");
	part = &parts[part_count++];
	later = value(words, "later", "");
	wakee = value(words, "wakee", "");
	*part = (struct part){
		.kind = kind,
		.n = number(words, "n", 1, 1, MOST_TASKS),
		.nice = number(words, "nice", 0, -20, 19),
		.run = number(words, "run", 1000, 0, 10000000),
		.sleep = number(words, "sleep", 1000, 0, 10000000),
		.burst = number(words, "burst", 1, 1, kind == WAKER ? MOST_WAKEES : 64),
		.mib = number(words, "mib", 4, 1, 4096),
		.areas = number(words, "areas", 1, 1, MOST_AREAS),
		.node = number(words, "node", -1, 0, MOST_NODES - 1),
		.threads = number(words, "threads", 0, 0, 1),
		.shared = number(words, "shared", 0, 0, 1),
		.bound = number(words, "bound", 0, 0, 1),
		.rest = number(words, "rest", 0, 0, 1),
		.exec = number(words, "exec", 0, 0, 1),
		.yield = number(words, "yield", 0, 0, 1),
		.over = choice(words, "over", channels, CHANNELS, PIPE),
		.attributes = parse_attributes(words),
		.cpus = existing_cpus(value(words, "cpus", NULL)),
		.start = existing_cpus(value(words, "start", value(words, "cpus", NULL))),
		.has_later = *later != 0,
		.has_wakee = *wakee != 0,
	};
	name_group(part->group, value(words, "group", ""));
	if (part->has_later)
		part->later = existing_cpus(later);
	if (part->has_wakee)
		part->wakee = existing_cpus(wakee);
}

/* 0, or -1 with errno. */
static inline int put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC), done = -1;

	if (file >= 0) {
		done = write(file, text, strlen(text));
		close(file);
	}
	return done < 0 ? -1 : 0;
}

/* A field of /proc/PID/stat (proc(5)) behind the name, or what stands for none. */
static inline long read_stat(pid_t pid, int number, long none)
{
	char path[32], line[512];
	long value = none;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (file && fgets(line, sizeof(line), file)) {
		char *field = strrchr(line, ')');

		for (int at = 2; field && at < number; at++)
			field = strchr(field + 1, ' ');
		value = field ? strtol(field, NULL, 10) : none;
	}
	if (file)
		fclose(file);
	return value;
}

#endif
