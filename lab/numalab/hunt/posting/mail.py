"""The draft of a mail about a finding: at most 60 lines of 72 columns."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from numalab.cpulist import format_cpulist, name_cpus
from numalab.guest.console import printable
from numalab.hunt.case import Case
from numalab.hunt.compare.run_queues import word_of
from numalab.hunt.loads.load import Load, Part
from numalab.hunt.loads.load_text import render_load
from numalab.hunt.posting.attempt import Attempt
from numalab.hunt.posting.crash import CONSOLE, crash_lines
from numalab.hunt.posting.program import PROGRAM, describe_machine
from numalab.hunt.posting.script import IN_LOG, SCRIPT
from numalab.hunt.property import (
    DOMAINS,
    LOST,
    SPLAT,
    describe_code,
    describe_property,
    function_of,
)

WIDTH = 72
MOST_LINES = 60
_DESCRIBED = {"kind", "count", "cpus", "start", "later", "policy", "over"}  # in words
_MOST_NODES = 8  # of a table that fits
_MOST_ROWS = 12
_IDLE = ("work-conservation", "lost-time", "reachability", "idle-neighbours")

_KINDS = {
    "hog": "busy loop",
    "sleeper": "task that works and sleeps in turns",
    "waker": "pair of a task that wakes another over a {over}",
    "wakers": "task that wakes {burst} others over a {over}",
    "forker": "task that forks short-lived children",
    "memory": "task that touches memory",
}


@dataclass(frozen=True)
class Report:
    """What a mail says: the case, the sentence of the finding, and the attempts on each kernel.

    The first attempt is that of the kernel with the finding. `meaning` is the figure of the
    reproducer; "" without one. `cause` names the commit or patch, if known. `short` tells whether
    the reproducer is the short C file. `references` are the kernels without the finding.
    """

    case: Case
    prop: str
    sentence: str
    meaning: str
    attempts: Sequence[Attempt]
    cause: str = ""
    short: bool = True
    references: Sequence[str] = ()

    @property
    def crash(self) -> list[str]:
        """The first report on the console of the first attempt, for a finding in the log."""
        console = self.attempts[0].console if self.attempts and self.prop in IN_LOG else ()
        return crash_lines(console)


def render_mail(report: Report) -> str:
    """Return the draft."""
    crash = report.crash
    head = [
        "To: linux-kernel@vger.kernel.org",
        *textwrap.wrap(f"Subject: sched: {_subject(report)}", WIDTH, subsequent_indent=" ")[:2],
        "",
        *paragraph(
            f"On {describe_machine(report.case)}, {_lower(report.sentence)}.{_meaning(report)}"
        ),
        "",
        *paragraph(_numbers(report)),
        "",
        *([f"The kernel's log ({CONSOLE}):", ""] if crash else []),
        *(f"  {line}"[:WIDTH] for line in crash),
        *([""] if crash else []),
        "Machine (distances of nodes, as in the SLIT):",
        "",
        *machine_rows(report.case),
        "",
    ]
    tail = [
        "",
        *_kernels(report),
        *paragraph(_how(report)),
        "",
        *paragraph(f"Cause: {report.cause}" if report.cause else
                    "Not known: the cause in the code, and whether hardware shows it."),
    ]  # fmt: skip
    if report.cause:
        tail += ["", *paragraph("Not known: whether hardware shows it.")]
    load, room = paragraph(f"Load: {_loads(report.case)}"), MOST_LINES - len(head) - len(tail)
    if len(load) > room:
        rest = f"[...] The whole load is in {PROGRAM if report.short else SCRIPT}."
        load = [*load[: max(0, room - 1)], rest]
    return "\n".join([*head, *load, *tail]) + "\n"


def _meaning(report: Report) -> str:
    """Return what a differential property compares; "" for the others, which are sentences."""
    change, _, quantity = report.prop.partition("-")
    if change not in ("more", "less") or function_of(report.prop):
        return ""
    meaning = describe_property(report.prop).partition(": ")[2]
    return f" ({quantity}: {_lower(meaning)})" if meaning else ""


def _subject(report: Report) -> str:
    if report.prop in (LOST, SPLAT) and (crash := report.crash):
        return crash[0] + _where(report.case)
    words = {
        LOST: "the kernel panics or hangs",
        SPLAT: "the kernel warns",
        DOMAINS: "sched domains are not those of the machine's distances",
        "account": "a task's times or counts are accounted wrongly",
        "group-account": "a cgroup's CPU time is accounted wrongly",
        "deadline-bandwidth": "bandwidth of deadline tasks that are gone stays admitted",
        "group-settings": "files of a cgroup read other than was written",
        "group-load": "a cgroup keeps load of tasks that are gone",
        "affinity": "task runs outside its affinity mask",
        "ping-pong": "tasks move between nodes without need",
        "wandering": "tasks move between CPUs without need",
        "fairness": "equal tasks get unequal CPU time",
        "spread": "equal tasks stay unevenly spread over their CPUs",
        "lag": "task falls behind its share of the CPU for long",
        "proportion": "task gets less CPU time than its weight entitles it to",
        "wake-up-latency": "woken task waits beside an idle CPU",
        "response": "task waits long for its turn",
        **dict.fromkeys(_IDLE, "CPU stays idle while a task waits for another one"),
    }
    where, word = _where(report.case), word_of(report.prop)
    if word is not None:
        return f"{word} is not 0 after all tasks have ended{where}"
    change, _, quantity = report.prop.partition("-")
    if name := function_of(report.prop):
        return f"{describe_code(name)} runs {change} often than before" + where
    if change in ("more", "less"):  # a differential property
        return f"{quantity.replace('-', ' ')}: {change} than before" + where
    return words.get(report.prop, f"{report.prop} is violated") + where


def _where(case: Case) -> str:
    """Return the shape of a machine of several nodes: ` on a ring of 4 nodes`."""
    shape, nodes = case.machine.shape, len(case.machine.nodes)
    if shape is None or nodes == 1:
        return ""
    return f" on {nodes} nodes" if shape.kind == "full" else f" on a {shape.kind} of {nodes} nodes"


def _lower(sentence: str) -> str:
    text = printable(sentence)
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def paragraph(text: str) -> list[str]:
    """Return the lines of a paragraph of a mail."""
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def _numbers(report: Report) -> str:
    judged = [attempt for attempt in report.attempts if attempt.figure is not None]
    if not judged:
        kernel = f" of {report.attempts[0].kernel}" if report.attempts else ""
        beside = ""
        if report.references:
            weaker = "absent" if report.prop in IN_LOG else "weaker, or absent"
            beside = f" In boots of {', '.join(report.references)} it is {weaker}."
        does = "runs the same load, and prints no verdict"
        if report.prop in IN_LOG:
            does = "boots the same machine and load, and prints the kernel's log"
        return f"This is from a boot{kernel} that numalab traced.{beside} The reproducer {does}."
    first, *further = judged
    text = f"The reproducer prints {first.figure:.2f} {report.meaning} on {first.kernel}"
    if further:
        text += ", and " + ", ".join(
            f"{other.figure:.2f} on {other.kernel}" for other in further[:4]
        )
    return text + "."


def machine_rows(case: Case) -> Iterator[str]:
    """Yield a table of the nodes of a machine, with their CPUs and distances."""
    nodes = case.machine.nodes
    if len(nodes) > _MOST_NODES:
        yield f"  {describe_machine(case)}; see {SCRIPT}"
        return
    yield "  node  CPUs    " + "".join(f"{node.id:>4}" for node in nodes)
    for node in nodes:
        cpus = format_cpulist(node.cpus) if node.cpus else "-"
        row = "".join(f"{value:>4}" for value in case.machine.distances[node.id])
        yield f"  {node.id:>4}  {cpus:<8}{row}"


def _loads(case: Case) -> str:
    if len(case.loads) != 1:
        return f"{len(case.loads)} loads, one after the other; see {SCRIPT}."
    return describe_load(case.loads[0], case)


def describe_load(load: Load, case: Case) -> str:
    """Return a load in words: `5 busy loops, which may run on all CPUs; for 3 s.`

    One with more than these words say is written in the language of loads, too: with groups,
    changes, nice levels, times of work and sleep, memory.
    """
    parts = [_describe_part(part, case) for part in load.parts]
    text = "; ".join(parts)
    for change in load.hotplug:
        text += f"; CPU {change.cpu} is offline from {change.off_ms} to {change.on_ms} ms"
    text += f"; for {load.ms / 1000:g} s."
    whole = not (load.cpuset or load.groups or load.changes or load.scan_mib) and all(
        getattr(part, field.name) == field.default
        for part in load.parts
        for field in fields(part)
        if field.name not in _DESCRIBED
    )
    return text if whole else f"{text} In numalab's language of loads: {render_load(load)}"


def _describe_part(part: Part, case: Case) -> str:
    kind = "wakers" if part.kind == "waker" and part.burst > 1 else part.kind
    name = _KINDS.get(kind, f"task of the kind {kind}").format(over=part.over, burst=part.burst)
    head, _, rest = name.partition(" ")
    plural = rest.replace("that works and sleeps", "that work and sleep")
    plural = plural.replace("that forks", "that fork").replace("that touches", "that touch")
    plural = plural.replace("that wakes", "that each wake")
    many = {"busy": f"{name}s", "task": f"tasks {plural}", "pair": f"pairs {rest}"}
    policy = "" if part.policy == "fair" else f" (SCHED_{part.policy.upper()})"
    text = f"{part.count} {name if part.count == 1 else many.get(head, f'{name}s')}{policy}"
    every = len(part.cpus) == case.machine.cpu_count
    text += f", which may run on {'all CPUs' if every else name_cpus(part.cpus)}"
    if part.start:
        text += f" and start on {name_cpus(part.start)}"
    if part.later:
        text += f", in the second half on {name_cpus(part.later)}"
    if part.wakee:
        text += f", those that are woken on {name_cpus(part.wakee)}"
    return text


def _kernels(report: Report) -> Iterator[str]:
    if not (report.meaning and report.short):
        return
    for attempt in report.attempts[:_MOST_ROWS]:
        answer = {True: "yes", False: "no", None: "not judged"}[attempt.reproduced]
        figure = f"{attempt.figure:12.2f}" if attempt.figure is not None else f"{'-':>12}"
        yield f"  {attempt.kernel[:44]:<44}{figure}  {answer}"
    yield ""


def _how(report: Report) -> str:
    if report.short:
        return (
            f"To reproduce: {PROGRAM} runs on a machine of this topology; KERNEL=bzImage ./{SCRIPT}"
            " boots it in QEMU, with instruction counting, so that a seed gives the same result."
        )
    prints = "of each task its CPU time, its last CPU and the kernel's account"
    if report.prop in IN_LOG:
        prints = "the kernel's log"
    return (
        f"To reproduce: KERNEL=bzImage ./{SCRIPT} boots the load in QEMU on a machine of this"
        f" topology, and prints {prints}."
    )
