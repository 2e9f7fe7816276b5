"""Write the folder of a finding, run its reproducer on kernels, and say what was observed."""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.errors import LabError
from numalab.files import make_dir, write_text
from numalab.guest.console import printable
from numalab.hunt.boot_case import WORKLOAD, HuntBench, record_case
from numalab.hunt.case import Case
from numalab.hunt.finding import APART, Finding
from numalab.hunt.posting.attempt import Attempt, run_script
from numalab.hunt.posting.crash import CONSOLE, crash_lines
from numalab.hunt.posting.excerpt import render_excerpt
from numalab.hunt.posting.figures import FIGURES, limit_alone
from numalab.hunt.posting.mail import Report, render_mail
from numalab.hunt.posting.program import PROGRAM, render_program, unsupported
from numalab.hunt.posting.script import IN_LOG, SCRIPT, Statement, render_script
from numalab.kernel.kernel_build import built_kernel
from numalab.kernel.kernel_specs import list_kernels
from numalab.places import cache_dir
from numalab.report.formats.markdown import escaped
from numalab.run_dir import RunDir
from numalab.scratch import scratch_folder
from numalab.workload.workload import load_workload
from numalab.workload.workload_files import shared_headers

_MOST_SEEDS = 3
_WIDTH = 100
_ACCOUNT = re.compile(r" ran_ns (\d{1,18}) ")
# A word of the rows that a property judges, of which the first ones are shown.
_WORD_OF: Mapping[str, str] = {
    "group-account": "used_us", "group-load": "used_us", "group-settings": "used_us",
    "left-in-groups": "left", "limit-account": "since_us", "deadline-bandwidth": "admitted_left",
    "task-settings": "policy", "inherited": "children", "thread-counts": "voluntary",
    "system-counts": "forks", "user-and-system-time": "ticks", "reaped-time": "reaped",
    "idle-time": "idle", "numa-faults": "faults", "preferred-node": "preferred",
    "faults-on-bound-memory": "private", "utilization": "utilization", "readiness": "runnable",
    "system-calls": "calls", "refusals": "denied",
}  # fmt: skip
_MOST_SHOWN = 4
_NO_LIMIT = "the kernels have no figures to compare"
_PAUSES = "relax-at-bring-up"  # a series without which older kernels hang in icount mode
Run = Callable[[Path, str, Path, int], Attempt]  # folder, kernel, bzImage, seed


@dataclass(frozen=True)
class Shown:
    """A case that shows a finding, with seeds; the first shows it best with numalab."""

    case: Case
    finding: Finding
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Kernels:
    """The kernels to run a reproducer on, by name, with their bzImages."""

    violating: tuple[str, Path]
    references: Mapping[str, Path]
    releases: Mapping[str, Path]


@dataclass(frozen=True)
class Posted:
    """What was observed with the folder's own reproducer.

    `reproduced` tells whether the kernel shows the finding and no reference kernel does; None if
    the reproducer prints no verdict. `references` is the number of reference kernels.
    """

    attempts: tuple[Attempt, ...]
    seed: int
    limit: float
    reproduced: bool | None
    references: int = 0


def write_folder(
    folder: Path,
    shown: Shown,
    benches: Sequence[HuntBench],
    holds: Sequence[str],
    *,
    cause: str = "",
) -> Posted:
    """Write the reproducer, run it, and write the trace, the kernels and the mail.

    The first of `benches` has the kernel that violates, the rest reference kernels, of which those
    called `holds` do not.

    The reproducer has another init than numalab's guests, so its seed is the one with which it
    shows the finding best by itself. Ctrl-C is passed on.
    """
    make_dir(folder)
    case, finding, bench = shown.case, shown.finding, benches[0]
    config = bench.builds.kernels[bench.kernel.name].config
    if config is not None:
        write_text(folder / "kernel.config", config.read_text(encoding="utf-8"))
    emulator = bench.choice.emulator.program if bench.choice.emulator else None

    def run(folder: Path, kernel: str, bzimage: Path, seed: int) -> Attempt:
        return run_script(folder, kernel, bzimage, seed, emulator)

    posted = write_reproducer(folder, shown, _kernels(benches), run)
    write_text(folder / "trace.txt", _trace(shown, bench))
    if finding.prop in IN_LOG:
        write_text(folder / CONSOLE, "".join(f"{line}\n" for line in posted.attempts[0].console))
    reason = unsupported(case, finding.prop, alone=not benches[1:])
    write_text(folder / "affected.md", render_affected(finding, posted, reason))
    figure = FIGURES.get(finding.prop)
    report = Report(case, finding.prop, finding.text, figure.meaning if figure else "",
                    posted.attempts, cause, short=not reason, references=holds)  # fmt: skip
    write_text(folder / "mail.txt", render_mail(report))
    return posted


def _kernels(benches: Sequence[HuntBench]) -> Kernels:
    """Return the kernels of a hunt, and one that is built of each other source."""
    mine, *theirs = ((bench.kernel.name, bench.builds.kernels[bench.kernel.name].bzimage)
                     for bench in benches)  # fmt: skip
    releases: dict[str, Path] = {}
    sources = {bench.kernel.source for bench in benches if set(bench.kernel.series) <= {_PAUSES}}
    for spec in list_kernels().values():
        if set(spec.series) <= {_PAUSES} and spec.source not in sources:
            with suppress(LabError):  # a source that this host lacks
                if built := built_kernel(spec):
                    releases[spec.name] = built.bzimage
                    sources.add(spec.source)
    return Kernels(mine, dict(theirs), releases)


def write_reproducer(folder: Path, shown: Shown, kernels: Kernels, run: Run) -> Posted:
    """Write the program and the script, with the seed and limit at which they show it best.

    `run` runs the script on a kernel; the final files are run again on every kernel.
    """
    if unsupported(shown.case, shown.finding.prop, alone=not kernels.references):
        return _write_driver(folder, shown, kernels, run)
    most = limit_alone(shown.finding.prop, shown.case.loads[0])
    name, bzimage = kernels.violating
    _write(folder, shown, name, shown.seeds[0], most or 0.0)
    best: tuple[float, int, float] | None = None  # how far apart, seed and limit
    largest = 0.0
    for seed in shown.seeds[:_MOST_SEEDS]:
        mine = run(folder, name, bzimage, seed).figure
        theirs = [run(folder, other, path, seed).figure
                  for other, path in kernels.references.items()]  # fmt: skip
        largest = max(largest, *(value for value in (mine, *theirs) if value is not None), 0.0)
        if mine is None or None in theirs:
            continue
        high = max((value for value in theirs if value is not None), default=None)
        limit = (most or 0.0) if high is None else (mine + high) / 2
        ratio = mine / max((most or 0.0) if high is None else high, 1e-3)
        if best is None or ratio > best[0]:
            best = ratio, seed, limit
    least = APART if kernels.references else 1.0
    apart = best is not None and best[0] > least
    if best is not None and apart:
        seed, limit = best[1], float(f"{best[2]:.3g}")
    else:
        # No boot is above the largest figure, rounded, so that no kernel is blamed.
        above = float(f"{1.01 * largest + 0.01:.3g}")
        seed, limit = shown.seeds[0], above if most is None else most
    _write(folder, shown, name, seed, limit)
    every = {name: bzimage, **kernels.references, **kernels.releases}
    attempts = tuple(run(folder, kernel, path, seed) for kernel, path in every.items())
    if best is None and most is None:
        attempts = tuple(
            replace(item, reproduced=None, reason=item.reason or _NO_LIMIT) for item in attempts
        )
    references = attempts[1 : 1 + len(kernels.references)]
    mine_only = (
        apart
        and attempts[0].reproduced is True
        and all(attempt.reproduced is False for attempt in references)
    )
    return Posted(attempts, seed, limit, mine_only, len(references))


def _write(folder: Path, shown: Shown, kernel: str, seed: int, limit: float) -> None:
    case, finding = shown.case, shown.finding
    write_text(folder / PROGRAM, render_program(case, finding.prop, finding.text, limit))
    statement = Statement(finding.prop, finding.text, kernel, seed)
    write_text(folder / SCRIPT, render_script(case, statement, short=True))
    (folder / SCRIPT).chmod(0o755)


def _write_driver(folder: Path, shown: Shown, kernels: Kernels, run: Run) -> Posted:
    workload = load_workload(WORKLOAD).file.parent
    sources = [path for path in sorted(workload.iterdir()) if path.suffix in (".c", ".h")]
    for path in (*sources, *shared_headers()):
        write_text(folder / path.name, path.read_text(encoding="utf-8"))
    name, bzimage = kernels.violating
    seed = shown.seeds[0]
    statement = Statement(shown.finding.prop, shown.finding.text, name, seed)
    write_text(folder / SCRIPT, render_script(shown.case, statement, short=False))
    (folder / SCRIPT).chmod(0o755)
    every = {name: bzimage, **kernels.references}
    attempts = [run(folder, kernel, path, seed) for kernel, path in every.items()]
    judged = tuple(replace(attempt, figure=None, reproduced=None) for attempt in attempts)
    return Posted(judged, seed, 0.0, None)


def _trace(shown: Shown, bench: HuntBench) -> str:
    """Return the excerpt of a boot with tracing, or why there is none."""
    prop = shown.finding.prop
    if shown.finding.load is None:
        return f"{prop} is about the whole boot, so no moment of a trace shows it.\n"
    try:
        with scratch_folder(cache_dir("boots"), "hunt-") as path:
            recordings = record_case(shown.case, bench, shown.seeds[0], RunDir(path))
            text = render_excerpt(recordings[0], prop) if recordings else "No recording.\n"
    except LabError as error:
        text = f"There is no trace: {printable(str(error).splitlines()[0])}\n"
    seed = shown.seeds[0]
    return f"{prop} on {bench.kernel.name}, seed {seed}, from numalab's recording.\n\n{text}"


def render_affected(finding: Finding, posted: Posted, reason: str) -> str:
    """Return which kernels show the finding with the folder's reproducer, in Markdown.

    Texts of a guest are escaped.
    """
    said = f"With numalab: {escaped(printable(finding.text))}."
    observed = textwrap.wrap(said, _WIDTH, break_long_words=False)
    lines = [f"# {finding.prop}", "", *observed, ""]
    figure = FIGURES.get(finding.prop)
    if reason or figure is None:
        lines += [
            reason, "", f"`{SCRIPT}` was run with seed {posted.seed}, and prints no verdict:", "",
            "| kernel | what it printed |", "|---|---|",
        ]  # fmt: skip
        for attempt in posted.attempts:
            said = escaped(_said(finding.prop, attempt))
            lines.append(f"| {escaped(attempt.kernel)} | {said} |")
        return "\n".join(lines) + "\n"
    verdict = "**the reproducer does not show it clearly**; the case file does."
    if posted.reproduced:
        beside = ", and not on the reference kernel" if posted.references else ""
        verdict = f"the reproducer shows it{beside}."
    lines += [
        f"Without numalab (`{SCRIPT}`, seed {posted.seed}): {verdict}", "",
        f"The figure is {figure.meaning}; limit {posted.limit:.3g}.", "",
        "| kernel | figure | shows it |", "|---|---|---|",
    ]  # fmt: skip
    for attempt in posted.attempts:
        answer = {True: "yes", False: "no", None: f"not judged: {escaped(attempt.reason)}"}[
            attempt.reproduced
        ]
        value = "" if attempt.figure is None else f"{attempt.figure:.2f}"
        lines.append(f"| {escaped(attempt.kernel)} | {value} | {answer} |")
    return "\n".join(lines) + "\n"


def _said(prop: str, attempt: Attempt) -> str:
    """Return the line of a boot without a verdict that tells most about a property."""
    if prop in IN_LOG and (crash := crash_lines(attempt.console)):
        return crash[0]
    accounts = [match for match in map(_ACCOUNT.search, attempt.rows) if match is not None]
    if prop == "account" and accounts:  # of the task that ran for longest
        return max(accounts, key=lambda match: int(match[1])).string
    if word := _WORD_OF.get(prop):
        rows = [row for row in attempt.rows if f" {word} " in row][:_MOST_SHOWN]
        return "; ".join(rows) or attempt.reason or "the guest printed nothing about it"
    return attempt.rows[-1] if attempt.rows else attempt.reason
