/* SPDX-License-Identifier: GPL-2.0 */
/* Loads scx_nodes.bpf.c with the nodes of this machine, and reports why it ended. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <scx/common.h>
#include "scx_nodes.bpf.skel.h"

static volatile int exit_req;

static void on_signal(int signal)
{
	exit_req = 1;
}

/* Fill the table of each CPU's node from the links /sys/devices/system/cpu/cpuN/nodeM. */
static void read_nodes(struct scx_nodes *skel)
{
	char path[80];
	int cpus = sizeof(skel->rodata->node_of) / sizeof(skel->rodata->node_of[0]);

	for (int cpu = 0; cpu < cpus; cpu++)
		for (int node = 0; node < 64; node++) {
			snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/node%d", cpu, node);
			if (access(path, F_OK))
				continue;
			skel->rodata->node_of[cpu] = node;
			if (node >= (int)skel->rodata->nr_nodes)
				skel->rodata->nr_nodes = node + 1;
		}
}

int main(int argc, char **argv)
{
	struct scx_nodes *skel;
	struct bpf_link *link;

	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	skel = SCX_OPS_OPEN(nodes_ops, scx_nodes);
	read_nodes(skel);
	SCX_OPS_LOAD(skel, nodes_ops, scx_nodes, uei);
	link = SCX_OPS_ATTACH(skel, nodes_ops, scx_nodes);
	while (!exit_req && !UEI_EXITED(skel, uei))
		sleep(1);
	bpf_link__destroy(link);
	UEI_REPORT(skel, uei);
	scx_nodes__destroy(skel);
	return 0;
}
