"""`make bench`: how fast things are, each against a reference that runs beside it on this host.

A ratio shows more than seconds: both sides meet the same host, load and cache. The two sides of a
pair take turns, and the middle one of several rounds counts. Exits with 1 if a part cannot be
measured, never because of a figure.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import boot, decoding, guests, history, matrix, report, timed, topology
from bench.rows import BY_KEY, Figure, Form
from numalab.campaign.build import Builds, build
from numalab.errors import LabError
from numalab.image.recipe import load_recipe
from numalab.kernel.patched_kernel import find_kernel
from numalab.places import shipped_dir


@dataclass(frozen=True)
class Bench:
    """What all parts share: builds, a folder for their files, and how much is measured."""

    builds: Builds
    folder: Path
    form: Form

    def size(self, short: int, long: int) -> int:
        """Return the size of a part in this form."""
        return short if self.form is Form.SHORT else long

    @property
    def rounds(self) -> int:
        """How often both sides of a pair are measured."""
        return self.size(1, 3)


def main() -> int:
    """Measure, print each figure, and keep them unless the form is short; return the exit code."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    names = [form.name.lower() for form in Form]
    parser.add_argument("--form", choices=names, default="long", help="how much is measured")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="parts; default: all")
    words = parser.parse_args()
    form = Form[words.form.upper()]
    chosen = words.parts or [name for name, part in PARTS.items() if part.form <= form]
    lines, machine = history.read(), history.facts()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each command would compile its modules
    figures: list[Figure] = []
    failed = []
    builds = build([find_kernel(guests.KERNEL)], load_recipe("base"))
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="numalab-bench-") as folder:
            try:
                for figure in PARTS[name].measure(Bench(builds, Path(folder), form)):
                    figures.append(figure)
                    print(_text(figure), flush=True)
            except (LabError, OSError, RuntimeError, subprocess.SubprocessError) as error:
                failed.append(name)
                print(f"{name} cannot be measured: {error}", file=sys.stderr, flush=True)
    if form > Form.SHORT and figures:
        history.keep(lines, history.line(figures, machine))
        print(f"kept in {history.LINES}, {history.PAGE} and {history.PICTURE}")
    return int(bool(failed))


def _text(figure: Figure) -> str:
    row = BY_KEY[figure.key]
    text = f"{row.what.replace('`', '')}: {history.amount(figure.ours)} {row.unit}"
    if figure.reference is not None:
        beside = f"{history.amount(figure.reference)} {row.unit}"
        text += f"; {row.reference.replace('`', '')}: {beside}; ratio {figure.ratio:.2f}"
    share = row.share(figure)
    return text if share is None else f"{text} (target {row.target})"


def boots(bench: Bench) -> Iterator[Figure]:
    """Boot ring-4 for one short command as a user types it, beside virtme-ng if it is there."""
    for mode in ("tcg", "icount"):
        ours, theirs = boot.measure(mode, bench.rounds)
        yield Figure(f"boot-{mode}", ours.wall)
        yield Figure(f"boot-{mode}-cpu", ours.cpu, theirs.cpu if theirs else None)
        cold = boot.measure_cold(mode, bench.rounds)
        yield Figure(f"boot-{mode}-cold", cold.wall, ours.wall)
        yield Figure(f"boot-{mode}-cold-cpu", cold.cpu, ours.cpu)
    own = median(boot.own_cpu(bench.folder) for _ in range(bench.rounds))
    yield Figure("boot-python-cpu", own, _python())


def starts(bench: Bench) -> Iterator[Figure]:
    """Boot by numalab and by hand in turns, and small guests one after the other."""
    start = guests.measure_start(bench.builds, bench.folder, bench.rounds)
    yield Figure("boot-init", start.ours, start.by_hand)
    yield Figure("outside", start.outside)
    rate = guests.measure_small(bench.builds, bench.size(2, 10))
    yield Figure("small-guests", rate.per_second)
    yield Figure("small-guests-cpu", rate.own_cpu)


def hunts(bench: Bench) -> Iterator[Figure]:
    """Hunt on a few machines."""
    yield Figure("hunt-load-cpu", guests.measure_hunt(bench.folder, bench.size(1, 4)))


def decode(bench: Bench) -> Iterator[Figure]:
    """Decode a large recording, and let trace-cmd print it."""
    events = bench.size(60_000, 600_000)
    rounds = max(3, bench.rounds)  # the first one also fetches memory from the host
    spent = decoding.measure_decoding(bench.builds, bench.folder, events, rounds)
    yield Figure("decode", spent.ours, spent.reference)
    yield Figure("decode-cpu", spent.ours_cpu, spent.reference_cpu)
    starts = [("-c", text) for text in ("import numalab.capture.decode", "pass")]
    ours, python = (median(_cpu(*words) for _ in range(rounds)) for words in starts)
    yield Figure("decode-start", ours, python)
    yield Figure("measures", spent.measures)
    yield Figure("memory", spent.memory)


def long(bench: Bench) -> Iterator[Figure]:
    """Measure a recording of 100 million events, 5 GB; its table and events take 3 GB more."""
    directory = decoding.recorded(bench.builds, bench.folder, 600_000)
    minutes, mib = decoding.measure_long(directory.trace, bench.folder, 100_000_000)
    yield Figure("long", minutes)
    yield Figure("long-memory", mib)


def jobs(bench: Bench) -> Iterator[Figure]:
    """Run guests one after the other, and two and four at once as far as there are CPUs."""
    seeds = bench.size(1, 4)
    first = bench.folder / "first"
    first.mkdir()
    matrix.run_all(first, 1, 1)  # saves the guests
    serial = matrix.run_all(bench.folder, seeds, 1)
    yield Figure("run-cpu", serial.cpu / (2 * seeds))
    for count in (2, 4):
        if count <= min(len(os.sched_getaffinity(0)), bench.size(2, 4)):
            parallel = matrix.run_all(bench.folder, seeds, count)
            yield Figure(f"jobs-{count}", serial.wall, parallel.wall)


def queries(bench: Bench) -> Iterator[Figure]:
    """List and query the results of many runs."""
    listed, asked = matrix.list_and_query(bench.folder)
    yield Figure("list", listed)
    yield Figure("query", asked)


def speeds(bench: Bench) -> Iterator[Figure]:
    """Emulate loops on 8 and 16 vCPUs in mode timed, beside icount."""
    for cpus in timed.TOPOLOGIES:
        machines = timed.machines(bench.builds, cpus)
        icount, plain, model = (
            timed.measure(machine, bench.folder / f"{cpus}-{number}").cpu
            for number, (_, machine) in enumerate(machines)
        )
        yield Figure(f"timed-{cpus}", plain, icount)
        yield Figure(f"timed-model-{cpus}", model, icount)


def commands(bench: Bench) -> Iterator[Figure]:
    """Time commands as whole processes, start of Python included."""
    rounds = bench.size(3, 9)
    for key, words in (("help", ("--help",)), ("show", ("topology", "show", "ring-4"))):
        pairs = [(_seconds(*boot.NUMALAB[1:], *words), _python()) for _ in range(rounds)]
        ours, python = (median(side) for side in zip(*pairs, strict=True))
        yield Figure(key, ours, python)


def site(_: Bench) -> Iterator[Figure]:
    """Build the site as `make site` does, without its check of the virtual environment."""
    argv = ["make", "--old-file=setup", "site", f"BIN={Path(sys.executable).parent}"]
    yield Figure("site", boot.cost(argv, cwd=shipped_dir()).wall)


def prediction(_: Bench) -> Iterator[Figure]:
    """Predict the largest machine in every shape; the slowest counts."""
    sizes = topology.measure_all()
    yield Figure("predict", max(size.seconds for size in sizes))
    yield Figure("predict-memory", max(size.mib for size in sizes))


def reports(bench: Bench) -> Iterator[Figure]:
    """Report many runs with a million events, and open the page."""
    results = report.make_results(bench.folder / "report")
    seconds, mib = report.measure(results.path)
    yield Figure("report", seconds)
    yield Figure("report-memory", mib)
    if (ready := report.ready(results.html)) is not None:
        yield Figure("report-ready", ready)


def suite(_bench: Bench) -> Iterator[Figure]:
    """Check and test on two CPUs, with the caches of this user."""
    yield _check_and_test("suite", {})


def suite_bare(bench: Bench) -> Iterator[Figure]:
    """The same with caches that are empty."""
    yield _check_and_test("suite-bare", {"NUMALAB_CACHE": str(bench.folder / "cache")})


def _check_and_test(key: str, cache: dict[str, str]) -> Figure:
    argv = ["taskset", "--cpu-list", "0,1", "make", "check", "test"]
    spent = boot.cost(argv, cwd=shipped_dir(), env=cache, timeout=3 * 3600)
    return Figure(key, spent.wall / 60)


@dataclass(frozen=True)
class Part:
    """A part of the benchmark, and the shortest form that has it."""

    measure: Callable[[Bench], Iterator[Figure]]
    form: Form = Form.SHORT


PARTS = {
    "boots": Part(boots),
    "starts": Part(starts),
    "hunts": Part(hunts),
    "decode": Part(decode),
    "jobs": Part(jobs),
    "commands": Part(commands),
    "prediction": Part(prediction),
    "queries": Part(queries),
    "long": Part(long, Form.LONG),
    "site": Part(site, Form.LONG),
    "reports": Part(reports, Form.LONG),
    "speeds": Part(speeds, Form.LONG),
    "suite": Part(suite, Form.SUITE),
    "suite-bare": Part(suite_bare, Form.SUITE),
}


def _python() -> float:
    return _seconds("-c", "pass")


def _cpu(*words: str) -> float:
    """Return the CPU seconds that Python takes with these arguments."""
    return boot.cost((sys.executable, *words)).cpu


def _seconds(*words: str) -> float:
    """Return how long Python takes with these arguments."""
    return boot.cost((sys.executable, *words)).wall
