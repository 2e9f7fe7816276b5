// SPDX-License-Identifier: GPL-2.0
/*
 * Of 40 equal hogs the fullest of 2 CPUs had 12.17 more than the emptiest, in the mean of
 * 1000 ms.
 * Needs no root, numa_balancing off, and an idle machine of 3 nodes with 1 CPU each;
 * distances 10 20 20; 20 10 20; 20 20 10.
 * gcc -O2 -static -o reproducer reproducer.c && ./reproducer
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MS 2000
#define CPUS 3
#define ALLOWED 0x3UL
#define LIMIT 6.0 /* more tasks on the fullest CPU than on the emptiest, in the mean */

static struct { pid_t pid; unsigned long cpus; } tasks[40];
static int count;
static double now_ms, uneven;
static char text[64];

static void hog(void)
{
	for (;;)
		__asm__ volatile("");
}

static void start(void (*run)(void), unsigned long from, unsigned long cpus)
{
	tasks[count].cpus = cpus;
	if ((tasks[count++].pid = fork()))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sched_setaffinity(0, sizeof(from), (cpu_set_t *)&from);
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
	if (file)
		fclose(file);
	return at ? atof(at) : 0;
}

static void sample(long until_ms) /* the second half only, when tasks have spread */
{
	for (; now_ms < until_ms; now_ms += 10, usleep(10000)) {
		int on[CPUS] = { 0 }, least = count, most = 0;

		for (int i = 0; i < count; i++) {
			sprintf(text, "/proc/%d/stat", tasks[i].pid);
			on[(int)word(text, "", 39)]++;
		}
		for (int i = 0; i < CPUS; i++) {
			least = ALLOWED >> i & 1 && on[i] < least ? on[i] : least;
			most = ALLOWED >> i & 1 && on[i] > most ? on[i] : most;
		}
		uneven += now_ms < MS / 2 ? 0 : most - least;
	}
}

int main(void)
{
	double figure;

	for (int i = 0; i < 40; i++)
		start(hog, 0x1UL /* 0 */, 0x3UL /* 0-1 */);
	usleep(100000);
	for (int i = 0; i < count; i++)
		sched_setaffinity(tasks[i].pid, 8, (cpu_set_t *)&tasks[i].cpus);
	sample(2000);
	for (int i = 0; i < count; i++) {
		sprintf(text, "/proc/%d/stat", tasks[i].pid);
		printf("task %d: last on CPU %.0f\n", i, word(text, "", 39));
	}
	figure = uneven / (MS / 20);
	printf("%s: %.2f more tasks on the fullest CPU than on the emptiest, in the mean, limit %g\n",
	       figure > LIMIT ? "REPRODUCED" : "not reproduced", figure, LIMIT);
}
