"""The C reproducer of a case: one file of at most 100 lines, for guests and for hardware.

It is put together from a piece for each kind of task that the load has, so that it has no more than
the load needs. It reads /proc only, and needs no tracing.
"""

import textwrap
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields

from numalab.cpulist import format_cpulist
from numalab.guest.console import printable
from numalab.hunt.case import Case
from numalab.hunt.loads.load import Load, Part
from numalab.hunt.posting.figures import FIGURES, Figure, limit_alone
from numalab.hunt.posting.pieces import BODIES, LOOK, PUT, ROWS, WORD, WORK
from numalab.units import counted

PROGRAM = "reproducer.c"
MOST_LINES = 100
MOST_CPUS = 64  # bits of a mask
_PART = {"kind", "count", "cpus", "start", "later", "wakee", "nice", "policy", "priority",
         "run_us", "sleep_us", "burst"}  # fmt: skip
_POLICIES = {"batch": "SCHED_BATCH", "idle": "SCHED_IDLE", "fifo": "SCHED_FIFO", "rr": "SCHED_RR"}
_LOAD = {"ms", "parts", "hotplug"}
_LACKS = "not measured: a setting was refused, or a CPU or file is missing"
# Ctrl-C waits until the CPU is on line again.
_SIGNALS = "	sigprocmask(SIG_%s, &(sigset_t){ { ~0UL } }, NULL);\n"
_PROCESSES = {"hog": 1, "sleeper": 1, "waker": 2, "forker": 1}


def unsupported(case: Case, prop: str, *, alone: bool = False) -> str:
    """Return why a case has no short reproducer, in a sentence; "" if it can have one.

    `alone`: without a reference kernel, whose figure tells what is usual.
    """
    reason = ""
    if prop not in FIGURES:
        reason = f"A short reproducer has no figure for {prop}"
    elif len(case.loads) != 1:
        reason = f"The case has {counted(len(case.loads), 'load')}"
    elif case.machine.cpu_count > MOST_CPUS:
        reason = f"The machine has more than {MOST_CPUS} CPUs"
    elif alone and limit_alone(prop, case.loads[0]) is None:
        reason = f"Without a reference kernel {prop} has no limit in this load"
    else:
        reason = _unsupported(case.loads[0])
        lines = 0 if reason else render_program(case, prop, "x", 1.0).count("\n")
        if lines > MOST_LINES:
            reason = f"A short one would have {lines} lines"
    return f"{reason}, so the reproducer is numalab's driver." if reason else ""


def _unsupported(load: Load) -> str:
    for part in load.parts:
        if part.kind not in _PROCESSES:
            return f"The load has tasks of the kind {part.kind}"
        if part.policy not in ("fair", *_POLICIES):
            return f"A {part.kind} has the policy {part.policy}"
        if part.kind == "waker" and part.burst > 1:
            return "A waker has several wakees"
        for field in fields(part):
            if field.name not in _PART and getattr(part, field.name) != field.default:
                return f"A {part.kind} has the setting {field.name}"
    names = [field.name for field in fields(load) if field.name not in _LOAD]
    return next((f"The load has {name}" for name in names if getattr(load, name)), "")


def render_program(case: Case, prop: str, sentence: str, most: float) -> str:
    """Return the C file of a case with one load of the kinds that `unsupported` accepts.

    The program prints a line that begins with `REPRODUCED` if its figure is above `most`, and with
    `not reproduced` otherwise. It says neither, and exits with 2, if a setting is refused, or a
    figure is missing.
    """
    (load,) = case.loads
    figure, most = FIGURES[prop], float(most)
    program = _Program(load, figure, case.machine.cpu_count)
    text = [
        _comment(case, sentence),
        *program.includes(),
        *program.constants(most),
        *([WORK] if any(part.kind != "hog" for part in load.parts) else []),
        *program.functions(),
        *program.start(),
        *([PUT] if load.hotplug else []),
        WORD,
        program.look(),
        "\n",
        *program.main(),
    ]
    return "".join(text)


def describe_machine(case: Case) -> str:
    """Return the machine in a phrase: `4 nodes with 6 CPUs each, 2 on each core`."""
    sizes = [len(node.cpus) for node in case.machine.nodes]
    nodes, packaging = counted(len(sizes), "node"), case.machine.packaging
    on_core = f", {packaging.threads} on each core" if packaging.threads > 1 else ""
    on_core += f", {packaging.dies} dies in each socket" if packaging.dies > 1 else ""
    if len(set(sizes)) == 1:
        cpus = counted(sizes[0], "CPU") + (" each" if len(sizes) > 1 else "")
        return f"{nodes} with {cpus}{on_core}"
    return f"{nodes} with {', '.join(map(str, sizes))} CPUs{on_core}"


def _comment(case: Case, sentence: str) -> str:
    table = "; ".join(" ".join(map(str, row)) for row in case.machine.distances)
    clean = printable(sentence).replace("*/", "* /").replace("/*", "/ *")
    root = any(part.is_real_time or part.nice < 0 for part in case.loads[0].parts)
    needs = "root" if root or case.loads[0].hotplug else "no root"
    lines = [
        *textwrap.wrap(f"{clean[:1].upper()}{clean[1:]}.", 90)[:3],
        *textwrap.wrap(
            f"Needs {needs}, numa_balancing off, and an idle machine of"
            f" {describe_machine(case)}; distances {table}.",
            90,
        )[:6],
        "gcc -O2 -static -o reproducer reproducer.c && ./reproducer",
    ]
    text = "\n * ".join(lines)
    return f"// SPDX-License-Identifier: GPL-2.0\n/*\n * {text}\n */\n"


class _Program:
    """The parts of the C file that depend on the load."""

    def __init__(self, load: Load, figure: Figure, cpus: int) -> None:
        self.load, self.figure, self.cpus = load, figure, cpus
        self.kinds = {part.kind for part in load.parts}
        self.masks = any(
            mask and len(mask) < cpus
            for part in load.parts
            for mask in (part.cpus, part.start, part.later, part.wakee)
        )
        self.starts = any(part.start for part in load.parts)
        self.later = any(part.later for part in load.parts)
        # Whether the program keeps its tasks: to change their masks, or to read about them.
        self.keeps = figure.table != "cpus" or self.starts or self.later
        self.sampled = figure.table in ("samples", "crowds")
        policies = {part.policy for part in load.parts}
        # Whether a task makes settings of its own: it ends where one is refused.
        self.sets = self.masks or policies != {"fair"} or any(part.nice for part in load.parts)
        self.first = any(part.is_real_time for part in load.parts)  # `main` runs before them
        self.sched = self.masks or self.starts or self.later or policies != {"fair"}

    def includes(self) -> Iterator[str]:
        yield "#define _GNU_SOURCE\n"
        wanted = {
            "sched": self.sched,
            "sys/resource": any(part.nice for part in self.load.parts),
            "sys/wait": self.sets or "forker" in self.kinds,
            "time": self.kinds != {"hog"},
        }
        for name in ("sched", "signal", "stdio", "stdlib", "string", "sys/prctl", "sys/resource",
                     "sys/wait", "time", "unistd"):  # fmt: skip
            if wanted.get(name, True):
                yield f"#include <{name}.h>\n"

    def constants(self, most: float) -> Iterator[str]:
        tasks = sum(part.count * _PROCESSES[part.kind] for part in self.load.parts)
        yield f"\n#define MS {self.load.ms}\n"
        if self.figure.table in ("cpus", "crowds"):
            yield f"#define CPUS {self.cpus}\n"
        if self.figure.table == "crowds":
            yield f"#define ALLOWED {_hex(self.load.parts[0].later or self.load.parts[0].cpus)}\n"
        yield f"#define LIMIT {most:.4} /* {self.figure.meaning} */\n\n"
        if self.keeps:
            columns = " double ms, moves;" if self.figure.table == "tasks" else ""
            masks = ["cpus"] if self.starts or self.figure.table == "samples" else []
            masks += ["later"] if self.later else []
            longs = f" unsigned long {', '.join(masks)};" if masks else ""
            yield f"static struct {{ pid_t pid;{longs}{columns} }} tasks[{tasks}];\n"
        waker = "waker" in self.kinds
        count = "count, " if self.keeps or waker else ""
        yield f"static int {count}failed{f', ends[{tasks}][2]' if waker else ''};\n"
        if self.figure.table == "cpus":
            turns = ", turns[CPUS]" if self._uses("turns") else ""
            yield f"static double idle[CPUS], waited[CPUS]{turns};\n"
        if self.figure.table == "samples":
            yield "static long now_ms, outside;\n"
        if self.figure.table == "crowds":
            yield "static double now_ms, uneven;\n"
        yield "static char text[64];\n"

    def _uses(self, name: str) -> bool:
        return any(name in line for line in self.figure.by_row)

    def functions(self) -> Iterator[str]:
        """Yield a function for each kind of task, one for each way to set it up."""
        for place, part in enumerate(self.load.parts):
            for kind in BODIES[part.kind]:
                if place == self._places(kind, part)[0]:
                    head = f"\nstatic void {self._name(kind, place)}(void)\n"
                    yield f"{head}{{\n{self._body(kind, part)}}}\n"

    @staticmethod
    def _body(kind: str, part: Part) -> str:
        text = ""
        if part.nice:
            text += f"	if (setpriority(PRIO_PROCESS, 0, {part.nice}))\n"
            text += '		return perror("setpriority");\n'
        if part.policy != "fair":
            priority = f"&(struct sched_param){{ {part.priority} }}"
            text += f"	if (sched_setscheduler(0, {_POLICIES[part.policy]}, {priority}))\n"
            text += '		return perror("sched_setscheduler");\n'
        values = {field.name: getattr(part, field.name) for field in fields(part)}
        return text + BODIES[part.kind][kind] % values

    def _places(self, kind: str, alike: Part | None = None) -> list[int]:
        """Return the parts with tasks of a kind, or those that have the function of one."""
        return [
            place
            for place, part in enumerate(self.load.parts)
            if kind in BODIES[part.kind]
            and (alike is None or self._body(kind, part) == self._body(kind, alike))
        ]

    def _name(self, kind: str, place: int) -> str:
        """Return the name of a part's function: its kind, with the first place if there are two."""
        alike = self._places(kind, self.load.parts[place])
        return kind if alike == self._places(kind) else f"{kind}{alike[0]}"

    def start(self) -> Iterator[str]:
        names = ["from"] if self.masks else []
        names += ["cpus"] if self.starts or self.figure.table == "samples" else []
        names += ["later"] if self.later else []
        parameters = "".join(f", unsigned long {name}" for name in names)
        yield f"\nstatic void start(void (*run)(void){parameters})\n{{\n"
        if self.keeps:
            for name in names[bool(self.masks) :]:
                yield f"	tasks[count].{name} = {name};\n"
            yield "	if ((tasks[count++].pid = fork()))\n		return;\n"
        else:
            yield "	count++;\n" if "waker" in self.kinds else ""
            yield "	if (fork())\n		return;\n"
        yield "	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
        call = "sched_setaffinity(0, sizeof(from), (cpu_set_t *)&from)"
        run = f'{call} ? perror("sched_setaffinity") : run()' if self.masks else "run()"
        yield f"	{run};\n	_exit(0);\n}}\n"

    def look(self) -> str:
        """Return the function that reads /proc, without what the figure does not need."""
        needless = [] if self._uses("turns") else ["turns[i] +="]
        lines = LOOK[self.figure.table].splitlines(keepends=True)
        return "".join(line for line in lines if not any(name in line for name in needless))

    def main(self) -> Iterator[str]:
        sums = [name for name in ("sum", "all", "least") if self._uses(f"{name} ")]
        yield "int main(void)\n{\n"
        yield f"	double figure{''.join(f', {name} = 0' for name in sums)};\n"
        if self.figure.table == "crowds":
            yield "	failed = sysconf(_SC_NPROCESSORS_ONLN) != CPUS;\n"
        if self.first:
            policy = "SCHED_FIFO | SCHED_RESET_ON_FORK"
            yield f"	failed |= sched_setscheduler(0, {policy}, &(struct sched_param){{ 99 }});\n"
        for place, part in enumerate(self.load.parts):
            yield from self._starts(part, place)
        yield "	usleep(100000);\n"
        if self.starts:
            yield from self._allow("cpus")
        yield "" if self.sampled else "	look(-1);\n"
        yield _SIGNALS % "BLOCK" if self.load.hotplug else ""
        yield from self._meanwhile()
        yield _SIGNALS % "UNBLOCK" if self.load.hotplug else ""
        yield "" if self.sampled else "	look(1);\n"
        yield f"	if (failed{' || waitpid(-1, NULL, WNOHANG)' if self.sets else ''})\n"
        yield f'		return puts("{_LACKS}"), 2;\n'
        yield ROWS[self.figure.table]
        allowed = {
            cpu for part in self.load.parts for cpu in (*part.cpus, *part.later, *part.wakee)
        }
        for line in self.figure.by_row:
            restricted = "idle" in line and len(allowed) < self.cpus
            idle = f"({_hex(allowed)} >> i & 1) * idle[i]" if restricted else "idle[i]"
            yield f"		{line.replace('idle[i]', idle)}\n"
        yield f"	}}\n	{self.figure.code}\n"
        yield f'	printf("%s: %.2f {self.figure.meaning}, limit %g\\n",\n'
        yield '	       figure > LIMIT ? "REPRODUCED" : "not reproduced", figure, LIMIT);\n'
        yield "}\n"

    def _starts(self, part: Part, place: int) -> Iterator[str]:
        many = part.count > 1
        loop = f"	for (int i = 0; i < {part.count}; i++)" if many else ""
        tabs = "		" if many else "	"
        if part.kind == "waker":
            yield f"{loop} {{\n" if many else ""
            yield f"{tabs}if (pipe(ends[count]))\n{tabs}	return 1;\n"
        elif many:
            yield f"{loop}\n"
        for kind in BODIES[part.kind]:
            arguments = self._arguments(part, part.wakee if kind == "wakee" else ())
            yield f"{tabs}start({self._name(kind, place)}{arguments});\n"
        yield "	}\n" if many and part.kind == "waker" else ""

    def _arguments(self, part: Part, own: tuple[int, ...]) -> str:
        """Return the masks of a task as arguments; `own` replaces that of its part."""
        cpus = own or part.cpus
        masks = [part.start or cpus] if self.masks else []
        masks += [cpus] if self.starts or self.figure.table == "samples" else []
        masks += [own or part.later or cpus] if self.later else []
        return "".join(f", {_mask(mask, masks[:at])}" for at, mask in enumerate(masks))

    def _allow(self, name: str) -> Iterator[str]:
        yield "	for (int i = 0; i < count; i++)\n"
        call = f"sched_setaffinity(tasks[i].pid, 8, (cpu_set_t *)&tasks[i].{name})"
        yield f"		failed |= {call};\n"

    def _meanwhile(self) -> Iterator[str]:
        """Yield the waits and the changes between the begin and the end of the load, in order."""
        changes: list[tuple[int, str]] = []
        if self.later:
            code = "".join(self._allow("later"))
            if self.figure.table == "samples":
                code += (
                    "	for (int i = 0; i < count; i++)\n		tasks[i].cpus = tasks[i].later;\n"
                )
            changes.append((self.load.ms // 2, code))
        for change in self.load.hotplug:
            online = f"/sys/devices/system/cpu/cpu{change.cpu}/online"
            changes.append((change.off_ms, f'	put("{online}", "0");\n'))
            changes.append((change.on_ms, f'	put("{online}", "1");\n'))
        now = 0
        for ms, code in [*sorted(changes), (self.load.ms, "")]:
            if ms > now:
                rest = "MS" if ms == self.load.ms and not now else str(ms - now)
                yield f"	sample({ms});\n" if self.sampled else f"	usleep({rest} * 1000);\n"
            yield code
            now = max(now, ms)


def _hex(cpus: Iterable[int]) -> str:
    return f"{sum(1 << cpu for cpu in set(cpus)):#x}UL"


def _mask(cpus: Collection[int], before: Collection[object]) -> str:
    """Write a mask, with its CPUs in a comment the first time."""
    return _hex(cpus) if cpus in before else f"{_hex(cpus)} /* {format_cpulist(cpus)} */"
