/*
 * The functions of QEMU's plugin API, declared here: a host's QEMU comes without qemu-plugin.h, and
 * they are the same in QEMU 7.2 to 10, except where API_VERSION is tested.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*callback)(unsigned int vcpu, void *data);

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
						  void (*cb)(uint64_t id,
							     struct qemu_plugin_tb *block));
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, callback cb,
						   int flags, void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block,
							size_t place);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
#if API_VERSION >= 3
extern size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t length);
#else
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
#endif
#if API_VERSION >= 4
struct bytes { /* GByteArray of GLib */
	uint8_t *data;
	unsigned int length;
};
extern struct bytes *g_byte_array_new(void);
extern bool qemu_plugin_read_memory_vaddr(uint64_t address, struct bytes *data, size_t length);
#endif

EXPORT int qemu_plugin_version = API_VERSION;
EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);
