/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What calls of the scheduler do, as root and as another user. After each load a child makes all of them:
 *
 *   load N calls COUNT wrong COUNT NAME RESULT      NAME is the first wrong one, RESULT negative for an error
 *
 * What they must do has been the same from 5.10 to 7.x; older kernels are not asked.
 */
#ifndef PROBES_H
#define PROBES_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "calls.h"
#include "expect.h"
#include "inherit.h"
#include "masks.h"
#include "ranks.h"
#include "times.h"
#include "wakes.h"

#define NOBODY 65534

/* What takes the CPU for long happens after two loads of five: in each pattern in which hunts repeat a load, one of
 * three is among them.
 */
static void probe(pid_t root, long slice_ms, unsigned int release, int number)
{
	probe_sizes();
	probe_priorities();
	probe_round_robin(slice_ms);
	probe_deadlines();
	probe_barriers();
	probe_readers();
	probe_clocks();
	probe_masks();
	probe_group();
	probe_children();
	probe_nice_of_ranked();
	probe_wake_queues();
	probe_lock(SCHED_FIFO, 7, -8);
	probe_lock(SCHED_RR, 1, -2);
	probe_time_slice();
	if (number % 5 == 0 || number % 5 == 2) {
		probe_time_limit();
		probe_runtime();
		probe_user_time();
		probe_short_times();
		probe_ranks(release >= 6012);
	}
	limit(RLIMIT_NICE, 0);
	limit(RLIMIT_RTPRIO, 0); /* what they may be at most, another user cannot raise */
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		_exit(2);
	probe_nice_levels();
	probe_real_time_limits();
	probe_strangers(root);
}

/* Of a caller with the usual policy, whose child makes the calls. */
static void tell_probes(int load)
{
	long slice_ms = read_number(RR_SLICE);
	unsigned int major = 0, minor = 0;
	struct utsname name;
	pid_t root = getpid(), child;
	int status = 0;

	if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2 || major * 1000 + minor < 5010)
		return;
	memset(probes, 0, sizeof(*probes));
	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		probe(root, slice_ms, major * 1000 + minor, load);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return;
	expect("ended", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status, 0);
	printf("load %d calls %d wrong %d %s %ld\n", load, probes->calls, probes->wrong,
	       probes->wrong ? probes->name : "nothing", probes->result);
}

#endif
