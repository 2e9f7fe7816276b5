"""What is posted about a finding: a short C program, its script, the attempts and a mail."""

import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.hunt.case import Case, machine_of
from numalab.hunt.finding import Finding
from numalab.hunt.generate.families import FAMILIES
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.posting import pieces
from numalab.hunt.posting.attempt import Attempt, read_output, run_script
from numalab.hunt.posting.crash import crash_lines
from numalab.hunt.posting.figures import FIGURES, limit_alone
from numalab.hunt.posting.folder import Kernels, Posted, Shown, render_affected, write_reproducer
from numalab.hunt.posting.mail import MOST_LINES, WIDTH, Report, describe_load, render_mail
from numalab.hunt.posting.program import MOST_LINES as MOST_CODE_LINES
from numalab.hunt.posting.program import PROGRAM, describe_machine, render_program, unsupported
from numalab.hunt.posting.script import SCRIPT, Statement, render_script
from numalab.report.formats.markdown import escaped

GOLDEN = Path(__file__).parent / "golden"
MACHINE = (
    'summary = "s"\nnodes = 4\ncpus = 3\nmemory_mib = [512, 256, 256, 256]\n'
    '[shape]\nkind = "line"\ndistances = [10, 20, 30, 40]\n'
)
LOADS = {
    "hogs": "time ms=3000;hog n=5 cpus=0-11",
    "masks": "time ms=2500;hog n=2 start=0 cpus=0,6",
    "later": "time ms=900;sleeper n=3 cpus=0-5 later=3-8 run=500 sleep=700",
    "wakers": "time ms=900;waker n=1 cpus=3-4 wakee=5",
    "forkers": "time ms=1000;forker n=1 run=3000 sleep=5000 burst=10 cpus=1-2,4-7",
    "nice": "time ms=1000;hog n=2 cpus=0 nice=5;hog n=1 cpus=0",
    "fifo": "time ms=1000;sleeper n=1 cpus=0-11 policy=fifo priority=3",
    "batch": "time ms=1000;hog n=2 cpus=0-11 policy=batch",
    "hotplug": "time ms=1000;hog n=2 cpus=0-11;hotplug cpu=3 off=200 on=500",
    "whole start": "time ms=1000;hog n=3 cpus=0-11 start=0-11",
}


def case_of(load: str) -> Case:
    machine = machine_of(MACHINE)
    assert machine is not None
    return Case(machine, parse_loads(load))


def compile_c(text: str) -> None:
    words = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-x", "c", "-c", "-o", "/dev/null", "-"]
    subprocess.run(words, input=text, text=True, check=True, timeout=60)


HOGS_LATER = "time ms=99;hog n=3 cpus=0 later=1"
SHORT = [(load, prop) for load in LOADS.values()
         for prop in ("ping-pong", "lost-time", "fairness", "response", "affinity")] + [
    (load, "spread") for load in (LOADS["hogs"], LOADS["masks"], HOGS_LATER)
]  # fmt: skip


@pytest.mark.parametrize(("load", "prop"), SHORT)
def test_a_program_of_each_kind_of_load_compiles_and_is_short(load: str, prop: str) -> None:
    case = case_of(load)
    assert unsupported(case, prop) == ""
    text = render_program(case, prop, "it */ was", 1.5)
    assert text.count("\n") <= MOST_CODE_LINES
    assert max(len(line.expandtabs(8)) for line in text.splitlines()) <= 110
    compile_c(text)


def test_parts_that_are_set_up_alike_share_a_function() -> None:
    loads = "time ms=99;hog n=2 cpus=0;hog n=1 cpus=1 nice=5;hog n=3 cpus=2"
    text = render_program(case_of(loads), "fairness", "it was", 1.5)
    assert re.findall(r"static void (hog\w*)", text) == ["hog0", "hog1"]
    assert re.findall(r"start\((hog\w*)", text) == ["hog0", "hog1", "hog0"]


def test_the_program_goes_before_real_time_tasks() -> None:
    """A fair one would measure for longer than it divides by."""
    for name, first in (("fifo", True), ("batch", False)):
        text = render_program(case_of(LOADS[name]), "ping-pong", "it was", 1.5)
        assert ("SCHED_FIFO | SCHED_RESET_ON_FORK" in text) == first


def built(folder: Path, text: str) -> Path:
    program = folder / "reproducer"
    words = ["gcc", "-O2", "-x", "c", "-o", str(program), "-"]
    subprocess.run(words, input=text, text=True, check=True, timeout=60)
    return program


@pytest.mark.parametrize(
    ("load", "prop", "piece", "refused"),
    [
        ("hog n=1 cpus=0-11", "affinity", "/stat", "/none"),
        ("hog n=1 cpus=0-11", "lost-time", "/proc/stat", "/proc/none"),
        ("hog n=1 cpus=0-11", "ping-pong", "se.nr_migrations", "se.nr_none"),
        ("hog n=1 cpus=0", "affinity", "0x1UL", "0x0UL"),
        ("hog n=1 cpus=0-11 nice=5", "affinity", "PRIO_PROCESS, 0", "-1, 0"),
        ("hog n=1 cpus=0-11 policy=batch", "affinity", "SCHED_BATCH", "-1"),
        ("hog n=1 cpus=0-11 later=1", "affinity", "later = later", "later = 0"),
        ("hog n=1 cpus=0-11", "spread", "#define CPUS 12", "#define CPUS 100000"),
    ],
)
def test_a_program_that_cannot_measure_has_no_verdict(
    load: str, prop: str, piece: str, refused: str, tmp_path: Path
) -> None:
    text = render_program(case_of(f"time ms=300;{load}"), prop, "it was", 0.0)
    assert piece in text
    done = subprocess.run([built(tmp_path, text.replace(piece, refused))],
                          check=False, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2
    assert done.stdout.startswith("not measured: ")
    assert read_output("k", 1, done.stdout).reproduced is None


def test_ctrl_c_leaves_no_cpu_off_line(tmp_path: Path) -> None:
    online = tmp_path / "online"
    load = "time ms=400;hog n=1 cpus=0-11;hotplug cpu=3 off=10 on=390"
    text = render_program(case_of(load), "lost-time", "it was", 1.5)
    text = text.replace("/sys/devices/system/cpu/cpu3/online", str(online))
    with subprocess.Popen([built(tmp_path, text)], stdout=subprocess.DEVNULL) as program:
        while program.poll() is None and not (online.exists() and online.read_text() == "0"):
            time.sleep(0.001)
        program.send_signal(signal.SIGINT)
    assert online.read_text() == "1"


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(FIGURES)))
def test_loads_of_all_families_compile_or_have_a_reason(number: int, prop: str) -> None:
    rng = random.Random(number)
    machine = draw_machine(rng)
    drawn = [family(rng, machine) for family in FAMILIES]
    for load in filter(None, drawn):
        case = Case(machine, (load,))
        if reason := unsupported(case, prop):
            assert reason.endswith("so the reproducer is numalab's driver.")
        else:
            compile_c(render_program(case, prop, "it was", 1.5))
        assert re.search(r"for [\d.]+ s\.( In numalab|$)", describe_load(load, case))


@pytest.mark.parametrize(
    ("load", "prop", "reason"),
    [
        (LOADS["hogs"], "domains", "A short reproducer has no figure for domains,"),
        ("time ms=900;memory n=1 cpus=0", "lost-time", "The load has tasks of the kind memory,"),
        ("time ms=900;hog n=1 cpus=0 yield=1", "lost-time", "A hog has the setting yields,"),
        ("time ms=900;waker n=1 cpus=0 burst=2", "lost-time", "A waker has several wakees,"),
        ("time ms=900;group name=a;hog n=1 cpus=0 group=a", "lost-time", "A hog has the setting"),
        ("time ms=900;hog n=1 cpus=0;change at=9 part=0 nice=3", "lost-time", "The load has chan"),
        (
            "time ms=900;hog n=1 cpus=0 policy=deadline runtime=9 period=99",
            "lost-time",
            "A hog has the policy deadline,",
        ),
        (
            "time ms=900;waker n=1 start=0 cpus=0-3 later=3;forker n=1 cpus=4;sleeper n=1 cpus=5",
            "lost-time",
            "A short one would have 1",
        ),
    ],
)
def test_what_has_no_short_program(load: str, prop: str, reason: str) -> None:
    assert unsupported(case_of(load), prop).startswith(reason)


def test_programs_and_mails_are_as_stored() -> None:
    """After an intended change, replace the files and read their difference."""
    for name in ("hogs", "masks"):
        case = case_of(LOADS[name])
        prop = "ping-pong" if name == "hogs" else "work-conservation"
        program = render_program(case, prop, "5 tasks changed nodes 96 times", 1.5)
        assert program == (GOLDEN / f"{name}.c").read_text(encoding="utf-8")
        attempts = [Attempt("bad", 1, (), 3.25, True), Attempt("good", 1, (), 0.25, False)]
        sentence = "5 tasks changed nodes 96 times in 1500 ms, 12.8 times a second each"
        report = Report(case, prop, sentence, FIGURES[prop].meaning, attempts, "a patch did it")
        assert render_mail(report) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.text(max_size=300), st.integers(0, 20))
def test_a_mail_fits(number: int, sentence: str, kernels: int) -> None:
    rng = random.Random(number)
    machine = draw_machine(rng)
    load = next(filter(None, (family(rng, machine) for family in FAMILIES)))
    finding = Finding("lost-time", 0, 1.0, 0.5, sentence)
    attempts = [Attempt(f"kernel-{n}" * 4, 1, (), 1.0, n == 0) for n in range(kernels)]
    report = Report(Case(machine, (load,)), "lost-time", finding.text, "ms", attempts)
    lines = render_mail(report).splitlines()
    assert len(lines) <= MOST_LINES
    assert all(len(line) <= WIDTH or " " not in line.strip() for line in lines)
    assert "To reproduce: " in render_mail(report)
    assert lines[-1] == "Not known: the cause in the code, and whether hardware shows it."


@pytest.mark.parametrize(
    ("prop", "subject"),
    [
        ("lost-time", "sched: CPU stays idle while a task waits for another one on a"),
        ("domains", "sched: sched domains are not those of the machine's"),
        ("left-in-runqueues+0xc/0xd80", "sched: runqueues+0xc/0xd80 is not 0 after all tasks have"),
        ("more-affine-wake-ups", "sched: affine wake ups: more than before on a line of 4"),
        ("less-calls-of-pick", "sched: pick() runs less often than before on a line of 4"),
        ("less-runs-of-pick:return-cpu", "sched: a line of pick() runs less often than before"),
    ],
)
def test_the_subject_is_about_the_property(prop: str, subject: str) -> None:
    report = Report(case_of(LOADS["hogs"]), prop, "it was", "", [], short=False)
    assert render_mail(report).splitlines()[1].startswith(f"Subject: {subject}")


@pytest.mark.parametrize(
    ("prop", "meaning"),
    [
        ("less-time-ready-and-run", "(time-ready-and-run: the time in which the tasks of the load"),
        ("more-calls-of-pick", ""),
        ("affinity", ""),
    ],
)
def test_a_quantity_is_explained(prop: str, meaning: str) -> None:
    report = Report(case_of(LOADS["hogs"]), prop, "it was", "", [], short=False)
    text = " ".join(render_mail(report).split())
    assert meaning in text
    assert ("it was. (" in text) == bool(meaning)


def test_a_finding_without_a_figure_has_no_table_of_figures() -> None:
    attempts = [Attempt("bad", 1, (), None, None), Attempt("good", 1, (), None, None)]
    report = Report(case_of(LOADS["hogs"]), "affinity", "it was", "", attempts, short=False)
    text = render_mail(report)
    assert "prints no verdict" in " ".join(text.split())
    assert "not judged" not in text


def test_a_mail_names_the_kernels_where_the_reproducer_has_no_verdict() -> None:
    attempts = [Attempt("bad", 1, ()), Attempt("good", 1, ())]
    report = Report(case_of(LOADS["hogs"]), "numa-moves", "NUMA balancing moved a task", "m",
                    attempts, short=False, references=("good",))  # fmt: skip
    text = " ".join(render_mail(report).split())
    assert "3 CPUs each, NUMA balancing moved a task." in text
    assert (
        "from a boot of bad that numalab traced. In boots of good it is weaker, or absent." in text
    )
    assert "not judged" not in text


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ("hog n=2 cpus=0 nice=-10", "2 busy loops, which may run on CPU 0; for 0.8 s. In"),
        ("sleeper n=1 cpus=0 run=300", "works and sleeps in turns, which may run on CPU 0; for"),
        ("waker n=1 cpus=0 wakee=2 over=futex", "wakes another over a futex, which"),
        ("memory n=1 cpus=0 mib=8 node=1", "1 task that touches memory, which"),
        ("scan=16;memory n=1 cpus=0", "1 task that touches memory, which"),
    ],
)
def test_what_words_leave_out_is_written_in_full(load: str, words: str) -> None:
    before = "time ms=800 " if load.startswith("scan") else "time ms=800;"
    case = case_of(before + load)
    text = describe_load(case.loads[0], case)
    assert words in text
    assert text.endswith(f"In numalab's language of loads: {before}{load}")


def test_a_load_in_a_group_is_written_in_full() -> None:
    text = "time ms=800;group name=a quota=300;hog n=2 cpus=0-1 group=a"
    case = case_of(text)
    assert describe_load(case.loads[0], case).endswith(
        f"for 0.8 s. In numalab's language of loads: {text}"
    )
    plain = case_of("time ms=800;hog n=2 cpus=0-1")
    assert describe_load(plain.loads[0], plain).endswith("for 0.8 s.")


def test_the_script_of_a_short_program_is_a_shell_script(tmp_path: Path) -> None:
    statement = Statement("ping-pong", "it $(was) `done`", "a kernel", 104)
    for short in (True, False):
        script = tmp_path / SCRIPT
        script.write_text(render_script(case_of(LOADS["hogs"]), statement, short=short))
        subprocess.run(["shellcheck", script], check=True, timeout=60)
        assert '-seed "${SEED:-104}"' in script.read_text()


@pytest.mark.parametrize("name", ["HUP", "INT", "TERM"])
def test_a_script_that_is_stopped_leaves_no_files(name: str, tmp_path: Path) -> None:
    text = render_script(case_of(LOADS["hogs"]), Statement("lag", "it", "k", 1), short=True)
    begin, _, _ = text.partition("gcc ")
    script = tmp_path / SCRIPT
    script.write_text(f"{begin}kill -{name} $$\n")
    folder = tmp_path / "work"
    folder.mkdir()
    subprocess.run(["sh", script], check=False, timeout=60, env={"TMPDIR": str(folder)})
    assert not list(folder.iterdir())


OUTPUT = (
    "task 0: 2864 ms of CPU time, 10 changes of CPU, last on CPU 9\r\n\x1b[2J\r\n"
    "CPU 1: idle for 3 ms, tasks waited for 4 ms\r\nREPRODUCED: 2.40 changes a second, limit 1\r\n"
)


def test_what_a_guest_prints_is_read_with_care() -> None:
    attempt = read_output("k", 1, OUTPUT)
    assert (attempt.figure, attempt.reproduced, len(attempt.rows)) == (2.4, True, 2)
    twice = read_output("k", 1, OUTPUT + OUTPUT)
    assert (twice.figure, twice.reproduced) == (None, None)
    assert read_output("k", 1, "task 1: \x1b[31m" + "x" * 500).rows == ()
    assert len(read_output("k", 1, "CPU 1: x\n" * 5000).rows) == 1000
    assert read_output("k", 1, "task 1: \x1b[31m red").rows[0].isprintable()


class FakeRuns:
    """Stands for boots: a figure by kernel and seed; the limit is that of the written program."""

    def __init__(self, figure: Callable[[str, int], float | None]) -> None:
        self.figure = figure
        self.seeds: list[int] = []

    def __call__(self, folder: Path, kernel: str, _bzimage: Path, seed: int) -> Attempt:
        self.seeds.append(seed)
        figure = self.figure(kernel, seed)
        if figure is None:
            return Attempt(kernel, seed, (), reason="no verdict")
        limit = next(
            float(line.split()[2])
            for line in (folder / PROGRAM).read_text(encoding="utf-8").splitlines()
            if line.startswith("#define LIMIT")
        )
        return Attempt(kernel, seed, (), figure, figure > limit)


SHOWN = Shown(case_of(LOADS["hogs"]), Finding("ping-pong", 0, 9.0, 6.0, "it moved"), (4, 2, 3))
BZIMAGE = Path("/nowhere/bzImage")


@pytest.mark.parametrize("references", [{}, {"good": BZIMAGE}])
def test_the_seed_and_limit_are_those_that_show_it_best(
    tmp_path: Path, references: dict[str, Path]
) -> None:
    runs = FakeRuns(
        lambda kernel, seed: {4: 1.5, 2: 12.0, 3: 2.0}[seed] if kernel == "bad" else 1.0
    )
    kernels = Kernels(("bad", BZIMAGE), references, {"old": BZIMAGE})
    posted = write_reproducer(tmp_path, SHOWN, kernels, runs)
    assert posted.seed == 2
    assert posted.limit == (6.5 if references else FIGURES["ping-pong"].most)
    assert posted.reproduced is True
    assert [attempt.kernel for attempt in posted.attempts] == ["bad", *references, "old"]
    assert '-seed "${SEED:-2}"' in (tmp_path / SCRIPT).read_text(encoding="utf-8")
    text = render_affected(SHOWN.finding, posted, "")
    assert ("not on the reference kernel" in text) == bool(references)
    assert "| bad | 12.00 | yes |" in text


def test_a_folder_says_where_the_reproducer_does_not_show_it(tmp_path: Path) -> None:
    kernels = Kernels(("bad", BZIMAGE), {"good": BZIMAGE}, {})
    same = write_reproducer(tmp_path, SHOWN, kernels, FakeRuns(lambda *_: 4.0))
    assert (same.seed, same.reproduced) == (4, False)
    assert "does not show it clearly" in render_affected(SHOWN.finding, same, "")
    silent = FakeRuns(lambda kernel, _: 9.0 if kernel == "bad" else None)
    assert write_reproducer(tmp_path, SHOWN, kernels, silent).reproduced is False
    lag = Shown(SHOWN.case, replace(SHOWN.finding, prop="lag"), SHOWN.seeds)
    beside = replace(kernels, releases={"old": BZIMAGE})
    figures = {"bad": 12.3, "good": None, "old": 0.04}
    no_limit = write_reproducer(tmp_path, lag, beside, FakeRuns(lambda kernel, _: figures[kernel]))
    assert [attempt.reproduced for attempt in no_limit.attempts] == [None] * 3
    assert no_limit.limit > 12.3
    lost = write_reproducer(tmp_path, SHOWN, kernels, FakeRuns(lambda *_: None))
    assert lost.reproduced is False
    assert "not judged: no verdict" in render_affected(SHOWN.finding, lost, "")


@pytest.mark.parametrize("figures", [(12.344, 12.301), (12.301, 12.344), (1234.44, 1233.2)])
def test_what_rounding_tells_apart_blames_no_kernel(
    figures: tuple[float, float], tmp_path: Path
) -> None:
    """A guest prints two digits, and its program compares all of them."""
    unrounded = dict(zip(("bad", "good"), figures, strict=True))

    def run(folder: Path, kernel: str, _bzimage: Path, seed: int) -> Attempt:
        limit = re.search(r"#define LIMIT (\S+)", (folder / PROGRAM).read_text(encoding="utf-8"))
        assert limit is not None
        figure = unrounded[kernel]
        return Attempt(kernel, seed, (), round(figure, 2), figure > float(limit[1]))

    shown = Shown(SHOWN.case, replace(SHOWN.finding, prop="lag"), SHOWN.seeds)
    posted = write_reproducer(
        tmp_path, shown, Kernels(("bad", BZIMAGE), {"good": BZIMAGE}, {}), run
    )
    assert [attempt.reproduced for attempt in posted.attempts] == [False, False]
    assert posted.reproduced is False


@pytest.mark.parametrize(
    ("prop", "load"),
    [
        ("lag", "hog n=4 cpus=0"),
        ("response", "hog n=4 cpus=0"),
        ("proportion", "hog n=1 cpus=0 nice=-5;hog n=1 cpus=0 nice=5"),
        ("fairness", "hog n=1 cpus=0;hog n=1 cpus=1"),
        ("fairness", "hog n=3 cpus=0-2;sleeper n=1 cpus=0-2 run=500 sleep=5000"),
        ("fairness", "hog n=5 cpus=0-3"),
        ("fairness", "hog n=9 cpus=0"),
        ("affinity", "sleeper n=2 cpus=0 later=1-2 run=1000 sleep=200000"),
        ("affinity", "hog n=2 cpus=0;hotplug cpu=1 off=200 on=500"),
        ("lost-time", "hog n=3 cpus=0;sleeper n=1 cpus=1-2 run=1000 sleep=5000"),
        ("lost-time", "hog n=12 start=0 cpus=0-11"),
        ("affinity", "sleeper n=2 start=0 cpus=1"),
        ("lost-time", "hog n=3 cpus=0-2 policy=fifo priority=1"),
        ("ping-pong", "hog n=1 cpus=0-2;sleeper n=3 cpus=0-2 run=2000 sleep=1000"),
        ("ping-pong", "hog n=4 cpus=0-2"),
        ("wandering", "sleeper n=4 cpus=0-2 run=2000 sleep=1000"),
        ("spread", "hog n=12 cpus=0;hog n=1 cpus=1-2"),
        ("spread", "hog n=64 cpus=0-1"),
    ],
)
def test_a_figure_without_a_limit_blames_no_kernel_alone(
    prop: str, load: str, tmp_path: Path
) -> None:
    """A correct kernel shows figures as large as these."""
    case = case_of(f"time ms=800;{load}")
    shown = Shown(case, Finding(prop, 0, 9.0, 6.0, "it waited"), (4,))
    runs = FakeRuns(lambda *_: 11.0)
    none, unjudged = Kernels(("bad", BZIMAGE), {}, {}), FakeRuns(lambda *_: None)
    assert write_reproducer(tmp_path / "a", shown, none, unjudged).reproduced is None
    beside = Kernels(("bad", BZIMAGE), {"good": BZIMAGE}, {})
    same = write_reproducer(tmp_path / "b", shown, beside, runs)
    assert (same.reproduced, [attempt.reproduced for attempt in same.attempts]) == (
        False, [False, False],
    )  # fmt: skip
    apart = FakeRuns(lambda kernel, _: 11.0 if kernel == "bad" else 4.0)
    assert write_reproducer(tmp_path / "b", shown, beside, apart).reproduced


@pytest.mark.parametrize(
    ("prop", "load", "limit"),
    [
        ("affinity", "sleeper n=2 cpus=0", 0.0),
        ("affinity", "hog n=2 cpus=0 later=1-2", 0.0),
        ("fairness", "hog n=8 cpus=0", 1.5),
        ("lost-time", "hog n=5 cpus=0-11", 500.0),
        ("reachability", "hog n=2 start=0 cpus=0,2", 500.0),
        ("ping-pong", "hog n=5 cpus=0-11", 6.0),
        ("spread", "hog n=8 cpus=0-1", 6.0),
        ("wandering", "hog n=5 cpus=0-3", 1000.0),
    ],
)
def test_a_figure_has_a_limit_where_a_correct_kernel_is_below_it(
    prop: str, load: str, limit: float
) -> None:
    case = case_of(f"time ms=800;{load}")
    assert limit_alone(prop, case.loads[0]) == limit
    assert unsupported(case, prop, alone=True) == ""


def test_a_load_without_a_short_program_has_the_driver(tmp_path: Path) -> None:
    case = case_of("time ms=900;memory n=1 cpus=0")
    shown = Shown(case, SHOWN.finding, (4,))
    runs = FakeRuns(lambda *_: None)
    posted = write_reproducer(tmp_path, shown, Kernels(("bad", BZIMAGE), {}, {}), runs)
    assert (posted.reproduced, runs.seeds) == (None, [4])
    assert {"hunt.c", "load.h", "shared.h", "numalab.h"} <= {p.name for p in tmp_path.iterdir()}
    reason = unsupported(case, "ping-pong")
    assert reason in render_affected(shown.finding, posted, reason)


def run_text(folder: Path, text: str) -> Attempt:
    script = folder / SCRIPT
    script.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    script.chmod(0o700)
    return run_script(folder, "a kernel", BZIMAGE, 3, Path("/nowhere/qemu"))


def test_a_script_runs_with_its_kernel_and_leaves_no_files(tmp_path: Path) -> None:
    text = (
        'work=$(mktemp -d)\necho "task 1: $KERNEL $SEED $QEMU"\n'
        'echo "$work" >"${0%/*}/work"\necho "REPRODUCED: 2.50 changes, limit 1"\n'
    )
    attempt = run_text(tmp_path, text)
    assert attempt.rows == (f"task 1: {BZIMAGE} 3 /nowhere/qemu",)
    assert (attempt.figure, attempt.reproduced) == (2.5, True)
    assert not Path((tmp_path / "work").read_text().strip()).exists()


def test_a_script_that_floods_is_cut(tmp_path: Path) -> None:
    assert run_text(tmp_path, "yes 'CPU 1: x'\n").reason == "the guest printed no verdict"


PANIC = """\
[    0.1] smp: Brought up 2 nodes, 4 CPUs
[    0.858643] Kernel BUG at sched_init_smp+0xee/0x100 [verbose debug info unavailable]
[    0.858822] Oops: invalid opcode: 0000 [#1] SMP
[    0.859051] RIP: 0010:sched_init_smp+0xee/0x100
[    0.860482] Call Trace:
[    0.860537]  <TASK>
[    0.860590]  ? native_smp_cpus_done+0x225/0x230
[    0.860732]  kernel_init_freeable+0xde/0x2a0
[    0.862004] \x1b[2J---[ end trace 0000000000000000 ]---
"""


def test_a_panic_says_where_it_is() -> None:
    panics = read_output("bad", 1, PANIC)
    assert "\x1b" not in "".join(panics.console)
    case = case_of(LOADS["hogs"])
    report = Report(case, "guest-lost", "the guest's kernel panicked", "", [panics], short=False,
                    references=("good",))  # fmt: skip
    text = render_mail(report)
    assert text.splitlines()[1].startswith("Subject: sched: Kernel BUG at sched_init_smp+0xee")
    assert (
        """\
  Kernel BUG at sched_init_smp+0xee/0x100 [verbose debug info unavailabl
  RIP: 0010:sched_init_smp+0xee/0x100
  Call Trace:
   kernel_init_freeable+0xde/0x2a0

"""
        in text
    )
    plain = " ".join(text.split())
    assert "In boots of good it is absent. The reproducer boots the same machine" in plain
    assert "prints the kernel's log" in plain
    assert "CPU time" not in plain
    finding = Finding("guest-lost", None, 1.0, 0.0, "the guest's kernel panicked")
    posted = Posted((panics, read_output("good", 1, "load 0 process 0")), 1, 0.0, None)
    table = render_affected(finding, posted, "why")
    assert r"| bad | Kernel BUG at sched\_init\_smp+0xee/0x100 \[verbose" in table
    assert "| good | load 0 process 0 |" in table


def test_the_last_lines_of_a_console_are_kept() -> None:
    assert read_output("k", 1, "x\n" * 5000 + "y").console[-1] == "y"
    assert len(read_output("k", 1, "x\n" * 5000 + PANIC + "x\n" * 5000).console) == 200
    assert crash_lines(["all is well"]) == []


@pytest.mark.parametrize("reason", ["", "why"])
def test_no_markup_of_a_guest_takes_effect(reason: str) -> None:
    text = '<img src="http://x/y.png"> [a](http://x) | `b`'
    attempt = Attempt("k", 1, (text,), reason=text)
    finding = Finding("ping-pong", 0, 1.0, 0.0, text)
    table = render_affected(finding, Posted((attempt,), 1, 0.0, None), reason)
    assert "<" not in table.replace("\\<", "")
    assert "[" not in table.replace("\\[", "")
    assert table.splitlines()[-1].replace("\\|", "").count("|") == (4 if not reason else 3)


@pytest.mark.parametrize("short", [True, False])
def test_a_script_ends_after_a_panic_and_prints_what_the_finding_is_about(short: bool) -> None:
    for prop, word in (("guest-lost", "ignore_loglevel"), ("kernel-log", "ignore_loglevel"),
                       ("ping-pong", "quiet")):  # fmt: skip
        text = render_script(case_of(LOADS["hogs"]), Statement(prop, "it", "k", 1), short=short)
        (line,) = (line for line in text.splitlines() if line.startswith("  -append"))
        assert "oops=panic panic=-1" in line
        assert line.endswith(f' {word}"')


def test_an_account_is_shown_with_its_figures() -> None:
    rows = ("load 0 pid 79 ran_ns 900 waited_ns 1 switches 9 migrations 148",
            "load 0 pid 80 ran_ns 50 waited_ns 1 switches 9 migrations 2",
            "load 0 pid 81 ran_ns many waited_ns 1", "load 0 end refused 0")  # fmt: skip
    finding = Finding("account", 0, 90.0, 40.0, "a hog has 148 migrations")
    posted = Posted((Attempt("k", 1, rows),), 1, 0.0, None)
    case = case_of(LOADS["hogs"])
    text = render_affected(finding, posted, unsupported(case, "account"))
    assert f"| k | {escaped(rows[0])} |" in text
    assert "No figure in /proc" not in text
    report = Report(case, "account", "it was", "", [Attempt("k", 1, rows)], short=False)
    assert "and the kernel's account" in " ".join(render_mail(report).split())


def test_the_accounts_of_groups_are_shown_for_findings_about_these() -> None:
    rows = ("load 0 pid 79 ran_ns 900 waited_ns 1 switches 9 migrations 148",
            "load 0 group a used_us 7 load 6 listed 5", "load 0 group b used_us 8 load 1 listed 1",
            "load 0 end refused 0")  # fmt: skip
    posted = Posted((Attempt("k", 1, rows),), 1, 0.0, None)
    for prop in ("group-account", "group-load"):
        finding = Finding(prop, 0, 90.0, 40.0, "it differs")
        text = render_affected(finding, posted, unsupported(case_of(LOADS["hogs"]), prop))
        assert f"| k | {escaped(rows[1])}; {escaped(rows[2])} |" in text


@pytest.mark.parametrize(
    ("prop", "row"),
    [
        ("left-in-groups", "load 0 group a left 4 h_nr_queued"),
        ("deadline-bandwidth", "load 0 end admitted_left 42"),
        ("system-calls", "load 0 calls 83 wrong 1 fifo-100 -22"),
        ("inherited", "load 0 part 0 children 63 mask 0 policy 0 nice 0 weight 14"),
    ],
)
def test_the_row_that_a_property_judges_is_shown(prop: str, row: str) -> None:
    rows = (*(f"load 0 pid {n} ran_ns 900 waited_ns 1 x" for n in range(200)), row)
    attempt = read_output("k", 1, "\n".join(rows))
    posted = Posted((attempt,), 1, 0.0, None)
    finding = Finding(prop, 0, 90.0, 0.0, "it differs")
    text = render_affected(finding, posted, unsupported(case_of(LOADS["hogs"]), prop))
    assert f"| k | {escaped(row)} |" in text
    lost = replace(posted, attempts=(Attempt("k", 1, (), reason="the guest did not boot"),))
    assert "| k | the guest did not boot |" in render_affected(
        finding, lost, unsupported(case_of(LOADS["hogs"]), prop)
    )


def test_a_mail_says_which_cpus_share_a_core_and_who_wakes_whom() -> None:
    machine = machine_of(
        MACHINE.replace("[shape]", "[cpu]\nsockets = 4\nthreads = 2\n[shape]").replace(
            "= 3\n", "= 4\n"
        )
    )
    assert machine is not None
    case = Case(machine, parse_loads("waker n=3 cpus=0-2 wakee=1-2 burst=4"))
    assert describe_machine(case) == "4 nodes with 4 CPUs each, 2 on each core"
    dies = machine_of(MACHINE.replace("[shape]", "[cpu]\nsockets = 4\ndies = 3\n[shape]"))
    assert dies is not None
    assert describe_machine(Case(dies, ())) == "4 nodes with 3 CPUs each, 3 dies in each socket"
    assert describe_load(case.loads[0], case).startswith(
        "3 tasks that each wake 4 others over a pipe, which may run on CPUs 0-2, those that are"
        " woken on CPUs 1-2; for 1 s."
    )
    single = Case(machine, parse_loads("waker n=1 cpus=0 burst=2"))
    text = describe_load(single.loads[0], single)
    assert text.startswith("1 task that wakes 2 others over a pipe, which may run on CPU 0;")


def test_a_long_load_is_cut_and_the_rest_of_the_mail_is_whole() -> None:
    load = ";".join(f"sleeper n=2 cpus={cpu} run={cpu + 300} sleep=700" for cpu in range(12))
    case = case_of(";".join([load] * 2))
    text = render_mail(Report(case, "lost-time", "it was", "ms", [], "commit x", short=False))
    lines = text.splitlines()
    assert len(lines) == MOST_LINES
    assert f"[...] The whole load is in {SCRIPT}." in lines
    assert "Cause: commit x" in lines
    assert lines[-1] == "Not known: whether hardware shows it."


def test_every_figure_has_its_pieces() -> None:
    assert pieces.LOOK.keys() == pieces.ROWS.keys()
    assert {figure.table for figure in FIGURES.values()} <= pieces.LOOK.keys()
