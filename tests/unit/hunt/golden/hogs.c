// SPDX-License-Identifier: GPL-2.0
/*
 * 5 tasks changed nodes 96 times.
 * Needs no root, numa_balancing off, and an idle machine of 4 nodes with 3 CPUs each;
 * distances 10 20 30 40; 20 10 20 30; 30 20 10 20; 40 30 20 10.
 * gcc -O2 -static -o reproducer reproducer.c && ./reproducer
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MS 3000
#define LIMIT 1.5 /* changes of CPU a second and task */

static struct { pid_t pid; double ms, moves; } tasks[5];
static int count, failed;
static char text[64];

static void hog(void)
{
	for (;;) __asm__ volatile("");
}

static void start(void (*run)(void))
{
	if ((tasks[count++].pid = fork()))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run();
	_exit(0);
}

static double word(const char *path, const char *key, int field) /* of the line with KEY */
{
	char line[4096], *at = NULL;
	FILE *file = fopen(path, "r");

	while (file && !at && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			for (at = strtok(line, " :\n"); at && --field;)
				at = strtok(NULL, " :\n");
	failed |= !at || fclose(file);
	return at ? atof(at) : 0;
}

static void look(int sign)
{
	for (int i = 0; i < count; i++) {
		sprintf(text, "/proc/%d/schedstat", tasks[i].pid);
		tasks[i].ms += sign * word(text, "", 1) / 1e6;
		sprintf(text, "/proc/%d/sched", tasks[i].pid);
		tasks[i].moves += sign * word(text, "se.nr_migrations", 2);
	}
}

int main(void)
{
	double figure, sum = 0;
	for (int i = 0; i < 5; i++)
		start(hog);
	usleep(100000);
	look(-1);
	usleep(MS * 1000);
	look(1);
	if (failed)
		return puts("not measured: a setting was refused, or a CPU or file is missing"), 2;
	for (int i = 0; i < count; i++) {
		sprintf(text, "/proc/%d/stat", tasks[i].pid);
		printf("task %d: %.0f ms of CPU time, %.0f changes of CPU, last on CPU %.0f\n",
			i, tasks[i].ms, tasks[i].moves, word(text, "", 39));
		sum += tasks[i].moves;
	}
	figure = sum / count / (MS / 1e3);
	printf("%s: %.2f changes of CPU a second and task, limit %g\n",
	       figure > LIMIT ? "REPRODUCED" : "not reproduced", figure, LIMIT);
}
