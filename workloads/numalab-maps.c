// SPDX-License-Identifier: GPL-2.0-only
/*
 * numalab-maps OUT MARKS -- COMMAND...: becomes the command, while a process beside it writes what
 * lies where in the memory of the command's processes to OUT: whenever something was written to the
 * file MARKS, soon after that and after the start, and every 20 ms.
 *
 * A moment begins with `@ NANOSECONDS` of CLOCK_MONOTONIC. Then come, for each process whose memory
 * changed, `process TGID TID...` with its threads, and the lines of /proc/TGID/maps that say what can
 * be written, each after `map `.
 *
 * The process is nobody's child (init takes it), so that the command waits for none that it did not
 * start. It stays on the last CPU, where most programs come last, runs only when nobody else wants
 * that, and ends with the command.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>

#include "numalab.h"

#define MAX_OUTPUT (8 << 20)
#define MAX_PROCESSES 256
#define MAX_THREADS 512
#define LONGEST_MS 20

static char out[1 << 20], text[1 << 18];
static size_t used, written;
static int maps;
static struct {
	int process;
	unsigned long hash;
} before[MAX_PROCESSES];

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(out + used, sizeof(out) - used, format, arguments);
	va_end(arguments);
	if (length > 0 && used + (size_t)length < sizeof(out))
		used += (size_t)length;
}

static size_t slurp(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;

	while (file >= 0 && length < sizeof(text) - 1 &&
	       (got = read(file, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	if (file >= 0)
		close(file);
	text[length] = '\0';
	return length;
}

static void put_threads(int process)
{
	struct dirent *entry;
	char path[32];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", process);
	threads = opendir(path);
	for (int count = 0; threads && count < MAX_THREADS && (entry = readdir(threads));)
		if (atoi(entry->d_name) > 0 && ++count)
			put(" %d", atoi(entry->d_name));
	if (threads)
		closedir(threads);
}

/* FNV-1a: whether the text is the one of the moment before. */
static unsigned long hash_from(size_t start)
{
	unsigned long hash = 0xcbf29ce484222325;

	for (size_t place = start; place < used; place++)
		hash = (hash ^ (unsigned char)out[place]) * 0x100000001b3;
	return hash;
}

static int is_new(int process, unsigned long hash)
{
	int place = 0;

	while (place < MAX_PROCESSES && before[place].process && before[place].process != process)
		place++;
	if (place == MAX_PROCESSES || before[place].hash == hash)
		return place == MAX_PROCESSES;
	before[place].process = process;
	before[place].hash = hash;
	return 1;
}

static void put_process(int process)
{
	size_t start = used;
	char path[32], *rest = text, *line;

	snprintf(path, sizeof(path), "/proc/%d/maps", process);
	if (!slurp(path))
		return; /* a kernel thread, or gone */
	put("process %d", process);
	put_threads(process);
	put("\n");
	while ((line = strsep(&rest, "\n"))) {
		char *access = strchr(line, ' ');

		if (access && (access[2] == 'w' || access[3] != 'x'))
			put("map %s\n", line);
	}
	if (!is_new(process, hash_from(start)))
		used = start;
}

/* The command and what it started have larger numbers than the process that became it, or its own. */
static void put_moment(int command)
{
	struct dirent *entry;
	DIR *all = opendir("/proc");
	size_t start;

	used = 0;
	put("@ %lld\n", (long long)now());
	start = used;
	while (all && (entry = readdir(all))) {
		int process = atoi(entry->d_name);

		if (process >= command && process != getpid())
			put_process(process);
	}
	if (all)
		closedir(all);
	if (used > start && written + used <= MAX_OUTPUT && write(maps, out, used) == (ssize_t)used)
		written += used;
}

static void step_aside(void)
{
	struct sched_param none = {0};
	int last = CPU_SETSIZE - 1;
	cpu_set_t cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	while (last > 0 && !CPU_ISSET(last, &cpus))
		last--;
	CPU_ZERO(&cpus);
	CPU_SET(last, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	sched_setscheduler(0, SCHED_IDLE, &none);
}

static void follow(int command, const char *marks)
{
	int watched = inotify_init1(IN_CLOEXEC), wait_ms = 1;
	struct pollfd mark = {.fd = watched, .events = POLLIN};
	char news[4096];

	inotify_add_watch(watched, marks, IN_MODIFY);
	step_aside();
	for (int file = 0; file <= 2; file++)
		close(file);
	while (kill(command, 0) == 0) {
		if (poll(&mark, watched >= 0, wait_ms) > 0) {
			if (read(watched, news, sizeof(news)) < 0)
				_exit(0);
			wait_ms = 1; /* a program may begin here, and end soon */
		} else {
			wait_ms = wait_ms * 2 < LONGEST_MS ? wait_ms * 2 : LONGEST_MS;
		}
		put_moment(command);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	pid_t command = getpid(), child;

	if (argc < 5 || strcmp(argv[3], "--"))
		die("usage: numalab-maps OUT MARKS -- COMMAND...");
	maps = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (maps < 0)
		die("cannot write %s: %s", argv[1], strerror(errno));
	child = fork();
	if (child == 0) {
		if (fork() == 0)
			follow(command, argv[2]);
		_exit(0);
	}
	if (child < 0)
		die("cannot start a process: %s", strerror(errno));
	waitpid(child, NULL, 0);
	execvp(argv[4], argv + 4);
	fprintf(stderr, "%s: %s\n", argv[4], strerror(errno));
	return errno == ENOENT ? 127 : 126; /* as env(1) has it */
}
