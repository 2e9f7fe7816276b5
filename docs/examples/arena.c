/*
 * arena MIB main|thread: one thread on each node uses MIB of memory. With `main` the first thread
 * allocates and clears all of it, with `thread` its user does. Link it with -lnuma -pthread.
 */
#include <numa.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NODES 64

static size_t size;
static int by_thread;
static char *arenas[MOST_NODES];

static char *new_arena(void)
{
	char *memory = malloc(size);

	if (!memory)
		exit(1);
	return memset(memory, 0, size);
}

static void *user(void *argument)
{
	long node = (long)argument;
	volatile char *arena;

	numa_run_on_node(node);
	if (by_thread)
		arenas[node] = new_arena();
	arena = arenas[node];
	for (int round = 0; round < 4; round++)
		for (size_t byte = 0; byte < size; byte += 64)
			arena[byte]++;
	return NULL;
}

int main(int argc, char **argv)
{
	long nodes = numa_num_configured_nodes();
	pthread_t users[MOST_NODES];

	if (argc != 3 || nodes > MOST_NODES)
		return 2;
	size = (size_t)atoi(argv[1]) << 20;
	by_thread = !strcmp(argv[2], "thread");
	numa_run_on_node(0);
	for (long node = 0; node < nodes && !by_thread; node++)
		arenas[node] = new_arena();
	for (long node = 0; node < nodes; node++)
		if (pthread_create(&users[node], NULL, user, (void *)node))
			return 1;
	for (long node = 0; node < nodes; node++)
		pthread_join(users[node], NULL);
	printf("%ld nodes used %s MiB each\n", nodes, argv[1]);
	return 0;
}
