/*
 * The file that a plugin maps: numalab writes what to count, the plugin adds the counts. It is
 * mapped, so that it is complete even after SIGKILL.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Map the file of the only argument, `counts=FILE`, of at least `least` bytes. Returns NULL where
 * that fails.
 */
static void *map_counts_file(int argc, char **argv, size_t least, size_t *size)
{
	static const char option[] = "counts=";
	struct stat stat;
	void *mapped;
	int descriptor;

	if (argc != 1 || strncmp(argv[0], option, strlen(option)))
		return NULL;
	descriptor = open(argv[0] + strlen(option), O_RDWR | O_CLOEXEC);
	if (descriptor < 0)
		return NULL;
	if (fstat(descriptor, &stat) || stat.st_size < (off_t)least) {
		close(descriptor);
		return NULL;
	}
	*size = (size_t)stat.st_size;
	mapped = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	close(descriptor);
	return mapped == MAP_FAILED ? NULL : mapped;
}
