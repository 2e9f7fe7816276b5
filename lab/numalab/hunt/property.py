"""Properties: what a hunt checks of every load, and the registry of all of them."""

import inspect
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path

import polars as pl

from numalab.errors import LabError, UserError
from numalab.hunt.compare.noise import least_ratio
from numalab.hunt.compare.run_queues import word_of
from numalab.hunt.finding import Finding
from numalab.hunt.recording import LoadRecording
from numalab.plugins import Registry, explain_fault

# Properties of the whole boot, which numalab.hunt.boot_case checks without a load.
LOST, SPLAT, DOMAINS, FACTS = "guest-lost", "kernel-log", "domains", "topology-facts"
SCHEDULER, DRIVER, CALLS, LEFT = "scheduler", "load-driver", "calls", "left-in-runqueues"
OF_BOOT: Mapping[str, str] = {
    LOST: "the guest ends without panic or hang",
    SPLAT: "the kernel logs no warning",
    DRIVER: "the loads start and end: no system call fails, no task dies",
    DOMAINS: "sched domains and groups are as predicted, also after loads",
    SCHEDULER: "the scheduler (sched_ext), if any, stays enabled until the loads end",
    FACTS: "levels, parameters and groups of sched domains are those of the reference kernel",
    CALLS: "functions of the scheduler, and blocks and lines near a patch, run as often as with the"
    " reference kernel",
    LEFT: "words of `struct rq` of idle CPUs are 0 where those of the reference kernel are",
}
# A finding of CALLS is about one function, or one block or line of it.
_BLOCK, _LINE = r"\w+\+0x[0-9a-f]+/0x[0-9a-f]+", r"\w+:[\w-]+(?:\.\d+)?"
_CALLS_OF = re.compile(rf"(?:more|less)-(?:calls-of-(\w+)|runs-of-({_BLOCK}|{_LINE}))")


@dataclass(frozen=True)
class Limit:
    """The largest value that does not violate a property.

    Above `suspect` (None: above `most`) the hunt compares the value with the reference kernel's.
    """

    most: float
    suspect: float | None = None


@dataclass(frozen=True)
class Observation:
    """The value of a property in one load, and a sentence for people that describes it.

    A `weak` one counts only if the reference kernel does not show it: it may be by design.
    `limit` replaces the limit of the property.
    """

    value: float
    text: str
    weak: bool = False
    limit: Limit | None = None


Observe = Callable[[LoadRecording], Iterable[Observation]]
Judge = Callable[[LoadRecording], list[Finding]]


@dataclass(frozen=True)
class Property:
    """A property of a load: its name, its limit in its `unit`, and the function that judges it.

    The limit holds in plain loads only (`Load.is_plain`) unless it is of `any_load`. A
    `differential` one has no limit: its value only counts beside that of the reference kernel.
    """

    name: str
    limit: Limit
    judge: Judge
    any_load: bool = False
    differential: bool = False
    unit: str = ""


# What a scheduler (sched_ext) is hunted for: the others are about the kernel's own scheduler.
OF_SCHEDULER = frozenset({
    LOST, SPLAT, SCHEDULER,
    "affinity", "work-conservation", "idle-neighbours", "starvation", "response",
})  # fmt: skip

# In the order in which they are reported; modules not named here follow.
PROPERTIES: Registry[Property] = Registry(
    "property",
    "numalab.hunt.properties",
    first=("balance", "sharing", "moving", "cores", "waking", "numa", "policies", "groups"),
)


def register_property(
    name: str, *, most: float, suspect: float | None = None, any_load: bool = False, unit: str = ""
) -> Callable[[Observe], Judge]:
    """Add a property that hunts check; a decorator of the function that observes it.

    The function yields an observation for each part of the load that it can judge, or none. A
    value above `most` violates the property; one above `suspect` counts if the reference kernel's
    is lower; all are in `unit`. The limit holds in loads of fair tasks without groups and changes,
    unless of `any_load`.
    The first paragraph of the docstring says what holds.

        @register_property("woken-soon", most=10.0, suspect=2.0)
        def woken_soon(run: LoadRecording) -> Iterator[Observation]:
            '''No task waits for a CPU for longer than 10 ms.'''
            longest = max((int((end - start).max(initial=0)) for start, end in run.waits.values()),
                          default=0) / 1e6
            yield Observation(longest, f"a task waited {longest:.1f} ms for a CPU")

    Raises UserError for a name that is taken.
    """
    usual = Limit(most, suspect)

    def add(observe: Observe) -> Judge:
        @wraps(observe)
        def judge(run: LoadRecording) -> list[Finding]:
            findings = []
            for observation in observe(run):
                limit = observation.limit or usual
                findings.append(
                    Finding(name, run.number, round(observation.value, 4), limit.most,
                            observation.text, observation.weak, limit.suspect, least_ratio(name),
                            unit=unit)
                )  # fmt: skip
            return findings

        PROPERTIES.add(name, Property(name, usual, judge, any_load, unit=unit), judge)
        return judge

    return add


def property_names() -> tuple[str, ...]:
    """Return the names of all properties, of the boot and of loads, in the order of reports."""
    return (*OF_BOOT, *PROPERTIES.all())


def absolute_property_names() -> tuple[str, ...]:
    """Return the names of the properties that one boot of one kernel can violate."""
    entries = PROPERTIES.all().items()
    of_loads = (name for name, entry in entries if not entry.differential)
    return (*(name for name in OF_BOOT if name not in (FACTS, CALLS, LEFT)), *of_loads)


def function_of(name: str) -> str | None:
    """Return the function, block or line that a property of CALLS is about; else None."""
    match = _CALLS_OF.fullmatch(name)
    return (match[1] or match[2]) if match else None


def is_part(name: str) -> bool:
    """Whether it names a part of a function: a block FUNCTION+OFFSET/SIZE, a line FUNCTION:TEXT."""
    return function_in(name) != name


def is_line(name: str) -> bool:
    """Whether it names a line, FUNCTION:TEXT."""
    return ":" in name


def function_in(name: str) -> str:
    """Return the function of a block or line; a function's name as it is."""
    return re.split(r"[+:]", name)[0]


def describe_code(name: str) -> str:
    """Return what people call a function, block or line: `a line of pick()`."""
    part = "" if not is_part(name) else "a line of " if is_line(name) else "a block of "
    return f"{part}{function_in(name)}()"


def is_property(name: str) -> bool:
    """Whether a case can be about a property of this name."""
    about_one = function_of(name) is not None or word_of(name) is not None
    return about_one or name in property_names()


def describe_property(name: str) -> str:
    """Return what holds of a property, in one sentence."""
    if function := function_of(name):
        runs = f"{function} runs" if is_part(function) else f"{function}() is called"
        return f"{runs} as often as with the reference kernel"
    if word := word_of(name):
        return f"{word} (struct rq) is 0 on idle CPUs, as with the reference kernel"
    return OF_BOOT[name] if name in OF_BOOT else PROPERTIES.describe(name)


def _weakened(finding: Finding, run: LoadRecording, entry: Property) -> Finding:
    """Let limits that come from plain loads count in other loads only beside a reference kernel."""
    from_plain = finding.most > 0 and not entry.any_load
    return replace(finding, weak=True) if from_plain and not run.load.is_plain else finding


def _worst(findings: Iterable[Finding]) -> Finding:
    """Return the finding that violates its limit most; those that count alone come first."""
    return max(findings, key=lambda f: (f.violated and not f.weak, f.closeness))


def _fault(name: str, entry: Property, error: BaseException) -> LabError:
    """Explain why a property raised."""
    reason = f"{type(error).__name__}: {str(error)[:200]}"
    if PROPERTIES.is_built_in(name):
        place = traceback.extract_tb(error.__traceback__)[-1]
        return LabError(f"internal error in {Path(place.filename).name}:{place.lineno}: {reason}")
    file = Path(inspect.getfile(inspect.unwrap(entry.judge)))
    return explain_fault(error) or UserError(reason, file=file)


def judge_load(
    run: LoadRecording, names: Collection[str]
) -> tuple[tuple[Finding, ...], Mapping[str, str]]:
    """Return the worst finding of each of these properties, and the failures by property.

    A property that raises has no finding, but a failure; that of a plug-in names its file.
    """
    findings, failures = [], {}
    for name, entry in PROPERTIES.all().items():
        if name not in names:
            continue
        try:
            of_parts = entry.judge(run)
        except MemoryError:
            raise
        # A plug-in may raise anything, and polars panics at some events. The other properties, and
        # the boots so far, count as well where it is an error of numalab.
        except (Exception, pl.exceptions.PanicException) as error:
            failures[name] = f"the property {name!r} is not judged: {_fault(name, entry, error)}"
            continue
        if of_parts:
            findings.append(_worst(_weakened(finding, run, entry) for finding in of_parts))
    return tuple(findings), failures
