/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A queue for each node: a task that is preempted or finds no idle CPU waits on the node where it ran
 * last. A CPU takes tasks of its own node first, then of the other nodes, so that none is idle while
 * tasks wait.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define MAX_CPUS 256
#define MAX_NODES 64

const volatile u32 nr_nodes = 1;
const volatile u32 node_of[MAX_CPUS];

UEI_DEFINE(uei);

static u32 node(s32 cpu)
{
	u32 index = cpu;

	return index < MAX_CPUS ? node_of[index] : 0;
}

s32 BPF_STRUCT_OPS(nodes_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		scx_bpf_dispatch(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return cpu;
}

void BPF_STRUCT_OPS(nodes_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dispatch(p, node(scx_bpf_task_cpu(p)), SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(nodes_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 own = node(cpu), distance;

	bpf_for(distance, 0, nr_nodes) {
		if (scx_bpf_consume((own + distance) % nr_nodes))
			break;
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(nodes_init)
{
	u32 id;
	s32 error = 0;

	bpf_for(id, 0, nr_nodes) {
		error = scx_bpf_create_dsq(id, id);
		if (error)
			break;
	}
	return error;
}

void BPF_STRUCT_OPS(nodes_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(nodes_ops,
	       .select_cpu	= (void *)nodes_select_cpu,
	       .enqueue		= (void *)nodes_enqueue,
	       .dispatch	= (void *)nodes_dispatch,
	       .init		= (void *)nodes_init,
	       .exit		= (void *)nodes_exit,
	       .name		= "nodes");
