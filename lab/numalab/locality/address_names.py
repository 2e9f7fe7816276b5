"""Names of addresses in a guest's processes: variables of ELF files, else mappings."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath

from numalab.capture.maps import Mapping as MappedRange
from numalab.capture.maps import ProcessMaps, Snapshot
from numalab.capture.memory_places import KERNEL
from numalab.errors import shown
from numalab.workload.elf_symbols import ElfFile, ElfSymbol, read_elf
from numalab.workload.host_program import LOADER

PAGE, LINE = 4096, 64
FILES = "/job/files/"  # where the files that a command takes along lie in the guest
_LONGEST = 80
_STACK = 8 << 20  # of a thread: RLIMIT_STACK, pthread_create(3)
_LARGEST_GUARD = 1 << 20  # below it: 4 KiB, unless pthread_attr_setguardsize(3) made it larger
# Heaps of threads have this size and begin at its multiples (HEAP_MAX_SIZE in glibc's
# malloc/arena.c, and Go's); what is not in use yet is mapped without access.
_ARENA = 64 << 20
_NO_ACCESS = "---"
_NAMELESS = ("/memfd:", "/dev/shm/")  # memfd_create(2), shm_open(3): often without a name in files
_MOST_NAMES = 3  # of variables that share a page


@dataclass(frozen=True)
class AddressName:
    """A variable or mapping: its name, the file it is of (empty for none), and its addresses."""

    name: str
    file: str
    start: int
    end: int


UNSEEN = 0  # the process of regions of which nothing else is known
UNKNOWN = AddressName("of processes that were not seen", "", 0, 0)
UNMAPPED = AddressName("mappings that were not seen", "", 0, 0)
KERNEL_NAME = AddressName("the kernel, for this command", "", 0, 0)


def titled(name: str, file: str) -> str:
    """Return the name of a region or line with its file, unless it names that."""
    return f"{name} ({file})" if file and file not in name else name


@dataclass(frozen=True)
class ThreadNames:
    """The names of threads by pid, and the nodes of the machine."""

    names: dict[int, str]
    nodes: int


@dataclass(frozen=True)
class _Loaded:
    """A file of a process, and the addresses that it takes."""

    start: int
    end: int
    path: str
    bias: int
    elf: ElfFile


@dataclass(frozen=True)
class AddressNames:
    """Names the addresses of processes as they were near `time_ns` of the trace's clock.

    `files` are those of the command, by their name below /job/files; `threads` have the names of
    all threads.
    """

    processes: tuple[ProcessMaps, ...]
    files: Mapping[str, bytes] = field(repr=False)
    time_ns: int
    threads: Mapping[int, str] = field(default_factory=dict)
    _loaded: dict[tuple[int, int], tuple[_Loaded, ...]] = field(default_factory=dict)
    _elves: dict[str, ElfFile | None] = field(default_factory=dict)

    def process_of(self, pid: int, address: int) -> ProcessMaps | None:
        """Return the process of a thread; of one in no snapshot, the only process with a mapping
        here, else the last one of the thread's name that is older."""
        for process in self.processes:
            if pid in process.threads:
                return process
        fitting = [process for process in self.processes if self._mapping(process, address)]
        if len(fitting) == 1:
            return fitting[0]
        name = self.threads.get(pid)
        namesakes = [
            process
            for process in fitting or self.processes
            if process.tgid < pid and name is not None and self.threads.get(process.tgid) == name
        ]
        return namesakes[-1] if namesakes else None

    def of_pid(self, pid: int, page: int, lines: int) -> tuple[int, AddressName]:
        """Name the process (or `UNSEEN`) of a thread, and what it touched of a page."""
        if page == KERNEL:
            return UNSEEN, KERNEL_NAME
        process = self.process_of(pid, page)
        if process is None:
            return UNSEEN, UNKNOWN
        return process.tgid, self.of_page(process, page, lines)

    def of_page(self, process: ProcessMaps, page: int, lines: int) -> AddressName:
        """Name what the touched lines of a page (bits) are of: a variable, a few, or a mapping."""
        hit = self._mapping(process, page)
        if hit is None:
            return UNMAPPED
        snapshot, mapping = hit
        loaded = self._file_at(process, snapshot, page)
        if loaded is None:
            return _of_mapping(snapshot, mapping, page)
        offset = page - loaded.bias
        touched = {
            symbol: _lines_touched(symbol, offset, lines)
            for symbol in loaded.elf.variables_within(offset, offset + PAGE)
        }
        ranked = sorted(touched.items(), key=lambda item: (-item[1], -item[0].size, item[0].name))
        ranked = [(symbol, count) for symbol, count in ranked if count]
        base = _base(loaded.path)
        if not ranked:
            return AddressName(f"data of {base}", base, loaded.start, loaded.end)
        first, most = ranked[0]
        if most * 2 >= lines.bit_count():
            return _named(first, loaded)
        names = ", ".join(symbol.name for symbol, _ in ranked[:_MOST_NAMES])
        more = f" and {len(ranked) - _MOST_NAMES} more" if len(ranked) > _MOST_NAMES else ""
        return AddressName(_short(names) + more, base, page, page + PAGE)

    def of_word(self, process: ProcessMaps, address: int) -> str:
        """Name an address as `variable+offset`, else by its mapping and offset."""
        hit = self._mapping(process, address)
        if hit is None:
            return f"{address:#x}"
        snapshot, mapping = hit
        loaded = self._file_at(process, snapshot, address)
        if loaded is not None:
            offset = address - loaded.bias
            for symbol in loaded.elf.variables_within(offset, offset + 1):
                return _plus(_short(symbol.name), offset - symbol.vaddr)
        name = _of_mapping(snapshot, mapping, address)
        return _plus(name.name, address - name.start)

    def _mapping(self, process: ProcessMaps, address: int) -> tuple[Snapshot, MappedRange] | None:
        """Return the mapping of an address in the nearest snapshot, of those where it could be
        accessed if there are any."""
        closed = None
        for snapshot in process.nearest_first(self.time_ns):
            place = snapshot.place_of(address)
            if place is None:
                continue
            mapping = snapshot.mappings[place]
            if not mapping.access.startswith(_NO_ACCESS):
                return snapshot, mapping
            closed = closed or (snapshot, mapping)
        return closed

    def _file_at(self, process: ProcessMaps, snapshot: Snapshot, address: int) -> _Loaded | None:
        key = process.tgid, snapshot.time_ns
        if key not in self._loaded:
            self._loaded[key] = tuple(self._files_of(snapshot))
        files = self._loaded[key]
        place = bisect_right(files, address, key=lambda file: file.start) - 1
        return files[place] if place >= 0 and address < files[place].end else None

    def _files_of(self, snapshot: Snapshot) -> list[_Loaded]:
        mappings: dict[str, list[tuple[int, int]]] = {}
        for mapping in snapshot.mappings:
            mappings.setdefault(mapping.path, []).append((mapping.start, mapping.offset))
        files = []
        for path, ranges in mappings.items():
            elf = self._elf(path)
            bias = None if elf is None else elf.bias(ranges)
            if elf is not None and bias is not None:
                first, last = elf.ends
                files.append(_Loaded(first + bias, last + bias, path, bias, elf))
        return sorted(files, key=lambda file: file.start)

    def _elf(self, path: str) -> ElfFile | None:
        if not path.startswith(FILES):
            return None
        if path not in self._elves:
            data = self.files.get(path.removeprefix(FILES))
            self._elves[path] = None if data is None else read_elf(data)
        return self._elves[path]


def _of_mapping(snapshot: Snapshot, mapping: MappedRange, address: int) -> AddressName:
    path, start, end = mapping.path, mapping.start, mapping.end
    if path.startswith(("/dev/zero", "/SYSV")):  # shmem_zero_setup() in mm/shmem.c, shmget(2)
        return AddressName(f"shared memory, {(end - start) >> 10} KiB", "", start, end)
    if path.startswith(_NAMELESS):
        base = _base(path.removesuffix(" (deleted)"))
        return AddressName(base, base, start, end)
    if path.startswith("/"):
        base = _base(path)
        return AddressName(
            f"data of {base}" if "w" in mapping.access else f"file {base}", base, start, end
        )
    if path:
        return AddressName(_short(path), "", start, end)
    return _of_anonymous(snapshot, mapping, address)


def _of_anonymous(snapshot: Snapshot, mapping: MappedRange, address: int) -> AddressName:
    start, end = mapping.start, mapping.end
    arena = address - address % _ARENA
    if _is_arena(snapshot, arena):
        return AddressName("heap arena", "", arena, arena + _ARENA)
    if not _has_guard(snapshot, start):
        return AddressName(f"anonymous, {(end - start) >> 10} KiB", "", start, end)
    # Linux joins a thread's stack to what was mapped before it, at the addresses above.
    top = min(end, start + _STACK)
    if address < top:
        return AddressName(f"thread stack, {(top - start) >> 10} KiB", "", start, top)
    return AddressName(f"anonymous, {(end - top) >> 10} KiB", "", top, end)


def _is_arena(snapshot: Snapshot, start: int) -> bool:
    """Whether an arena begins here: memory in use, and the rest without access."""
    places = snapshot.place_of(start), snapshot.place_of(start + _ARENA - 1)
    if places[0] is None or places[1] != places[0] + 1:
        return False
    used, rest = (snapshot.mappings[place] for place in (places[0], places[0] + 1))
    return (
        (used.path, rest.path) == ("", "")
        and used.start % _ARENA == rest.end % _ARENA == 0
        and used.end == rest.start
        and rest.access.startswith(_NO_ACCESS)
        and not used.access.startswith(_NO_ACCESS)
    )


def _has_guard(snapshot: Snapshot, start: int) -> bool:
    """Whether the guard of a thread's stack ends here, and not the rest of an arena."""
    place = snapshot.place_of(start - 1)
    guard = None if place is None else snapshot.mappings[place]
    return (
        guard is not None
        and guard.access.startswith(_NO_ACCESS)
        and guard.end - guard.start < _LARGEST_GUARD
        and not _is_arena(snapshot, start - _ARENA)
    )


def _lines_touched(symbol: ElfSymbol, page: int, lines: int) -> int:
    first = max(0, (symbol.vaddr - page) // LINE)
    last = min(PAGE // LINE, -(-(symbol.vaddr + symbol.size - page) // LINE))
    return (lines >> first & ((1 << max(0, last - first)) - 1)).bit_count()


def _named(symbol: ElfSymbol, loaded: _Loaded) -> AddressName:
    start = symbol.vaddr + loaded.bias
    return AddressName(_short(symbol.name), _base(loaded.path), start, start + symbol.size)


@cache
def _base(path: str) -> str:
    """Return the name of a file; the loader has the name of the program that it starts."""
    if path.startswith(f"{FILES}{LOADER}/"):
        return "ld.so"
    return _short(PurePosixPath(path).name)


@cache
def _short(name: str) -> str:
    return cut_middle(shown(name), _LONGEST)


def cut_middle(text: str, width: int) -> str:
    """Shorten a text to a width: long names mostly differ at the end."""
    if len(text) <= width:
        return text
    half = (width - 3) // 2
    return f"{text[: width - 3 - half]}...{text[-half:]}"


def _plus(name: str, offset: int) -> str:
    return f"{name}+{offset}" if offset else name
