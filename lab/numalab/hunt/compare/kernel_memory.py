"""Read variables of a guest's kernel from the guest's memory, by the symbols of its vmlinux.

The configurations of the lab have neither /proc/kcore nor kprobes, and the guest is not trusted. So
the host reads the memory that it holds open (`numalab.machine.memory`) after the guest ended.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.machine.memory import HeldMemory, backed_mib, node_addresses
from numalab.topology.topology import Topology
from numalab.workload.elf_symbols import ElfSymbol, symbols_of

# Documentation/arch/x86/x86_64/mm.rst (6.12): the kernel text mapping, and the direct mapping with
# four levels of page tables and without KASLR. A kernel that chooses it at boot has a variable of
# that name (arch/x86/kernel/head64.c): all from 6.17 on, which use five levels if the CPU can.
_TEXT, _TEXT_END = 0xFFFFFFFF80000000, 0xFFFFFFFFC0000000
_DIRECT, _DIRECT_BASE = 0xFFFF888000000000, "page_offset_base"
_ADDRESSES = 1 << 64
_BANNER, _BANNER_TEXT = "linux_banner", b"Linux version "
_PER_CPU = "__per_cpu_offset"
_LARGEST = 64 << 20  # of a vmlinux that holds symbols only


def read_symbols(vmlinux: Path, names: Collection[str]) -> dict[str, ElfSymbol]:
    """Return some symbols of a kernel by their names; without absent ones.

    Raises ValueError for a file that is too large, and OSError.
    """
    if vmlinux.stat().st_size > _LARGEST:
        raise ValueError(f"{vmlinux} is larger than {_LARGEST >> 20} MiB")
    return symbols_of(vmlinux.read_bytes(), names)


@dataclass(frozen=True)
class KernelMemory:
    """The memory of a guest's kernel, for values at virtual addresses.

    `starts` and `sizes` are the physical memory of each node, in bytes, in the order of QEMU;
    `direct` is the address of the direct mapping.
    """

    memory: HeldMemory
    symbols: Mapping[str, ElfSymbol]
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    direct: int = _DIRECT

    def read(self, address: int, size: int) -> bytes | None:
        """Return the bytes at a virtual address; None if it is not mapped as expected."""
        base = _TEXT if _TEXT <= address < _TEXT_END else self.direct
        physical = address - base
        for fd, start, length in zip(self.memory.fds, self.starts, self.sizes, strict=True):
            if start <= physical and physical + size <= start + length:
                data = os.pread(fd, size, physical - start)
                return data if len(data) == size else None
        return None

    def number(self, address: int, size: int = 4) -> int | None:
        """Return the unsigned number of `size` bytes at an address; None if it is not mapped."""
        data = self.read(address, size)
        return None if data is None else int.from_bytes(data, "little")

    def variable(self, name: str, size: int = 4) -> int | None:
        """Return the value of a variable; None if the kernel has no such symbol."""
        return self.number(self.symbols[name].vaddr, size) if name in self.symbols else None

    def size(self, name: str) -> int:
        """Return the size of a variable in bytes; 0 if the kernel has no such symbol."""
        return self.symbols[name].size if name in self.symbols else 0

    def per_cpu(self, name: str, cpu: int, size: int = 8) -> int | None:
        """Return the value of a per-CPU variable of a CPU; None if there is none."""
        address = self.per_cpu_address(name, cpu)
        return None if address is None else self.number(address, size)

    def per_cpu_address(self, name: str, cpu: int) -> int | None:
        """Return where a per-CPU variable of a CPU is; None if there is none."""
        if name not in self.symbols or _PER_CPU not in self.symbols:
            return None
        base = self.number(self.symbols[_PER_CPU].vaddr + 8 * cpu, 8)
        return None if base is None else (base + self.symbols[name].vaddr) % _ADDRESSES


def open_kernel_memory(
    memory: HeldMemory, machine: Topology, vmlinux: Path | None, names: Collection[str]
) -> KernelMemory | None:
    """Return access to some variables of the guest's kernel, after the guest ended.

    `machine` has its nodes in the order of QEMU. None if the memory or the symbols are not
    available, or if the kernel does not lie in the memory where its symbols are (KASLR).
    """
    if vmlinux is None or not memory.fds:
        return None
    try:
        symbols = read_symbols(vmlinux, {*names, _BANNER, _PER_CPU, _DIRECT_BASE})
    except (OSError, ValueError):
        return None
    sizes = tuple(backed_mib(node) << 20 for node in machine.nodes)
    kernel = KernelMemory(memory, symbols, node_addresses(machine), sizes)
    if (
        _BANNER not in symbols
        or kernel.read(symbols[_BANNER].vaddr, len(_BANNER_TEXT)) != _BANNER_TEXT
    ):
        return None
    base = kernel.variable(_DIRECT_BASE, 8)
    return kernel if base is None else replace(kernel, direct=base)
