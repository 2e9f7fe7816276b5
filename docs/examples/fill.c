/* fill MIB [NODE]: fills memory, on a node if it is given, and says so. Link it with -lnuma. */
#include <numa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	size_t size = (size_t)atoi(argc > 1 ? argv[1] : "32") << 20;
	char *memory = argc > 2 ? numa_alloc_onnode(size, atoi(argv[2])) : malloc(size);

	if (!memory)
		return 1;
	for (int round = 0; round < 4; round++)
		memset(memory, round, size);
	printf("filled %zu MiB\n", size >> 20);
	return 0;
}
