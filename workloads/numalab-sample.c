// SPDX-License-Identifier: GPL-2.0-only
/*
 * numalab-sample OUT PERIOD_MS NAME PATH [NAME PATH]... -- COMMAND...: becomes the command, while a
 * process beside it writes what is in the files to OUT, before the command and then every period.
 * It travels on the job disk with workloads whose study samples what a plug-in added.
 *
 * A `*` in a path stands for the numbers below 1024 that are there, in their order. Each moment
 * begins with `@ NANOSECONDS` of CLOCK_MONOTONIC; then come lines of `NAME<tab>PATH<tab>LINE`.
 *
 * The process is nobody's child (init takes it), so that the command waits for none that it did
 * not start, and its times are its own. It sleeps on the boot CPU, and ends with the command.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "numalab.h"

#define MAX_OUTPUT (32 << 20)
#define MAX_NUMBER 1024

static char out[4 << 20], text[1 << 18];
static size_t used, written;
static int samples;

static void put(const char *word, size_t length)
{
	if (used + length <= sizeof(out)) {
		memcpy(out + used, word, length);
		used += length;
	}
}

/* Put the lines of a file if it is there; those without text may separate records. */
static void put_file(const char *name, const char *path)
{
	/* A file that waits for something to happen must not hold up the command. */
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t length = 0;
	char *rest, *line;
	ssize_t got;

	if (file < 0)
		return;
	while (length < sizeof(text) - 1 &&
	       (got = read(file, text + length, sizeof(text) - 1 - length)) > 0)
		length += got;
	close(file);
	text[length] = '\0';
	for (rest = text; (line = strsep(&rest, "\n"));) {
		if (!rest && !*line)
			break; /* behind the end of the last line */
		put(name, strlen(name));
		put("\t", 1);
		put(path, strlen(path));
		put("\t", 1);
		put(line, strlen(line));
		put("\n", 1);
	}
}

/* Mark the numbers for which a folder has an entry; `name` is what stands before them there. */
static void find_numbers(const char *folder, const char *name, char *numbers)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	long number;
	char *end;

	while (entries && (entry = readdir(entries))) {
		if (strncmp(entry->d_name, name, strlen(name)))
			continue;
		number = strtol(entry->d_name + strlen(name), &end, 10);
		if (end > entry->d_name + strlen(name) && number >= 0 && number < MAX_NUMBER)
			numbers[number] = 1;
	}
	if (entries)
		closedir(entries);
}

static void put_source(const char *name, const char *pattern)
{
	const char *star = strchr(pattern, '*');
	char path[256], numbers[MAX_NUMBER] = "", *slash;

	if (!star) {
		put_file(name, pattern);
		return;
	}
	snprintf(path, sizeof(path), "%.*s", (int)(star - pattern), pattern);
	slash = strrchr(path, '/');
	*slash = '\0';
	find_numbers(path, slash + 1, numbers);
	for (int number = 0; number < MAX_NUMBER; number++) {
		if (!numbers[number])
			continue;
		snprintf(path, sizeof(path), "%.*s%d%s", (int)(star - pattern), pattern, number,
			 star + 1);
		put_file(name, path);
	}
}

static void sample(char **sources)
{
	char moment[48];

	used = 0;
	put(moment, snprintf(moment, sizeof(moment), "@ %lld\n", (long long)now()));
	for (; strcmp(sources[0], "--"); sources += 2)
		put_source(sources[0], sources[1]);
	if (written + used <= MAX_OUTPUT && write(samples, out, used) == (ssize_t)used)
		written += used;
}

static void follow(pid_t command, long ms, char **sources)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	for (int file = 0; file <= 2; file++)
		close(file);
	for (;;) {
		sleep_ns(ms * 1000000);
		if (kill(command, 0) < 0)
			_exit(0);
		sample(sources);
	}
}

int main(int argc, char **argv)
{
	pid_t command = getpid(), child;
	int end = 3;
	long ms;

	while (end + 1 < argc && strcmp(argv[end], "--"))
		end += 2;
	if (end + 1 >= argc)
		die("usage: numalab-sample OUT PERIOD_MS NAME PATH... -- COMMAND...");
	ms = parse_number("PERIOD_MS", argv[2], 1, 3600000);
	samples = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (samples < 0)
		die("cannot write %s: %s", argv[1], strerror(errno));
	sample(argv + 3);
	child = fork();
	if (child == 0) {
		if (fork() == 0)
			follow(command, ms, argv + 3);
		_exit(0);
	}
	if (child < 0)
		die("cannot start a process: %s", strerror(errno));
	waitpid(child, NULL, 0);
	execvp(argv[end + 1], argv + end + 1);
	fprintf(stderr, "%s: %s\n", argv[end + 1], strerror(errno));
	return errno == ENOENT ? 127 : 126; /* as env(1) has it */
}
