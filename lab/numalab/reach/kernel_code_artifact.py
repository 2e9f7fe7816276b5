"""Compiles the objects of some source files once more, with line numbers.

The kernel that boots has no debug information. gcc makes the same code with -g, which is checked;
each section lies in the kernel where all its functions have their names and sizes.
"""

import gzip
import posixpath
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from numalab.artifact.builder import Artifact, Work, build
from numalab.artifact.digest import digest_of
from numalab.artifact.kinds import Kind, register_kind
from numalab.errors import UserError
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_build import ENVIRONMENT, BuildFolder, build_lock, opened_build
from numalab.kernel.kernel_specs import KernelSpec
from numalab.process import run
from numalab.progress import Progress, no_progress
from numalab.reach.fingerprint import (
    Fingerprint,
    Targets,
    Variable,
    fingerprint,
    parse_listing,
)
from numalab.reach.lines import Code
from numalab.reach.listing import (
    Symbol,
    parse_instructions,
    parse_members,
    parse_rows,
    parse_static_jumps,
    parse_symbols,
    section_bases,
    source_name,
)
from numalab.reach.source_text import parse_config

FORMAT = 9  # raise it when the content of an entry changes
MAX_OBJECTS = 32  # of a header, which may be part of a thousand objects

_SECTION = re.compile(r"\s*\[\s*(\d+)\] (\S+)\s+\S+\s+\S+ \S+ \S+ \S+\s+(\w*)")
_COMMAND = re.compile(r"(?:savedcmd|cmd)_\S+ := (.*)")
_JIFFIES = "jiffies_64"
_SCHEDULER = "kernel/sched/"
_BESIDE = ("arch/x86/boot", "arch/x86/realmode/rm", "arch/x86/tools", "scripts", "tools", ".tmp")


@dataclass(frozen=True)
class ObjectText:
    """One object: what binutils print of it, at its addresses in the kernel.

    `reason` is why its lines are unknown, "" if they are known.
    """

    name: str
    rows: str
    instructions: str
    static_jumps: str
    bases: Mapping[str, int]
    fingerprint: Fingerprint
    folder: str
    tree: str
    reason: str = ""

    @cached_property
    def code(self) -> Code:
        """Rows and instructions."""
        return Code(
            parse_rows(self.rows, self.folder, self.tree),
            parse_instructions(self.instructions, self.tree),
            parse_static_jumps(self.static_jumps, self.bases),
        )


@dataclass(frozen=True)
class KernelCode:
    """The objects that some source files are part of.

    `left_out` counts objects above MAX_OBJECTS. `jiffies` is the address of jiffies_64.
    `run_queue` are the members of struct rq by their offsets, if an object is of the scheduler.
    `outside` are the sources that are part of no object of vmlinux, each with a file of which it is
    part: the linker script, or an object of the decompressor; "" for none.
    """

    objects: tuple[ObjectText, ...]
    left_out: int
    jiffies: int
    run_queue: Mapping[int, str] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)


def _read(entry: Path) -> KernelCode | None:
    try:
        with gzip.open(entry) as file:
            return TypeAdapter(KernelCode).validate_json(file.read())
    except (OSError, EOFError, ValidationError):
        return None


KERNEL_CODE = register_kind(Kind(name="line-table", folder="line-tables", files="*.json.gz"))


def kernel_code(
    spec: KernelSpec,
    kernel: BuiltKernel,
    sources: Collection[str],
    functions: Collection[str] = (),
    on_progress: Progress = no_progress,
) -> KernelCode:
    """Return the code of the objects that `sources` (files of the tree) are part of.

    Of a header's objects, those whose sources name one of `functions` come first. Raises UserError
    for a prebuilt kernel, BuildError and HostError as `ensure_kernel` does.
    """
    if spec.is_prebuilt or kernel.symbols is None:
        raise UserError(f"{spec.name} is prebuilt: the lines of its code are unknown")
    digest = digest_of([FORMAT, kernel.digest, sorted(sources), sorted(functions)])
    return build(
        Artifact(
            KERNEL_CODE,
            f"lines of {spec.name}",
            KERNEL_CODE.entry(f"{digest[:32]}.json.gz"),
            partial(_make, spec, kernel, tuple(sources), tuple(functions)),
            _read,
            lock=build_lock(spec),
        ),
        on_progress,
    )


def _make(
    spec: KernelSpec,
    kernel: BuiltKernel,
    sources: Sequence[str],
    functions: Sequence[str],
    work: Work,
) -> None:
    assert kernel.symbols is not None
    linked = parse_symbols(_readelf("--symbols", kernel.symbols))
    with opened_build(spec, kernel, work) as folder:
        names, left_out, outside = _objects(folder, sources, functions)
        if names:
            folder.make(names)
        if names and outside:  # the lists may have been those of a kernel that was built in between
            made = names
            names, left_out, outside = _objects(folder, sources, functions)
            if not {*names} <= {*made}:
                folder.make(names)
        done: list[str] = []

        def scratch(name: str) -> Path:
            return work.entry.parent / f"{name.replace('/', '_')}.g"

        def compile_one(name: str) -> ObjectText:
            text = _compile(folder, name, scratch(name), linked, work)
            done.append(name)
            work.tell(f"lines of {name}", len(done) / len(names))
            return text

        with ThreadPoolExecutor(4) as pool:
            objects = tuple(pool.map(compile_one, names))
        run_queue = _run_queue([scratch(name) for name in names if name.startswith(_SCHEDULER)])
    jiffies = [symbol.address for symbol in linked if symbol.name == _JIFFIES]
    code = KernelCode(objects, left_out, jiffies[0] if jiffies else 0, run_queue, outside)
    with gzip.open(work.entry, "wb") as file:
        file.write(TypeAdapter(KernelCode).dump_json(code))


def _objects(
    folder: BuildFolder, sources: Sequence[str], functions: Sequence[str]
) -> tuple[list[str], int, dict[str, str]]:
    """Return the objects that files are part of, by kbuild's lists of dependencies.

    With the count of those left out, and the files that are part of other files only, or of none.
    """
    chosen, included = dict[str, None](), dict[str, bool]()
    linked, outside = set[str](), dict.fromkeys(sources, "")
    own = {source: f"{source.removesuffix('.c')}.o" for source in sources}
    for source, name in own.items():
        if source.endswith(".c") and _command_file(folder, name).is_file():
            outside[source] = name
            if _is_linked(name):
                linked.add(source)
                chosen[name] = None
    search = [source for source in sources if source not in linked]
    for file in sorted(folder.out.rglob(".*.cmd")) if search else ():
        text = file.read_text(encoding="utf-8", errors="replace")
        inside = [source for source in search if _depends(folder, text, source)]
        if not inside:
            continue
        name = file.relative_to(folder.out).with_name(file.name[1:-4]).as_posix()
        if _is_linked(name):
            linked.update(inside)
            if name not in chosen:
                included[name] = _names_one(folder.tree / f"{name[:-2]}.c", functions)
        else:
            outside |= dict.fromkeys(inside, name)
    ranked = sorted(included, key=lambda name: (not included[name], not _is_near(name), name))
    most = max(MAX_OBJECTS - len(chosen), 0)
    rest = {source: name for source, name in outside.items() if source not in linked}
    return [*chosen, *ranked[:most]], len(ranked[most:]), rest


def _depends(folder: BuildFolder, text: str, source: str) -> bool:
    """Tell whether a list of dependencies has a source: `../a/../b.h`, or with its whole path."""
    end = f"/{posixpath.basename(source)}"
    words = re.findall(rf"(?<=\s)\S*{re.escape(end)}(?=\s)", text) if end in text else ()
    names = {source_name(word, str(folder.out), str(folder.tree)) for word in words}
    return source in names


def _is_linked(name: str) -> bool:
    """Tell whether a file is an object of vmlinux, not of the decompressor or a host's program."""
    return name.endswith(".o") and not name.startswith(_BESIDE)


def _is_near(name: str) -> bool:
    return name.startswith((_SCHEDULER, "mm/"))


def _names_one(source: Path, functions: Iterable[str]) -> bool:
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(name in text for name in functions)


def _command_file(folder: BuildFolder, name: str) -> Path:
    path = folder.out / name
    return path.with_name(f".{path.name}.cmd")


def _command(folder: BuildFolder, name: str, target: Path) -> str:
    """Return kbuild's command for an object (scripts/Kbuild.include), with -g and a new target."""
    text = _command_file(folder, name).read_text(encoding="utf-8")
    match = _COMMAND.match(text)
    if match is None:
        raise UserError(f"kbuild has no command for {name}")
    command = match[1].replace("$$", "$").replace("$(pound)", "#")
    command = re.sub(r"-Wp,-M?MD,\S+", "", command)
    command = re.sub(rf"(?<=\s){re.escape(name)}(?=\s|$)", str(target), command)
    return command.replace(" -c -o ", " -g -c -o ", 1)


def _compile(
    folder: BuildFolder, name: str, target: Path, linked: Sequence[Symbol], work: Work
) -> ObjectText:
    """Compile an object with -g, link it to its addresses in the kernel, and print it."""
    made = folder.out / name
    work.step(["sh", "-c", _command(folder, name, target)], cwd=folder.out, env=ENVIRONMENT)
    sections = _sections(target)
    symbols = parse_symbols(_readelf("--symbols", target))
    executed = {number: section for number, (section, flags) in sections.items() if "X" in flags}
    bases = section_bases(symbols, executed, linked)
    reason = _reason(made, target, executed, symbols, bases)
    place = target.with_name(f"{target.name}.linked")
    _link(target, place, bases)
    if not place.exists():  # as of the vDSO, which lies at none of the kernel's addresses
        place, reason = target, reason or "it cannot be linked alone"
    option = ["--disassemble", "--line-numbers", "--inlines", "--no-show-raw-insn"]
    data = [section for section, flags in sections.values() if "A" in flags and "X" not in flags]
    tree, out = folder.tree, folder.out
    contents = {section: _bytes(target, section) for section in data}
    named = {
        kind: [
            Variable(symbol.name, sections[symbol.section][0], symbol.address, symbol.size)
            for symbol in symbols
            if symbol.kind == kind and symbol.section in sections
        ]
        for kind in ("FUNC", "OBJECT")
    }
    targets = Targets([*named["FUNC"], *named["OBJECT"]], contents)
    config = parse_config((out / ".config").read_text(encoding="utf-8"))
    return ObjectText(
        name=name,
        rows=_readelf("--debug-dump=decodedline", place),
        instructions=_objdump([*option, *_chosen(bases)], place),
        static_jumps=_objdump(["--reloc", "--section=__jump_table"], target),
        bases=bases,
        fingerprint=fingerprint(
            parse_listing(_objdump([*option, "--reloc"], target), targets),
            contents,
            _objdump(["--reloc"], target),
            named["OBJECT"],
            targets,
            has_lines=config.get("DEBUG_BUGVERBOSE") == "y",
        ),
        folder=str(out),
        tree=str(tree),
        reason=reason,
    )


def _run_queue(objects: Sequence[Path]) -> dict[int, str]:
    """Return the members of struct rq, which each object of the scheduler has."""
    if not objects:
        return {}
    return parse_members(_readelf("--debug-dump=info", objects[0], "--dwarf-depth=3"), "rq")


def _reason(
    made: Path,
    target: Path,
    executed: Mapping[str, str],
    symbols: Iterable[Symbol],
    bases: Mapping[str, int],
) -> str:
    """Return why the lines of an object are unknown, "" if they are known."""
    for section in executed.values():
        if _bytes(target, section) != _bytes(made, section):
            return f"gcc -g makes other code in {section}"
    for symbol in symbols:
        section = executed.get(symbol.section, "")
        if symbol.kind == "FUNC" and section and section not in bases:
            return f"its section {section} is not in the kernel"
    return ""


def _chosen(sections: Iterable[str]) -> list[str]:
    return [f"--section={section}" for section in sections]


def _sections(path: Path) -> Mapping[str, tuple[str, str]]:
    """Return name and flags of the sections of an object by number."""
    matches = map(_SECTION.match, _readelf("--sections", path).splitlines())
    return {match[1]: (match[2], match[3]) for match in matches if match}


def _bytes(path: Path, section: str) -> bytes:
    with tempfile.NamedTemporaryFile(prefix="numalab-section.") as file:
        words = ["objcopy", "--output-target=binary", f"--only-section={section}"]
        run([*words, "--set-section-flags", f"{section}=alloc,load,contents", path, file.name])
        return Path(file.name).read_bytes()


def _link(source: Path, target: Path, bases: Mapping[str, int]) -> None:
    """Link an object so that each section of `bases` lies at its address.

    Only the addresses in debug information and of jumps are used, so that references to other
    objects may stay open.
    """
    script = target.with_suffix(".ld")
    lines = [f" {name} {base:#x} : {{ *({name}) }}" for name, base in bases.items()]
    script.write_text("\n".join(["SECTIONS {", *lines, "}", ""]), encoding="utf-8")
    words = ["--unresolved-symbols=ignore-all", "--noinhibit-exec", "--no-check-sections"]
    run(["ld", "-T", script, *words, "-e", "0", "-o", target, source], check=False)


def _objdump(options: Sequence[str], path: Path) -> str:
    return run(["objdump", *options, path], env={"LC_ALL": "C"}, check=False).stdout


def _readelf(option: str, path: Path, *further: str) -> str:
    return run(["readelf", option, *further, "--wide", path], env={"LC_ALL": "C"}).stdout
