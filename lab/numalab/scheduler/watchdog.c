/*
 * Shortens the watchdog of a scheduler (sched_ext) that a program loads. For LD_PRELOAD.
 *
 * libbpf writes the scheduler's struct sched_ext_ops into a map, by syscall(2) of the C library.
 * Before it does, `timeout_ms` becomes $NUMALAB_WATCHDOG_MS, unless it is shorter: the kernel then
 * reports a stall after that time, and not after 30 s (kernel/sched/ext.c, Linux 6.12). Where the
 * member lies follows from the kernel's types (BTF). The length is left in /run/scheduler.watchdog.
 * A program that calls the kernel in another way keeps its watchdog.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TYPES "/sys/kernel/btf/vmlinux"
#define RECORD "/run/scheduler.watchdog"

struct types {
	const char *data, *strings;
	uint32_t type_bytes, string_bytes;
};

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* The bytes of a type, 0 for a kind that is not known. */
static size_t type_bytes(const struct btf_type *type)
{
	size_t count = BTF_INFO_VLEN(type->info), head = sizeof(*type);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return head + 4;
	case BTF_KIND_ARRAY:
		return head + sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return head + count * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return head + count * sizeof(struct btf_enum);
	case BTF_KIND_FUNC_PROTO:
		return head + count * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
		return head + count * sizeof(struct btf_var_secinfo);
	case BTF_KIND_ENUM64:
		return head + count * 12;
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return head;
	}
	return 0;
}

static const struct btf_type *type_of(const struct types *types, uint32_t id)
{
	size_t at = 0;

	for (uint32_t n = 1; at + sizeof(struct btf_type) <= types->type_bytes; n++) {
		const struct btf_type *type = (const void *)(types->data + at);
		size_t bytes = type_bytes(type);

		if (!bytes || at + bytes > types->type_bytes)
			return NULL;
		if (n == id)
			return type;
		at += bytes;
	}
	return NULL;
}

static int is_called(const struct types *types, uint32_t name, const char *text)
{
	return name < types->string_bytes && !strcmp(types->strings + name, text);
}

static const struct btf_member *member_of(const struct types *types, const struct btf_type *type,
					  const char *name)
{
	const struct btf_member *member = (const void *)(type + 1);

	for (uint32_t n = BTF_INFO_VLEN(type->info); n; n--, member++)
		if (is_called(types, member->name_off, name))
			return member;
	return NULL;
}

/* The place of `timeout_ms` in the value of a map of this type; 0 if it is no scheduler. */
static uint32_t place_in(const struct types *types, uint32_t value_type)
{
	const struct btf_type *value = type_of(types, value_type), *ops;
	const struct btf_member *data, *timeout;

	if (!value || BTF_INFO_KIND(value->info) != BTF_KIND_STRUCT ||
	    !is_called(types, value->name_off, "bpf_struct_ops_sched_ext_ops"))
		return 0;
	data = member_of(types, value, "data");
	ops = data ? type_of(types, data->type) : NULL;
	timeout = ops && BTF_INFO_KIND(ops->info) == BTF_KIND_STRUCT ?
			  member_of(types, ops, "timeout_ms") : NULL;
	/* The offset is the lower 24 bits where the struct has bit fields. */
	return timeout ? ((data->offset & 0xffffff) + (timeout->offset & 0xffffff)) / 8 : 0;
}

static uint32_t place_of_timeout(uint32_t value_type)
{
	int file = open(TYPES, O_RDONLY | O_CLOEXEC);
	const struct btf_header *header;
	struct types types;
	struct stat status;
	uint32_t place = 0;
	char *bytes;
	size_t size, got = 0;

	if (file < 0)
		return 0;
	size = fstat(file, &status) || status.st_size <= 0 ? 0 : (size_t)status.st_size;
	bytes = size ? malloc(size) : NULL; /* mmap needs Linux 6.16 */
	while (bytes && got < size) {
		ssize_t more = read(file, bytes + got, size - got);

		if (more <= 0)
			break;
		got += (size_t)more;
	}
	close(file);
	header = (const void *)bytes;
	if (bytes && got == size && size > sizeof(*header) && header->magic == BTF_MAGIC &&
	    header->hdr_len + (size_t)header->type_off + header->type_len <= size &&
	    header->hdr_len + (size_t)header->str_off + header->str_len <= size &&
	    header->str_len && !bytes[header->hdr_len + header->str_off + header->str_len - 1]) {
		types.data = bytes + header->hdr_len + header->type_off;
		types.type_bytes = header->type_len;
		types.strings = bytes + header->hdr_len + header->str_off;
		types.string_bytes = header->str_len;
		place = place_in(&types, value_type);
	}
	free(bytes);
	return place;
}

static void shorten(const union bpf_attr *update)
{
	const char *wanted = getenv("NUMALAB_WATCHDOG_MS");
	struct bpf_map_info info;
	union bpf_attr attr;
	uint32_t place, now, length = wanted ? (uint32_t)strtoul(wanted, NULL, 10) : 0;
	int file;

	memset(&info, 0, sizeof(info));
	memset(&attr, 0, sizeof(attr));
	attr.info.bpf_fd = update->map_fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = (uintptr_t)&info;
	if (!length || call(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, (long)&attr, sizeof(attr), 0, 0, 0) ||
	    info.type != BPF_MAP_TYPE_STRUCT_OPS)
		return;
	place = place_of_timeout(info.btf_vmlinux_value_type_id);
	if (!place || place + sizeof(now) > info.value_size)
		return;
	memcpy(&now, (char *)(uintptr_t)update->value + place, sizeof(now));
	if (!now || now > length)
		now = length;
	memcpy((char *)(uintptr_t)update->value + place, &now, sizeof(now));
	file = open(RECORD, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (file >= 0) {
		dprintf(file, "%u\n", now);
		close(file);
	}
}

/* What libbpf calls for bpf(2). */
long syscall(long number, ...)
{
	long a, b, c, d, e, f, result;
	va_list words;

	va_start(words, number);
	a = va_arg(words, long);
	b = va_arg(words, long);
	c = va_arg(words, long);
	d = va_arg(words, long);
	e = va_arg(words, long);
	f = va_arg(words, long);
	va_end(words);
	if (number == SYS_bpf && (int)a == BPF_MAP_UPDATE_ELEM && b)
		shorten((const union bpf_attr *)b);
	result = call(number, a, b, c, d, e, f);
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
