// SPDX-License-Identifier: GPL-2.0-only
/*
 * fill-files FOLDER THREADS FILES KIB: each thread makes FILES files of KIB KiB, 100 to a folder.
 *
 * A model of fs_mark, which mmtests fills a file system with before it is repaired: many threads
 * that make many small files. Nothing is synced before the end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/stat.h>

#include "numalab.h"

#define MAX_THREADS 64
#define BLOCK 4096

static const char *folder;
static long files, kib;

static void write_file(const char *path)
{
	static const char block[BLOCK] = "numalab";
	int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (file < 0)
		die("cannot create %s: %s", path, strerror(errno));
	for (long left = kib * 1024; left > 0; left -= BLOCK) {
		size_t length = left < BLOCK ? left : BLOCK;

		if (write(file, block, length) != (ssize_t)length)
			die("cannot write %s: %s", path, strerror(errno));
	}
	close(file);
}

static void *fill(void *argument)
{
	int number = (intptr_t)argument;
	char path[4096];

	for (long i = 0; i < files; i++) {
		if (i % 100 == 0) {
			snprintf(path, sizeof(path), "%s/%d-%ld", folder, number, i / 100);
			if (mkdir(path, 0755))
				die("cannot create %s: %s", path, strerror(errno));
		}
		snprintf(path, sizeof(path), "%s/%d-%ld/%ld", folder, number, i / 100, i);
		write_file(path);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS];
	long count;
	int file;

	if (argc != 5)
		die("usage: fill-files FOLDER THREADS FILES KIB");
	folder = argv[1];
	count = parse_number("the number of threads", argv[2], 1, MAX_THREADS);
	files = parse_number("the number of files", argv[3], 1, 1 << 30);
	kib = parse_number("KIB", argv[4], 0, 1 << 30);
	for (long i = 0; i < count; i++)
		if (pthread_create(threads + i, NULL, fill, (void *)(intptr_t)i))
			die("cannot start thread %ld", i);
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (file < 0 || syncfs(file))
		die("cannot sync %s: %s", folder, strerror(errno));
	printf("files %ld\n", count * files);
	return 0;
}
