/*
 * /init of the initramfs for kernels whose drivers are modules: loads them in the order of
 * /modules, mounts the root and becomes its init. Everything else is the root's own affair.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, const char *which)
{
	int saved = errno;
	int log = open("/dev/kmsg", O_WRONLY);

	if (log >= 0) {
		dprintf(log, "<3>numalab: %s %s: %s\n", what, which, strerror(saved));
		close(log);
	}
	errno = saved;
}

static void load(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);

	/* A missing device (ENODEV) is no error: not every machine has every one. */
	if (file < 0 || (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST && errno != ENODEV))
		say("cannot load", path);
	if (file >= 0)
		close(file);
	unlink(path); /* the memory is node 0's */
}

static int mount_root(void)
{
	struct timespec pause = {0, 20 * 1000 * 1000};

	/* NVDIMMs are probed asynchronously; the kernel's rootwait=20 is as long. */
	for (int tries = 0; tries < 1000; tries++) {
		if (!mount("/dev/pmem0", "/root", "erofs", MS_RDONLY, NULL))
			return 0;
		if (errno != ENOENT && errno != ENXIO && errno != ENODEV)
			break;
		nanosleep(&pause, NULL);
	}
	say("cannot mount", "/dev/pmem0");
	return -1;
}

int main(int argc, char **argv)
{
	char line[512];
	FILE *list;

	(void)argc;
	mkdir("/dev", 0755);
	mkdir("/root", 0755);
	if (mount("dev", "/dev", "devtmpfs", 0, "mode=0755"))
		say("cannot mount", "/dev");
	list = fopen("/modules", "re");
	while (list && fgets(line, sizeof(line), list)) {
		line[strcspn(line, "\n")] = 0;
		load(line);
	}
	if (list)
		fclose(list);
	if (mount_root())
		return 1; /* the kernel panics, and the console says why */
	if (mount("/dev", "/root/dev", NULL, MS_MOVE, NULL))
		say("cannot move", "/dev");
	if (chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		say("cannot change to", "/root");
	argv[0] = "/usr/lib/numalab/init";
	execv(argv[0], argv);
	say("cannot run", argv[0]);
	return 1;
}
