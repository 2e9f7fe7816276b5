"""Stored boots, recordings and cases of a stranger, read by `hunt`, `bisect --case` and others.

Boots that a hunt stored, run folders and recordings hold bytes that are no UTF-8, pipes, links,
escape sequences, huge and sparse files. The commands run as they are; in the place of a guest is
one that cannot be booted.
"""

import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz.commands import Box, Ended, Word
from fuzz.results import HOSTILE, LITERALS
from fuzz.traces import _source as recording
from support.example_results import RUNS, copy_example

CASES, FEW = 600, 2
PROGRAM = ("-P", "-c", "from fuzz.boots import main; main()")
FINDING = {"prop": "affinity", "load": 0, "value": 1.0, "most": 0.5, "text": "ran elsewhere"}
TEXTS = [
    "\x1b[2J\x1b]0;x\x07", "\x9b31m", "a\nb", "\u202e", "", "x" * 100_000, "[bold]x[/bold]", "\r",
    "\ud800", "\0",
]  # fmt: skip
BYTES = [b"\xff\xfe", b"\x1b[2J", b"\0" * 9, b"{" * 5000, b"[" * 90_000, b"1" * 9000, b"", b"null"]


def case(seed: int, scratch: Path) -> str:
    """Store boots, spoil them, and run a command that reads them."""
    rng = random.Random(seed)
    box = Box(scratch)
    read = rng.choice(_COMMANDS)
    ended = read(rng, box)
    return f"{read.__name__.strip('_')}: exit code {box.check(ended)}"


def _hunt(rng: random.Random, box: Box) -> Ended:
    """Replay the corpus, hunt, or bisect a case, with stored boots."""
    stored = box.work / "boots"
    kernels = ["debian-6.12", "debian-6.12-undo-group-construction"]
    lines: list[list[Word]] = [
        ["hunt", "--replay", "--kernel", rng.choice(kernels), "--output", stored, "--jobs", "1"],
        ["hunt", "--replay", "--output", stored, "--jobs", "1", "--junit", "junit.xml"],
        ["hunt", "--kernel", rng.choice(kernels), "--machines", "1", "--loads", "1", "--survey",
         "--jobs", "1", "--output", stored],
        ["bisect", "--case", box.checkout / "hunts" / "group-construction.toml",
         "--output", stored],
    ]  # fmt: skip
    line: list[Word] = [*rng.choice(lines), *(["--json"] if rng.random() < 0.3 else [])]
    first = box.run(*line, program=PROGRAM)  # stores what the guest that is none would give
    assert first.code in (0, 1), f"the stored boots are not good\n{first}"
    names = sorted(stored.rglob("*.json"))
    for path in rng.sample(names, rng.randrange(len(names) + 1)):
        _store(rng, box, path)
    return box.run(*line, program=PROGRAM, terminal=rng.random() < 0.3)


def _store(rng: random.Random, box: Box, path: Path) -> None:
    """Store one boot, mostly spoiled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    findings = [dict(FINDING) for _ in range(rng.choice([0, 1, 2]))]
    boot: dict[str, Any] = {"findings": findings, "seconds": 1.0, "error": ""}
    if rng.random() < 0.5:
        place = rng.choice([boot, *findings])
        place[rng.choice(sorted(place))] = rng.choice([*TEXTS, *HOSTILE])
    if findings and rng.random() < 0.5:
        findings[0]["text"] = rng.choice(TEXTS)
    data = json.dumps(boot, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        data = data.replace(b"1.0", rng.choice(LITERALS).encode("utf-8", "surrogatepass"), 1)
    path.write_bytes(data)
    if rng.random() < 0.6:
        spoil_file(rng, box, path)


def spoil_file(rng: random.Random, box: Box, path: Path) -> None:
    """Put something else in the place of a file."""
    path.unlink()
    match rng.randrange(8):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to(rng.choice(["/dev/zero", "/dev/stdin", "/proc/kmsg", "/dev/full"]))
        case 2:
            path.symlink_to(box.outside / rng.choice(["secret.txt", "plan.json", "nothing"]))
        case 3:
            path.mkdir()
        case 4:
            path.write_bytes(rng.choice(BYTES))
        case 5:
            path.touch()
            os.truncate(path, rng.choice([1 << 20, 3 << 30, 1 << 40]))
        case 6:
            path.write_bytes(b'"' + rng.choice(BYTES) * 20 + b'"')
        case _:
            path.write_bytes(rng.randbytes(3000))


def _run_folder(rng: random.Random, box: Box) -> Ended:
    """Ask for results whose run folders hold such files."""
    folder = copy_example(box.work / "results")
    _odd_runs(rng, box, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    for path in rng.sample(files, rng.choice([1, 2, 5])):
        spoil_file(rng, box, path)
    lines: list[list[Word]] = (
        [["report", folder], ["status", folder], ["status", folder, "--json"], ["query", folder],
         ["query", folder, "SELECT * FROM measures"], ["compare", folder, folder],
         ["export", folder, box.work / "a.tar.zst"], ["report", folder, "--format", "perfetto"],
         ["verify", folder, "--run", "no-such-run"]]
    )  # fmt: skip
    return box.run(*rng.choice(lines), terminal=rng.random() < 0.3)


def _odd_runs(rng: random.Random, box: Box, folder: Path) -> None:
    """Add folders of runs that failed, are said to be running, or have odd names."""
    texts = [rng.choice(TEXTS).replace("\0", "") for _ in range(2)]
    for name in rng.sample([b".running", b".failed", b".interrupted", b"\xff", b"\x1b[2J"], 3):
        run = Path(os.fsdecode(bytes(folder / "runs" / RUNS[0]) + name))
        run.mkdir()
        manifest = json.loads((folder / "runs" / RUNS[1] / "manifest.json").read_text())
        manifest |= {"status": "failed", "reason": texts[0], "notes": texts}
        (run / "manifest.json").write_text(json.dumps(manifest))
        (run / "console.log").write_bytes(rng.choice(BYTES))
        if rng.random() < 0.5:
            spoil_file(rng, box, rng.choice(sorted(run.iterdir())))


def _recording(rng: random.Random, box: Box) -> Ended:
    """Measure a recording that is spoiled, or is no file."""
    path = box.work / "trace.dat"
    data = bytearray(recording())
    for _ in range(rng.choice([0, 1, 20])):
        at, size = rng.randrange(len(data)), rng.choice([1, 8, 4096])
        data[at : at + size] = rng.choice([bytes(size), b"\xff" * size, rng.randbytes(size)])
    path.write_bytes(data)
    if rng.random() < 0.4:
        spoil_file(rng, box, path)
    words: list[str | Path] = ["trace", path, "--topology", "ring-4"]
    if rng.random() < 0.3:
        machine = box.work / "numactl.txt"
        machine.write_text("x")
        spoil_file(rng, box, machine)
        words = ["trace", path, "--numactl", machine]
    if rng.random() < 0.5:
        words += ["--output", box.work / rng.choice(["out", "trace.dat", "numactl.txt"])]
    if rng.random() < 0.3:
        words += ["--tasks", rng.choice(["\x1b[2J", "*", "[", "hog*"])]
    return box.run(*words, terminal=rng.random() < 0.3)


_COMMANDS: list[Callable[[random.Random, Box], Ended]] = [_hunt, _hunt, _run_folder, _recording]


def main() -> None:
    """Run the command line with benches that nothing was built for, and no libvirt."""
    from numalab.cli.entry import main as command  # noqa: PLC0415 - in a child
    from numalab.cli.hunt import bisect_case, hunt, replay_cases  # noqa: PLC0415
    from numalab.guest.kvm import Choice  # noqa: PLC0415
    from numalab.hunt import store_case, workers  # noqa: PLC0415
    from numalab.hunt.boot_case import HuntBench  # noqa: PLC0415

    def bench(spec: Any) -> Any:
        choice = Choice("icount", "host", "asked for")
        built = SimpleNamespace(digest="0" * 32, bzimage_sha256=spec.name, symbols=None)
        builds: Any = SimpleNamespace(kernels={spec.name: built}, files={"hunt": {"hunt": b""}})
        return HuntBench(spec, builds, choice, wall=9.0, properties=frozenset())

    def benches(specs: Any, *_: object, **__: object) -> list[Any]:
        return [bench(spec) for spec in specs]

    @contextmanager
    def crew(store: Any, jobs: int, progress: Any) -> Any:
        pool: Any = _Pool()
        yield workers.CaseWorkers(store, pool, progress, jobs)

    for module in (hunt, bisect_case, replay_cases):
        for name, stand_in in (("connect", lambda _: None), ("prepare_benches", benches),
                               ("workers", crew)):  # fmt: skip
            setattr(module, name, stand_in)
    vars(bisect_case)["bench_like"] = lambda _bench, spec, _tell: bench(spec)
    vars(hunt)["plan_direction"] = lambda *_: None  # which compiles the kernel
    vars(store_case)["write_folder"] = lambda *_: None
    vars(hunt)["ensure_emulator"] = lambda *_, **_more: None
    sys.argv[0] = "numalab"
    command()


class _Pool:
    """Gives the same result for every boot: each property was violated a little."""

    def start(self, jobs: list[Any]) -> None:
        self.jobs = list(jobs)

    def next(self, timeout: float) -> Any:
        """Return the place of the next boot, and its result."""
        from numalab.hunt.finding import BootResult, Finding  # noqa: PLC0415
        from numalab.hunt.property import property_names  # noqa: PLC0415

        place, _ = self.jobs.pop(0)
        return place, BootResult(
            tuple(Finding(n, 0, 0.6, 0.5, "ran elsewhere") for n in property_names()), 1.0
        )
