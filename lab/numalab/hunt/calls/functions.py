"""The functions whose calls boots count, and those that two kernels can be compared in.

A block of code (`numalab.hunt.calls.blocks`) is counted as a function is. It is called
FUNCTION+OFFSET/SIZE, as in the kernel's own messages.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from numalab.artifact.digest import digest_of
from numalab.errors import HostError
from numalab.files import read_regular
from numalab.reach.lines import LineCode, executions
from numalab.source.c_functions import functions_in
from numalab.source.plain_files import SourceFile
from numalab.workload.elf_symbols import ElfSymbol, functions_of, symbols_of


@dataclass(frozen=True)
class _File:
    """The object that a source file is part of, and which of its functions are counted."""

    compiled_in: str
    pattern: str = ""


# kernel/sched/Makefile of 6.12: build_policy.c and build_utility.c include the smaller files.
_POLICY, _UTILITY = _File("build_policy"), _File("build_utility")
_COUNTED: Mapping[str, _File] = {
    # __cond_resched() is called from long loops of the kernel, whatever the load is.
    "kernel/sched/core.c": _File("core", "^(?!__cond_resched$)"),
    "kernel/sched/fair.c": _File("fair"),
    "kernel/sched/idle.c": _POLICY,
    "kernel/sched/rt.c": _POLICY,
    "kernel/sched/deadline.c": _POLICY,
    "kernel/sched/cpudeadline.c": _POLICY,
    "kernel/sched/pelt.c": _POLICY,
    "kernel/sched/cputime.c": _POLICY,
    "kernel/sched/syscalls.c": _POLICY,  # since 6.11
    "kernel/sched/cpupri.c": _UTILITY,
    "kernel/sched/loadavg.c": _UTILITY,
    "kernel/sched/topology.c": _UTILITY,
    "kernel/sched/autogroup.c": _UTILITY,
    "kernel/sched/completion.c": _UTILITY,
    "kernel/sched/core_sched.c": _UTILITY,
    "kernel/sched/cpuacct.c": _UTILITY,
    "kernel/sched/membarrier.c": _UTILITY,
    "kernel/sched/psi.c": _UTILITY,
    "kernel/sched/stats.c": _UTILITY,
    "kernel/sched/stop_task.c": _UTILITY,
    "kernel/sched/wait.c": _UTILITY,
    "kernel/stop_machine.c": _File("stop_machine"),
    "mm/mempolicy.c": _File("mempolicy", "numa|misplaced"),
    "mm/migrate.c": _File("migrate", "numa|misplaced"),
    "mm/memory.c": _File("memory", "numa|misplaced"),
}
# Files of which lines are counted, and no functions: those of headers are not called, and the
# others run when somebody reads files, for clocks and frequencies, for inodes (wait_bit.c), or for
# threads of RCU (swait.c), whatever the load is.
_LINES_ONLY = ("sched.h", "pelt.h", "stats.h", "autogroup.h", "clock.c", "cpufreq.c", "swait.c",
               "cpufreq_schedutil.c", "debug.c", "ext.c", "isolation.c", "wait_bit.c")  # fmt: skip
SOURCES = (*_COUNTED, *(f"kernel/sched/{name}" for name in _LINES_ONLY), "kernel/cgroup/cpuset.c",
           "kernel/locking/rtmutex.c", "kernel/time/tick-sched.c")  # fmt: skip
_LINE = "changed line "
_MARK = "tracing_mark_write"  # kernel/trace/trace.c
_LARGEST = 64 << 20  # of a vmlinux that holds symbols only
Read = Callable[[str], SourceFile | None]


@dataclass(frozen=True)
class CountedFunctions:
    """Functions and blocks of one kernel, in the order of their addresses; what writes a mark.

    `lines` are lines by name (`numalab.hunt.calls.lines`), which may have several addresses. A boot
    returns the counts. With `judged` it judges them instead, as properties of its loads.
    """

    names: tuple[str, ...]
    addresses: tuple[int, ...]
    mark: int
    judged: bool = False
    lines: Mapping[str, LineCode] = field(default_factory=dict)

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of all that is counted."""
        return (*self.names, *self.lines)

    @property
    def all_addresses(self) -> tuple[int, ...]:
        """The addresses of all that is counted, in order, each once."""
        of_lines = (address for line in self.lines.values() for address in line.addresses)
        return tuple(sorted({*self.addresses, *of_lines}))

    def counted(self, executions_at: Mapping[int, int]) -> Mapping[str, int]:
        """Return how often what is counted ran, by name, from the executions by address."""
        both = zip(self.names, self.addresses, strict=True)
        counts = {name: executions_at.get(address, 0) for name, address in both}
        counts |= {name: executions(line, executions_at) for name, line in self.lines.items()}
        return {name: count for name, count in counts.items() if count}

    def with_lines(self, addresses: Iterable[int]) -> "CountedFunctions":
        """Return them with changed lines, which this kernel alone has."""
        places = dict(zip(self.addresses, self.names, strict=True))
        lines = {address: f"{_LINE}{n}" for n, address in enumerate(sorted({*addresses}))}
        both = sorted((lines | places).items())
        return replace(
            self, names=tuple(name for _, name in both), addresses=tuple(at for at, _ in both)
        )

    @property
    def key(self) -> str:
        """What a stored boot depends on beside the kernel."""
        return f"calls {digest_of([self.all_names, self.judged])}"


@dataclass(frozen=True)
class KernelFunctions:
    """The functions of a kernel with their sizes, and the text of those of the counted files.

    A name is that of the source; functions with several places are left out.
    """

    sizes: Mapping[str, int]
    addresses: Mapping[str, int]
    mark: int
    bodies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by file, by function

    def counted(self, names: Iterable[str], *, judged: bool = False) -> CountedFunctions:
        """Return those of these functions and blocks that this kernel has."""
        places = ((self._address(name), name) for name in names)
        chosen = sorted((address, name) for address, name in places if address is not None)
        return CountedFunctions(
            tuple(name for _, name in chosen), tuple(at for at, _ in chosen), self.mark, judged
        )

    def _address(self, name: str) -> int | None:
        """Return where a function or block begins; None in a function of another size."""
        function, _, place = name.partition("+")
        offset, _, size = place.partition("/")
        if size and self.sizes.get(function) != int(size, 16):
            return None
        address = self.addresses.get(function)
        return None if address is None else address + int(offset or "0", 16)


def is_changed_line(name: str) -> bool:
    """Whether it is the name of a changed line, not of a function or block."""
    return name.startswith(_LINE)


def read_symbols(symbols: Path) -> KernelFunctions:
    """Read the functions of a kernel from the symbols of its vmlinux. Raises HostError."""
    try:
        data = read_regular(symbols, _LARGEST)
    except (OSError, ValueError) as error:
        raise HostError(f"cannot read the symbols of the kernel: {error}") from None
    # gcc names copies of a function with another interface f.isra.0, f.part.0 or f.constprop.0.
    places: dict[str, list[ElfSymbol]] = {}
    for symbol in functions_of(data):
        if not symbol.name.endswith(".cold"):
            places.setdefault(symbol.name.partition(".")[0], []).append(symbol)
    single = {name: own[0] for name, own in places.items() if len(own) == 1}
    mark = symbols_of(data, {_MARK}).get(_MARK)
    return KernelFunctions(
        {name: symbol.size for name, symbol in single.items()},
        {name: symbol.vaddr for name, symbol in single.items()},
        mark.vaddr if mark else 0,
    )


def read_code(symbols: Path, read: Read) -> KernelFunctions:
    """Read the functions of a kernel from the symbols of its vmlinux, and from its source.

    Raises HostError, and what `read` raises.
    """
    texts = ((name, read(name)) for name in _COUNTED)
    bodies = {name: dict(functions_in(file.text)) for name, file in texts if file is not None}
    return replace(read_symbols(symbols), bodies=bodies)


def comparable(mine: KernelFunctions, theirs: KernelFunctions) -> Sequence[str]:
    """Return the functions whose calls say the same about both kernels, by name.

    The compiler inlines a static function where it likes. So a patch can change how often a
    function is entered, and nothing else: left out are functions whose code has another size, and
    those that such a function of the same object names.
    """
    differing = {
        name
        for name in mine.sizes.keys() | theirs.sizes.keys()
        if mine.sizes.get(name) != theirs.sizes.get(name)
    }
    doubtful: dict[str, set[str]] = {}
    for code in (mine, theirs):
        for file, bodies in code.bodies.items():
            for name in differing & bodies.keys():
                words = re.findall(r"[A-Za-z_]\w+", bodies[name])
                doubtful.setdefault(_COUNTED[file].compiled_in, set()).update(words)
    names = set[str]()
    for file, bodies in mine.bodies.items():
        counted = _COUNTED[file]
        own = mine.addresses.keys() & theirs.addresses.keys() & bodies.keys() - differing
        names |= {name for name in own - doubtful.get(counted.compiled_in, set())
                  if re.search(counted.pattern, name)}  # fmt: skip
    return sorted(names)
