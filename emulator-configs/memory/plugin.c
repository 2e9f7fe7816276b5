/*
 * The memory core as a plugin of QEMU: passes on what QEMU's line filters do not let pass, and
 * charges what it costs to the vCPU. Needs the series of emulator-configs/series.
 *
 *   -plugin memory.so,parameters=FILE[,counts=FILE][,traffic=FILE][,places=FILE]
 *           [,mark=ADDRESS][,born=ADDRESS][,barriers=CODE+CODE...]
 *
 * `mark` is the function of the guest's kernel that a write of a mark enters, in hexadecimal, and
 * `born` the one that every new task enters when it first runs. CODE
 * is OFFSET:BYTES, both hexadecimal: where in its page a function of a program begins that is a
 * barrier, and how its code does. (Programs lie at addresses that nobody knows before they run.)
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#include "config.h"

#include <qemu-plugin.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMETERS = 1 << 20, PS_OF_NS = 1000, MAX_BARRIERS = 16, MAX_CODE = 24, LEAST_CODE = 8 };

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

struct barrier {
	uint64_t offset;
	size_t size;
	uint8_t code[MAX_CODE];
};

static struct {
	struct memory *memory;
	FILE *counts, *traffic, *places;
	uint64_t *owed_ps; /* by vCPU: less than an instruction, not charged yet */
	uint64_t instruction_ps, quantum;
	uint64_t mark, born; /* addresses of the kernel's functions; 0: none */
	unsigned barrier_count;
	struct barrier barriers[MAX_BARRIERS];
	bool fresh; /* nothing has happened since the memory was created, or began anew */
} model;

static void learn_block(uint64_t ram_addr, uint64_t host)
{
	uint64_t start, size;
	const char *name = qemu_plugin_ram_block(ram_addr, &start, &size);

	if (name && (start + size) >> LINE_BITS <= UINT32_MAX)
		memory_add_region(model.memory, (uint32_t)(start >> LINE_BITS),
				  (uint32_t)(size >> LINE_BITS), memory_home(model.memory, name),
				  host - ((ram_addr - start) & -(UINT64_C(1) << LINE_BITS)));
}

static void charge(unsigned int vcpu, uint64_t stalled_ps)
{
	uint64_t owed_ps = model.owed_ps[vcpu] + stalled_ps;

	if (owed_ps >= model.instruction_ps) {
		qemu_plugin_charge_vcpu(vcpu, owed_ps / model.instruction_ps);
		owed_ps %= model.instruction_ps;
	}
	model.owed_ps[vcpu] = owed_ps;
}

static void on_access(unsigned int vcpu, uint64_t vaddr, uint64_t ram_addr, uint64_t host,
		      unsigned int size, bool is_store)
{
	struct access access = {.vaddr = vaddr,
				.now_ps = qemu_plugin_vcpu_time_ns(vcpu) * PS_OF_NS,
				.line = (uint32_t)(ram_addr >> LINE_BITS),
				.cpu = (uint16_t)vcpu,
				.bytes = (uint8_t)size,
				.store = is_store};
	uint64_t quantum = qemu_plugin_quantum(), stalled_ps;
	struct meeting meeting;

	model.fresh = false;
	if (quantum != model.quantum) {
		model.quantum = quantum;
		memory_advance(model.memory, qemu_plugin_quantum_start_ns() * PS_OF_NS);
	}
	if (!memory_knows(model.memory, access.line))
		learn_block(ram_addr, host);
	stalled_ps = memory_access(model.memory, access);
	meeting = memory_meeting(model.memory);
	for (unsigned place = 0; place < meeting.count; place++)
		qemu_plugin_interleave_vcpu(meeting.cpus[place], meeting.until_ps / PS_OF_NS);
	if (stalled_ps)
		charge(vcpu, stalled_ps);
}

static void on_switch(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	(void)info, (void)data;
	model.fresh = false;
	memory_switch(model.memory, vcpu, vaddr, qemu_plugin_vcpu_time_ns(vcpu) * PS_OF_NS);
}

static void on_mark(unsigned int vcpu, void *data)
{
	(void)data;
	model.fresh = false;
	memory_mark(model.memory, vcpu, qemu_plugin_vcpu_time_ns(vcpu) * PS_OF_NS);
}

static void on_born(unsigned int vcpu, void *data)
{
	(void)data;
	model.fresh = false;
	memory_born(model.memory, vcpu, qemu_plugin_vcpu_time_ns(vcpu) * PS_OF_NS);
}

static void on_barrier(unsigned int vcpu, void *data)
{
	(void)data;
	model.fresh = false;
	memory_barrier(model.memory, vcpu, qemu_plugin_vcpu_time_ns(vcpu) * PS_OF_NS);
}

static void set_filters(void)
{
	for (unsigned vcpu = 0; vcpu < memory_cpus(model.memory); vcpu++)
		qemu_plugin_set_line_filter(
			vcpu, (struct qemu_plugin_line *)memory_filter(model.memory, vcpu));
}

/*
 * A guest may be saved in the hold of its init, and another QEMU may continue it there, with a
 * plugin that has seen nothing. So that both go on alike, the memory begins anew in each turn of the
 * hold: what was before it has no effect. The hold itself accesses no memory.
 */
static void on_hold(unsigned int vcpu, void *data)
{
	(void)vcpu, (void)data;
	if (model.fresh)
		return;
	if (!memory_restart(model.memory)) {
		fprintf(stderr, "memory model: it cannot begin anew\n");
		abort();
	}
	set_filters();
	memset(model.owed_ps, 0, memory_cpus(model.memory) * sizeof(*model.owed_ps));
	model.quantum = 0;
	model.fresh = true;
}

/* Copies the first bytes of an instruction; returns how many it has. */
static size_t code_of(const struct qemu_plugin_insn *instruction, uint8_t *into, size_t size)
{
	size_t length = qemu_plugin_insn_size(instruction);

	size = size < length ? size : length;
#if QEMU_PLUGIN_VERSION >= 3
	qemu_plugin_insn_data(instruction, into, size);
#else
	memcpy(into, qemu_plugin_insn_data(instruction), size);
#endif
	return length;
}

/*
 * Linux on x86-64 switches tasks in one place, __switch_to_asm(), by loading the next one's stack
 * pointer: mov TASK_threadsp(%rsi), %rsp. Nothing else in the kernel loads it from there. (It only
 * reads; QEMU 7.2 never calls back for QEMU_PLUGIN_MEM_R, which it takes for 2 in op_rw().)
 */
static bool switches_task(const struct qemu_plugin_insn *instruction)
{
	static const uint8_t load_stack_pointer[] = {0x48, 0x8b, 0xa6};
	uint8_t begins[sizeof(load_stack_pointer)];

	if (qemu_plugin_insn_size(instruction) != 7 || !(qemu_plugin_insn_vaddr(instruction) >> 63))
		return false;
	code_of(instruction, begins, sizeof(begins));
	return !memcmp(begins, load_stack_pointer, sizeof(begins));
}

/* The loop of images/src/numalab-start.c: fld1; fldpi; fpatan; fstp %st(0). */
static bool is_hold(const struct qemu_plugin_tb *block, size_t place)
{
	static const uint8_t turn[4][2] = {{0xd9, 0xe8}, {0xd9, 0xeb}, {0xd9, 0xf3}, {0xdd, 0xd8}};

	if (qemu_plugin_tb_vaddr(block) >> 63 || qemu_plugin_tb_n_insns(block) - place < 4)
		return false;
	for (size_t step = 0; step < 4; step++) {
		uint8_t code[2];

		if (code_of(qemu_plugin_tb_get_insn(block, place + step), code, 2) != 2 ||
		    memcmp(code, turn[step], 2))
			return false;
	}
	return true;
}

/* A function begins a block, so that its code lies in the block, as far as that goes. */
static bool is_barrier(const struct qemu_plugin_tb *block, const struct barrier *barrier)
{
	size_t size = 0, count = qemu_plugin_tb_n_insns(block);
	uint8_t code[MAX_CODE];
	uint64_t vaddr = qemu_plugin_tb_vaddr(block);

	if (vaddr >> 63 || vaddr % (1 << PAGE_BITS) != barrier->offset)
		return false;
	for (size_t place = 0; place < count && size < barrier->size; place++)
		size += code_of(qemu_plugin_tb_get_insn(block, place), code + size,
				barrier->size - size);
	size = size < barrier->size ? size : barrier->size;
	return size >= LEAST_CODE && !memcmp(code, barrier->code, size);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t place = 0; place < count; place++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, place);

		if (switches_task(instruction))
			qemu_plugin_register_vcpu_mem_cb(instruction, on_switch,
							 QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW, NULL);
		if (is_hold(block, place))
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_hold,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (model.mark && qemu_plugin_insn_vaddr(instruction) == model.mark)
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (model.born && qemu_plugin_insn_vaddr(instruction) == model.born)
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_born,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
	for (unsigned place = 0; place < model.barrier_count; place++)
		if (is_barrier(block, &model.barriers[place]))
			qemu_plugin_register_vcpu_tb_exec_cb(block, on_barrier,
							     QEMU_PLUGIN_CB_NO_REGS, NULL);
}

static void on_vcpu(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	qemu_plugin_set_line_filter(vcpu,
				    (struct qemu_plugin_line *)memory_filter(model.memory, vcpu));
	for (unsigned other = 0; other < memory_cpus(model.memory); other++)
		qemu_plugin_set_ipi_ns(vcpu, other,
				       memory_interrupt_ps(model.memory, vcpu, other) / PS_OF_NS);
}

static void at_exit(qemu_plugin_id_t id, void *data)
{
	(void)id, (void)data;
	memory_finish(model.memory);
	if (model.counts)
		fclose(model.counts);
	if (model.traffic)
		fclose(model.traffic);
	if (model.places)
		fclose(model.places);
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "memory model: %s: %s\n", what, why);
	return 1;
}

static char *read_parameters(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = calloc(1, MAX_PARAMETERS);

	if (file && text && fread(text, 1, MAX_PARAMETERS - 1, file) && feof(file)) {
		fclose(file);
		return text;
	}
	return NULL;
}

static const char *argument(const char *name, int argc, char **argv)
{
	size_t length = strlen(name);

	for (int place = 0; place < argc; place++)
		if (!strncmp(argv[place], name, length) && argv[place][length] == '=')
			return argv[place] + length + 1;
	return NULL;
}

static bool open_table(const char *path, FILE **file)
{
	if (path)
		*file = fopen(path, "wbe");
	return !path || *file;
}

static bool read_barrier(const char **at, struct barrier *barrier)
{
	char *end;

	barrier->offset = strtoull(*at, &end, 16);
	if (*end != ':' || barrier->offset >> PAGE_BITS)
		return false;
	for (*at = end + 1; barrier->size < MAX_CODE && **at && **at != '+'; *at += 2) {
		unsigned byte;

		if (sscanf(*at, "%2x", &byte) != 1 || !(*at)[1])
			return false;
		barrier->code[barrier->size++] = (uint8_t)byte;
	}
	return barrier->size >= LEAST_CODE && (!**at || **at == '+');
}

static bool read_barriers(const char *text)
{
	for (; text && *text; text += *text == '+')
		if (model.barrier_count == MAX_BARRIERS ||
		    !read_barrier(&text, &model.barriers[model.barrier_count++]))
			return false;
	return true;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	const char *path = argument("parameters", argc, argv), *mark = argument("mark", argc, argv);
	const char *born = argument("born", argc, argv);
	char *parameters, error[200];

	if (!path)
		return fail("parameters", "this argument is missing");
	parameters = read_parameters(path);
	if (!parameters)
		return fail(path, "cannot be read");
	if (!open_table(argument("counts", argc, argv), &model.counts) ||
	    !open_table(argument("traffic", argc, argv), &model.traffic) ||
	    !open_table(argument("places", argc, argv), &model.places))
		return fail("counts, traffic, places", "cannot be written");
	if (!read_barriers(argument("barriers", argc, argv)))
		return fail("barriers", "OFFSET:BYTES+OFFSET:BYTES...");
	model.mark = mark ? strtoull(mark, NULL, 16) : 0;
	model.born = born ? strtoull(born, NULL, 16) : 0;
	model.memory = memory_create(parameters, model.counts, model.traffic, error, sizeof(error));
	free(parameters);
	if (!model.memory)
		return fail(path, error);
	if (model.places && !memory_count_places(model.memory, model.places))
		return fail("places", "no memory");
	if (info->system.smp_vcpus != (int)memory_cpus(model.memory))
		return fail(path, "the machine has another number of CPUs");
	if (!qemu_plugin_quantum_ns())
		return fail("-icount", "quantum=NS is missing");
	if (!qemu_plugin_set_line_cb(memory_filter_bits(model.memory), on_access))
		return fail("line filters", "only on x86-64 hosts");
	model.owed_ps = calloc(memory_cpus(model.memory), sizeof(*model.owed_ps));
	model.instruction_ps = (uint64_t)PS_OF_NS << qemu_plugin_icount_shift();
	memory_set_instruction(model.memory, model.instruction_ps);
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return model.owed_ps ? 0 : fail(path, "no memory");
}
