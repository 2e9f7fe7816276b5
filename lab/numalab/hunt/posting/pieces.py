"""Pieces of C from which the reproducer of a case is put together."""

WORK = """
static void work(long us)
{
	for (clock_t end = clock() + us; clock() < end;) ;
}
"""

# What a task does after its settings, with the numbers of its part.
HOG = """\
	for (;;) __asm__ volatile("");
"""
SLEEPER = """\
	for (;; usleep(%(sleep_us)s)) work(%(run_us)s);
"""
WAKEE = """\
	for (char byte; read(ends[count - 1][0], &byte, 1) == 1;)
		work(%(run_us)s);
"""
WAKER = """\
	for (; write(ends[count - 2][1], "", 1) == 1; usleep(%(sleep_us)s))
		work(%(run_us)s);
"""
FORKER = """\
	for (;; usleep(%(sleep_us)s)) {
		for (int child = 0; child < %(burst)s; child++)
			if (!fork()) {
				work(%(run_us)s);
				_exit(0);
			}
		while (wait(NULL) > 0)
			;
	}
"""
BODIES = {
    "hog": {"hog": HOG},
    "sleeper": {"sleeper": SLEEPER},
    "waker": {"wakee": WAKEE, "waker": WAKER},
    "forker": {"forker": FORKER},
}

PUT = """
static void put(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (!file || fputs(text, file) < 0 || fclose(file))
		perror(path), failed = 1;
}
"""

WORD = """
static double word(const char *path, const char *key, int field) /* of the line with KEY */
{
	char line[4096], *at = NULL;
	FILE *file = fopen(path, "r");

	while (file && !at && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			for (at = strtok(line, " :\\n"); at && --field;)
				at = strtok(NULL, " :\\n");
	failed |= !at || fclose(file);
	return at ? atof(at) : 0;
}
"""

# Called before (-1) and after (1). proc(5), Documentation/scheduler/sched-stats.rst.
LOOK = {
    "tasks": """
static void look(int sign)
{
	for (int i = 0; i < count; i++) {
		sprintf(text, "/proc/%d/schedstat", tasks[i].pid);
		tasks[i].ms += sign * word(text, "", 1) / 1e6;
		sprintf(text, "/proc/%d/sched", tasks[i].pid);
		tasks[i].moves += sign * word(text, "se.nr_migrations", 2);
	}
}
""",
    "cpus": """
static void look(int sign)
{
	for (int i = 0; i < CPUS; i++) {
		sprintf(text, "cpu%d ", i);
		idle[i] += sign * word("/proc/stat", text, 5) * 10;
		waited[i] += sign * word("/proc/schedstat", text, 9) / 1e6;
		turns[i] += sign * word("/proc/schedstat", text, 10);
	}
}
""",
    "samples": """
static void sample(long until_ms)
{
	for (; now_ms < until_ms; now_ms += 10, usleep(10000))
		for (int i = 0; i < count; i++) {
			sprintf(text, "/proc/%d/stat", tasks[i].pid);
			outside += !(tasks[i].cpus >> (int)word(text, "", 39) & 1);
		}
}
""",
    "crowds": """
static void sample(long until_ms) /* the second half only, when tasks have spread */
{
	for (; now_ms < until_ms; now_ms += 10, usleep(10000)) {
		int on[CPUS] = { 0 }, least = count, most = 0;
		for (int i = 0; i < count; i++) {
			sprintf(text, "/proc/%d/stat", tasks[i].pid);
			on[(int)word(text, "", 39) % CPUS]++;
		}
		for (int i = 0; i < CPUS; i++) {
			least = ALLOWED >> i & 1 && on[i] < least ? on[i] : least;
			most = ALLOWED >> i & 1 && on[i] > most ? on[i] : most;
		}
		uneven += now_ms < MS / 2 ? 0 : most - least;
	}
}
""",
}
_LAST_CPUS = """\
	for (int i = 0; i < count; i++) {
		sprintf(text, "/proc/%d/stat", tasks[i].pid);
		printf("task %d: last on CPU %.0f\\n", i, word(text, "", 39));
"""
ROWS = {
    "tasks": """\
	for (int i = 0; i < count; i++) {
		sprintf(text, "/proc/%d/stat", tasks[i].pid);
		printf("task %d: %.0f ms of CPU time, %.0f changes of CPU, last on CPU %.0f\\n",
			i, tasks[i].ms, tasks[i].moves, word(text, "", 39));
""",
    "cpus": """\
	for (int i = 0; i < CPUS; i++) {
		printf("CPU %d: idle for %.0f ms, tasks waited for %.0f ms\\n", i, idle[i], waited[i]);
""",
    "samples": _LAST_CPUS,
    "crowds": _LAST_CPUS,
}
