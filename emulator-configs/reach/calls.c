/*
 * Counts the calls of functions, and keeps the counts of each moment at which the guest writes a
 * mark into its trace.
 *
 *   -plugin calls.so,counts=FILE
 *
 * FILE lists what to count, and receives the counts: `struct header`, the addresses of the
 * functions in their order, their counts, then for each mark their counts at that time
 * (lab/numalab/hunt/calls/count_file.py writes and reads it). All vCPUs run in one thread.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "counts_file.h"

#define MAGIC UINT64_C(0x31736c6c61636e6c) /* "lncalls1" */

struct header {
	uint64_t magic, functions;
	uint64_t mark; /* address of the kernel's function that writes a mark */
	uint64_t most; /* marks to keep */
	uint64_t marks;
};

static struct {
	struct header *header;
	uint64_t *addresses;
	uint32_t *counts, *kept;
} file;

static void on_call(unsigned int vcpu, void *data)
{
	(void)vcpu;
	++*(uint32_t *)data;
}

static void on_mark(unsigned int vcpu, void *data)
{
	struct header *header = data;

	(void)vcpu;
	if (header->marks < header->most)
		memcpy(file.kept + header->marks * header->functions, file.counts,
		       header->functions * sizeof(*file.counts));
	header->marks++;
}

static uint32_t *count_of(uint64_t address)
{
	size_t low = 0, high = file.header->functions;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (file.addresses[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == file.header->functions || file.addresses[low] != address)
		return NULL;
	return file.counts + low;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t place = 0; place < count; place++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, place);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		uint32_t *calls = count_of(address);

		if (calls)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_call, 0, calls);
		if (address == file.header->mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, 0, file.header);
	}
}

static bool map_file(int argc, char **argv)
{
	size_t size;
	struct header *header = map_counts_file(argc, argv, sizeof(*header), &size);

	if (!header || header->magic != MAGIC || header->functions > 1 << 16 ||
	    header->most > 1 << 16)
		return false;
	file.header = header;
	file.addresses = (uint64_t *)(header + 1);
	file.counts = (uint32_t *)(file.addresses + header->functions);
	file.kept = file.counts + header->functions;
	return size == sizeof(*header) + header->functions * sizeof(*file.addresses) +
			       (1 + header->most) * header->functions * sizeof(*file.counts);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (!map_file(argc, argv)) {
		fprintf(stderr, "calls: counts=FILE is needed, made by numalab\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
