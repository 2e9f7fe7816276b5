// SPDX-License-Identifier: GPL-2.0-only
/*
 * numalab-copy SOURCE TARGET [SOURCE TARGET]... copies files of /proc and such in one process: each
 * process costs milliseconds on an emulated CPU. A source that is not there is left out.
 */
#define _GNU_SOURCE
#include "numalab.h"

static char buffer[1 << 16];

static void copy(const char *source, const char *target)
{
	int from = open(source, O_RDONLY | O_CLOEXEC), to;
	ssize_t size;

	if (from < 0)
		return;
	to = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (to < 0)
		die("cannot write %s: %s", target, strerror(errno));
	while ((size = read(from, buffer, sizeof(buffer))) > 0)
		for (ssize_t done = 0, part; done < size; done += part) {
			part = write(to, buffer + done, size - done);
			if (part < 0)
				die("cannot write %s: %s", target, strerror(errno));
		}
	if (size < 0)
		die("cannot read %s: %s", source, strerror(errno));
	close(from);
	close(to);
}

int main(int argc, char **argv)
{
	if (argc < 3 || !(argc % 2))
		die("usage: numalab-copy SOURCE TARGET [SOURCE TARGET]...");
	for (int place = 1; place < argc; place += 2)
		copy(argv[place], argv[place + 1]);
	return 0;
}
