/*
 * Counts executions of instructions, and the ways that jumps went.
 *
 *   -plugin reach.so,counts=FILE
 *
 * FILE lists what to count, and receives the counts: `struct header`, then the sites in the order
 * of their addresses, then the jumps (lab/numalab/reach/counts.py writes and reads it).
 * All vCPUs run in one thread.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "counts_file.h"

#define MAGIC UINT64_C(0x3168636165726e6c) /* "lnreach1" */

struct header {
	uint64_t magic, cpus, sites, jumps;
	uint64_t jiffies; /* address of the kernel's jiffies_64, 0: unknown */
};

struct site {
	uint64_t address;
	uint64_t first;	   /* jiffies_64 at the first execution, 0: never or unknown */
	uint64_t counts[]; /* by vCPU */
};

struct jump {
	uint64_t address, next, target;
	uint64_t is_static;    /* patched by the kernel: a jump or a nop */
	uint64_t taken, other; /* the counts */
	uint64_t open;	       /* executed, and the instruction after it not yet */
};

static struct {
	struct header *header;
	size_t site_size;
	struct jump *jumps;
#if API_VERSION >= 4
	struct bytes *bytes;
#endif
} file;

static struct site *site_at(size_t place)
{
	return (struct site *)((char *)(file.header + 1) + place * file.site_size);
}

static struct site *find_site(uint64_t address)
{
	size_t low = 0, high = file.header->sites;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (site_at(middle)->address < address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == file.header->sites || site_at(low)->address != address)
		return NULL;
	return site_at(low);
}

static uint64_t guest_jiffies(void)
{
	uint64_t now = 0;

#if API_VERSION >= 4
	if (file.header->jiffies &&
	    qemu_plugin_read_memory_vaddr(file.header->jiffies, file.bytes, sizeof(now)) &&
	    file.bytes->length == sizeof(now))
		memcpy(&now, file.bytes->data, sizeof(now));
#endif
	return now;
}

static void on_execution(unsigned int vcpu, void *data)
{
	struct site *site = data;

	if (!site->first)
		site->first = guest_jiffies();
	if (vcpu < file.header->cpus)
		site->counts[vcpu]++;
}

/*
 * A conditional jump ends its block, and what follows it begins one. An interrupt may come between
 * the two, and its handler may execute the same jump: `open` counts them.
 */
static void on_jump(unsigned int vcpu, void *data)
{
	(void)vcpu;
	((struct jump *)data)->open++;
}

static void on_next(unsigned int vcpu, void *data)
{
	struct jump *jump = data;

	(void)vcpu;
	if (jump->open) {
		jump->open--;
		jump->other++;
	}
}

static void on_target(unsigned int vcpu, void *data)
{
	struct jump *jump = data;

	(void)vcpu;
	if (jump->open) {
		jump->open--;
		jump->taken++;
	}
}

static void on_static_jump(unsigned int vcpu, void *data)
{
	(void)vcpu;
	((struct jump *)data)->taken++;
}

static void on_static_nop(unsigned int vcpu, void *data)
{
	(void)vcpu;
	((struct jump *)data)->other++;
}

static uint8_t first_byte(const struct qemu_plugin_insn *insn)
{
	uint8_t byte = 0;

#if API_VERSION >= 3
	qemu_plugin_insn_data(insn, &byte, sizeof(byte));
#else
	byte = *(const uint8_t *)qemu_plugin_insn_data(insn);
#endif
	return byte;
}

/* A static branch is a nop or a jmp rel8/rel32: arch/x86/kernel/jump_label.c. */
static callback for_jump(const struct qemu_plugin_insn *insn, const struct jump *jump)
{
	uint8_t byte = first_byte(insn);

	if (!jump->is_static)
		return on_jump;
	return byte == 0xe9 || byte == 0xeb ? on_static_jump : on_static_nop;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t place = 0; place < count; place++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, place);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		struct site *site = find_site(address);

		for (size_t i = 0; place == 0 && i < file.header->jumps; i++) {
			struct jump *jump = file.jumps + i;

			if (!jump->is_static && (address == jump->next || address == jump->target))
				qemu_plugin_register_vcpu_insn_exec_cb(
					insn, address == jump->next ? on_next : on_target, 0, jump);
		}
		if (!site)
			continue;
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_execution, 0, site);
		for (size_t i = 0; i < file.header->jumps; i++)
			if (file.jumps[i].address == address)
				qemu_plugin_register_vcpu_insn_exec_cb(
					insn, for_jump(insn, file.jumps + i), 0, file.jumps + i);
	}
}

static bool map_file(int argc, char **argv)
{
	size_t size;
	struct header *header = map_counts_file(argc, argv, sizeof(*header), &size);

	if (!header || header->magic != MAGIC || header->cpus > 1 << 16 ||
	    header->sites > size || header->jumps > size)
		return false;
	file.header = header;
	file.site_size = sizeof(struct site) + header->cpus * sizeof(uint64_t);
	file.jumps = (struct jump *)site_at(header->sites);
	return size == sizeof(*header) + header->sites * file.site_size +
			       header->jumps * sizeof(struct jump);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (!map_file(argc, argv)) {
		fprintf(stderr, "reach: counts=FILE is needed, made by numalab\n");
		return -1;
	}
#if API_VERSION >= 4
	file.bytes = g_byte_array_new();
#endif
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
