"""The memory model's C core, called as QEMU calls it: the filter first, then the core."""

import ctypes
from pathlib import Path

from numalab.process import run

SOURCES = Path(__file__).parents[2] / "emulator-configs" / "memory"
CORE = (
    *("config.c", "cache.c", "traffic.c", "table.c", "oracle.c", "places.c", "hierarchy.c"),
    *("contention.c", "memory.c"),
)
NS = 1000
LINE_BYTES = 64
NO_TAG = (1 << 64) - 1


class FilterLine(ctypes.Structure):
    _fields_ = (("read", ctypes.c_uint64), ("write", ctypes.c_uint64))


class Access(ctypes.Structure):
    _fields_ = (
        ("vaddr", ctypes.c_uint64),
        ("now_ps", ctypes.c_uint64),
        ("line", ctypes.c_uint32),
        ("cpu", ctypes.c_uint16),
        ("bytes", ctypes.c_uint8),
        ("store", ctypes.c_bool),
    )


def build_core(folder: Path) -> Path:
    """Compile the core as a library, with every warning an error."""
    library = folder / "memory.so"
    flags = "-std=c11 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -fPIC -shared"
    run(["gcc", *flags.split(), "-o", library, *(SOURCES / name for name in CORE)])
    return library


class Meeting(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_uint16),
        ("cpus", ctypes.c_uint16 * 2),
        ("until_ps", ctypes.c_uint64),
    )


class MemoryCore:
    """One machine's memory. The lines of node k's memory begin at k * `lines_of_node`.

    `now_ps` is when an access begins; each begins when the one before has ended, unless it is set.
    """

    def __init__(
        self,
        library: Path,
        parameters: str,
        *,
        nodes: int,
        lines_of_node: int = 1 << 16,
        tables: tuple[Path, Path] | None = None,
    ) -> None:
        self._lib = ctypes.CDLL(str(library))
        self._lib.memory_create.restype = ctypes.c_void_p
        self._lib.memory_access.restype = ctypes.c_uint64
        self._lib.memory_meeting.restype = Meeting
        self._lib.memory_filter.restype = ctypes.POINTER(FilterLine)
        counts, traffic = (self._open(path) for path in tables or (None, None))
        error = ctypes.create_string_buffer(200)
        made = self._lib.memory_create(
            parameters.encode(), counts, traffic, error, ctypes.c_size_t(len(error))
        )
        if not made:
            raise ValueError(error.value.decode())
        self._memory = ctypes.c_void_p(made)
        self._files: tuple[ctypes.c_void_p | None, ...] = (counts, traffic)
        self.now_ps = 0
        self._bits = self._lib.memory_filter_bits(self._memory)
        self._regions = [(node * lines_of_node, lines_of_node, node) for node in range(nodes)]
        self._begin()

    def _begin(self) -> None:
        for first, lines, node in self._regions:
            host = ctypes.c_uint64(first * LINE_BYTES)
            assert self._lib.memory_add_region(self._memory, first, lines, node, host)
        self._filters = [
            self._lib.memory_filter(self._memory, cpu)
            for cpu in range(self._lib.memory_cpus(self._memory))
        ]

    def _open(self, path: Path | None) -> ctypes.c_void_p | None:
        if path is None:
            return None
        self._lib.fopen.restype = ctypes.c_void_p
        return ctypes.c_void_p(self._lib.fopen(str(path).encode(), b"wb"))

    def load(self, cpu: int, line: int, *, vaddr: int | None = None, size: int = 1) -> int:
        """Return what a load costs, in ps."""
        return self._access(cpu, line, vaddr, size, store=False)

    def store(self, cpu: int, line: int, *, vaddr: int | None = None, size: int = 1) -> int:
        """Return what a store costs, in ps."""
        return self._access(cpu, line, vaddr, size, store=True)

    def _access(self, cpu: int, line: int, vaddr: int | None, size: int, *, store: bool) -> int:
        address = line * LINE_BYTES if vaddr is None else vaddr
        entry = self.filter_entry(cpu, address)
        if (entry.write if store else entry.read) == line * LINE_BYTES:
            return 0
        access = Access(address, self.now_ps, line, cpu, size, store)
        cost: int = self._lib.memory_access(self._memory, access)
        self.now_ps += cost
        return cost

    def filter_entry(self, cpu: int, vaddr: int) -> FilterLine:
        """Return the entry of an address in a CPU's filter."""
        entry: FilterLine = self._filters[cpu][(vaddr // LINE_BYTES) % (1 << self._bits)]
        return entry

    @property
    def met(self) -> tuple[int, ...]:
        """The CPUs between which the last access moved a line, and that have to stay together."""
        meeting = self._lib.memory_meeting(self._memory)
        return tuple(meeting.cpus[: meeting.count])

    def set_instruction(self, instruction_ps: int) -> None:
        """Set how long an instruction takes, which is no wait."""
        self._lib.memory_set_instruction(self._memory, ctypes.c_uint64(instruction_ps))

    def advance(self, now_ps: int) -> None:
        """Tell that all CPUs have come as far as this."""
        self._lib.memory_advance(self._memory, ctypes.c_uint64(now_ps))

    def switch(self, cpu: int, task: int, now_ps: int) -> None:
        """Tell that a CPU runs another task."""
        self._lib.memory_switch(self._memory, cpu, ctypes.c_uint64(task), ctypes.c_uint64(now_ps))

    def count_places(self, path: Path) -> None:
        """Count pages and lines too, into this file."""
        places = self._open(path)
        self._files = (*self._files, places)
        assert self._lib.memory_count_places(self._memory, places)

    def mark(self, cpu: int) -> None:
        """Tell that a CPU writes a mark."""
        self._lib.memory_mark(self._memory, cpu, ctypes.c_uint64(self.now_ps))

    def barrier(self, cpu: int) -> None:
        """Tell that a CPU calls a barrier."""
        self._lib.memory_barrier(self._memory, cpu, ctypes.c_uint64(self.now_ps))

    def born(self, cpu: int) -> None:
        """Tell that a CPU runs a new task for the first time."""
        self._lib.memory_born(self._memory, cpu, ctypes.c_uint64(self.now_ps))

    def restart(self) -> None:
        """Begin anew, as when it was created."""
        assert self._lib.memory_restart(self._memory)
        self._begin()

    def finish(self) -> None:
        """Write what the tables still lack, and free everything."""
        self._lib.memory_finish(self._memory)
        for file in self._files:
            if file is not None:
                self._lib.fclose(file)
