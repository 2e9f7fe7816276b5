// SPDX-License-Identifier: GPL-2.0-only
/*
 * marked COMMAND...: runs a command between the markers `begin` and `end`, and ends as it does.
 *
 * TIMES gets what the command cost without this program and what starts it: elapsed by
 * CLOCK_MONOTONIC, user and system of it and of its descendants that were waited for (wait4(2)).
 */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "times.h"

#define TIMES "/job/out/marked.times"

int main(int argc, char **argv)
{
	struct rusage cost;
	int64_t elapsed;
	pid_t child;
	int status;

	if (argc < 2)
		die("usage: marked COMMAND...");
	mark("numalab: begin\n");
	elapsed = now();
	child = fork();
	if (child < 0)
		die("cannot start %s: %s", argv[1], strerror(errno));
	if (child == 0) {
		/* So that `kill 0` in the command spares this program; not where a terminal has jobs. */
		if (!isatty(STDIN_FILENO))
			setpgid(0, 0);
		execvp(argv[1], argv + 1);
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126); /* as env(1) has it */
	}
	if (wait4(child, &status, 0, &cost) < 0)
		die("cannot wait: %s", strerror(errno));
	elapsed = now() - elapsed;
	mark("numalab: end\n");
	write_times(TIMES, elapsed, &cost);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
