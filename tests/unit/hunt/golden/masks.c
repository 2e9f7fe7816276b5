// SPDX-License-Identifier: GPL-2.0
/*
 * 5 tasks changed nodes 96 times.
 * Needs no root, numa_balancing off, and an idle machine of 4 nodes with 3 CPUs each;
 * distances 10 20 30 40; 20 10 20 30; 30 20 10 20; 40 30 20 10.
 * gcc -O2 -static -o reproducer reproducer.c && ./reproducer
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 2500
#define CPUS 12
#define LIMIT 1.5 /* ms a second that tasks waited while a CPU was idle */

static struct { pid_t pid; unsigned long cpus; } tasks[2];
static int count, failed;
static double idle[CPUS], waited[CPUS];
static char text[64];

static void hog(void)
{
	for (;;) __asm__ volatile("");
}

static void start(void (*run)(void), unsigned long from, unsigned long cpus)
{
	tasks[count].cpus = cpus;
	if ((tasks[count++].pid = fork()))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sched_setaffinity(0, sizeof(from), (cpu_set_t *)&from) ? perror("sched_setaffinity") : run();
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
	for (int i = 0; i < CPUS; i++) {
		sprintf(text, "cpu%d ", i);
		idle[i] += sign * word("/proc/stat", text, 5) * 10;
		waited[i] += sign * word("/proc/schedstat", text, 9) / 1e6;
	}
}

int main(void)
{
	double figure, sum = 0, all = 0;
	for (int i = 0; i < 2; i++)
		start(hog, 0x1UL /* 0 */, 0x41UL /* 0,6 */);
	usleep(100000);
	for (int i = 0; i < count; i++)
		failed |= sched_setaffinity(tasks[i].pid, 8, (cpu_set_t *)&tasks[i].cpus);
	look(-1);
	usleep(MS * 1000);
	look(1);
	if (failed || waitpid(-1, NULL, WNOHANG))
		return puts("not measured: a setting was refused, or a CPU or file is missing"), 2;
	for (int i = 0; i < CPUS; i++) {
		printf("CPU %d: idle for %.0f ms, tasks waited for %.0f ms\n", i, idle[i], waited[i]);
		sum += (0x41UL >> i & 1) * idle[i];
		all += waited[i];
	}
	figure = (sum < all ? sum : all) / (MS / 1e3);
	printf("%s: %.2f ms a second that tasks waited while a CPU was idle, limit %g\n",
	       figure > LIMIT ? "REPRODUCED" : "not reproduced", figure, LIMIT);
}
