"""Documents of strangers: machines, studies, kernels, workloads, images and cases in spoiled TOML.

Each case spoils one of the project's own files, or a random machine, puts it into a lab folder of
its own, and asks of it what a user may ask without a build. It is refused in one message, or is
good for all that is asked: what `check` calls right is right for everything.
"""

import os
import random
import re
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from numalab.campaign.outlook import look_ahead, look_at_claims, total_seconds
from numalab.document import check_document
from numalab.errors import LabError
from numalab.hunt.case_file import read_case
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_specs import load_kernels
from numalab.places import shipped_dir
from numalab.qemu.cmdline import render_cmdline
from numalab.study.guest import guest_of
from numalab.study.model import Study, load_study, study_table
from numalab.study.plan import plan_study
from numalab.topology import export
from numalab.topology.export import render_topology_file
from numalab.topology.load import (
    check_topology_file,
    load_topology,
    load_topology_file,
    memory_to_dict,
    topology_to_dict,
)
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict
from numalab.topology.view.drawing import render_svg
from numalab.topology.view.terminal import render_terminal
from numalab.workload.workload import load_workload, resolve
from support.random_machines import random_machine

CASES, FEW = 5000, 40
_MOST_SECONDS = 20.0  # of CPU time; the largest machine there can be takes a few
_STRINGS = [
    "", "x", "../../../etc/passwd", "/dev/zero", "/dev/stdin", "/proc/self/mem", "\\u0000",
    "\\u001b[2J", "\\u202e", "\\U0010ffff", "a" * 70_000, "0-999999999", "0-3,0-3", "3-0", "0,,1",
    "-", "nan", "1e999", "{folder}{nothing}", "((((((((((((((((((((x))))))))))))))))))))",
    "(?P<value>.*", "9**9**9", "x" * 81, "{{}}", "--help", "a b", "\\n", "git:/nonexistent",
    "deb:linux-image-6.12", "machine.cpus / 0", "-rf", "self", "tried", "base", "ring-4", "before",
    "after", "mine",
]  # fmt: skip
_VALUES = [
    "0", "-1", "1", "2", "3", "10", "255", "64", "1024", "4294967295", "4294967296",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 400, "9" * 5000,
    "0.0", "-0.0", "1e308", "-1e308", "5e-324", "1e400", "nan", "inf", "-inf", "true", "false",
    "[]", "{}", "[[]]", "[{}]", "[0]", "[1, 2]", "[nan]", '["x", 1]', "[" * 40 + "]" * 40,
    "{ a = { b = { c = 1 } } }", "1979-05-27T07:32:00Z", "07:32:00", "0xffffffffffffffffffff",
    "0b1", "1_000", "[" + "0," * 3000 + "]",
]  # fmt: skip
_KEYS = [
    "nodes", "cpus", "memory_mib", "name", "label", "kernel", "source", "extends", '"a\\u0000b"',
    '"\\u001b[2J"', '""', "a.b.c", ".".join("a" * 40), '"../x"', "__class__", "x" * 300, "seeds",
]  # fmt: skip
_VALUE = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?<![\w.])-?\d[\w.]*|\b(?:true|false)\b')
_KEY = re.compile(r"^([A-Za-z0-9_-]+)(?= *=)|(?<=\[)[A-Za-z][A-Za-z0-9_.-]*(?=\])", re.MULTILINE)


def case(seed: int, scratch: Path) -> str:
    """Spoil a document and ask everything of it."""
    rng = random.Random(seed)
    kind = rng.choice([*_KINDS])
    source, place, ask = _KINDS[kind]
    text = source(rng)
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 2, 8])):
        text = rng.choice(_WAYS)(rng, text)
    path = scratch / "lab" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = sorted(scratch.rglob("*"))
    os.environ["NUMALAB_PATH"] = str(scratch / "lab")
    os.environ["NUMALAB_CACHE"] = str(scratch / "cache")
    began = time.process_time()
    try:
        with chdir(scratch / "lab"):
            ask(path)
        outcome = "accepted"
    except LabError as error:
        assert len(str(error)) < 20_000
        outcome = "refused"
    finally:
        del os.environ["NUMALAB_PATH"], os.environ["NUMALAB_CACHE"]
    assert time.process_time() - began < _MOST_SECONDS
    cache = scratch / "cache"
    assert [
        path for path in sorted(scratch.rglob("*")) if cache not in (path, *path.parents)
    ] == before
    return f"{kind} {outcome}"


def _machine(path: Path) -> None:
    """Ask what `numalab topology` can answer; what `check` finds right has to be right."""
    errors = check_topology_file(path)
    try:
        topology = load_topology_file(path)
    except LabError:
        assert errors
        raise
    assert not errors
    for kernel in ("5.10", "6.12"):
        hazards(topology, predict(topology, kernel))
    assert topology_to_dict(topology) and memory_to_dict(topology)
    assert render_terminal(topology) and render_svg(topology)
    for render in (export.render_dot, export.render_cpu_xml, export.render_qemu):
        assert render(topology)
    again = path.with_name("again.toml")
    again.write_text(render_topology_file(topology))
    assert load_topology_file(again).distances == topology.distances
    again.unlink()


def _study(path: Path) -> None:
    """Plan a study whole, and each of its presets; look ahead, and at its claims."""
    study = load_study(path)
    assert check_document(study_table(study), Study, path) == study
    for preset in (None, "quick", "full"):
        try:
            plan = plan_study(path, preset)
        except LabError:
            if preset is None:
                raise
            continue
        assert plan.runs and all(len(run.id) <= 80 for run in plan.runs)
        assert len({run.id for run in plan.runs}) == len(plan.runs)
        assert total_seconds([look_ahead(plan, None)], 2) > 0
        look_at_claims(plan, "icount", path.parent)
        for cell in plan.cells:
            words = guest_of(plan.study, plan.topologies[cell.topology], cell.label).extra_cmdline
            assert render_cmdline(None, mode="icount", extra=words).isprintable()


def _kernels(_path: Path) -> None:
    for name, kernel in load_kernels().items():
        assert name == kernel.name


def _workload(path: Path) -> None:
    workload = load_workload(path.parent.name)
    assert workload.file.resolve() == path.resolve()
    for name in ("ring-4", "memoryless-4", "opteron-8"):
        bound = resolve(workload, {}, load_topology(name))
        assert bound.seconds > 0 and all(isinstance(word, str) for word in bound.argv)


def _image(path: Path) -> None:
    recipe = load_recipe(path.stem)
    assert recipe.packages and recipe.limit_mib > 0


def _case(path: Path) -> None:
    case, table, _ = read_case(path)
    assert case.loads and table.property


def _shipped(pattern: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(sorted(shipped_dir().glob(pattern))).read_text()


def _any_machine(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return random_machine(rng.randrange(10_000))
    text = _shipped("topologies/*.toml")(rng)
    table = [f"{key} = {rng.choice(_VALUES)}" for key in rng.sample(_MEMORY, rng.choice([1, 1, 3]))]
    add = rng.random() < 0.4 and "[memory]" not in text
    return "\n".join([text, "[memory]", *table, ""]) if add else text


_MEMORY = [
    "latency_ns", "bandwidth_mb_s", "link_bandwidth_mb_s", "channels", "l1_kib", "l2_kib", "l2_ns",
    "llc_kib", "llc_ns", "interrupt_ns", "far_may_be_nearer",
]  # fmt: skip

_KINDS: dict[str, tuple[Callable[[random.Random], str], str, Callable[[Path], None]]] = {
    "machine": (_any_machine, "topologies/mine.toml", _machine),
    "study": (_shipped("studies/*.toml"), "studies/tried.toml", _study),
    "kernels": (_shipped("kernel-configs/kernels.toml"), "kernel-configs/kernels.toml", _kernels),
    "workload": (_shipped("workloads/*/workload.toml"), "workloads/mine/workload.toml", _workload),
    "image": (_shipped("images/*.toml"), "images/mine.toml", _image),
    "case": (_shipped("hunts/*.toml"), "hunts/case.toml", _case),
}


def _put(rng: random.Random, text: str, pattern: re.Pattern[str], new: str) -> str:
    matches = list(pattern.finditer(text))
    if not matches:
        return text + new
    at = rng.choice(matches)
    return text[: at.start()] + new + text[at.end() :]


def _value(rng: random.Random, text: str) -> str:
    """Put something else in the place of a value."""
    return _put(rng, text, _VALUE, rng.choice([*_VALUES, *(f'"{string}"' for string in _STRINGS)]))


def _other(rng: random.Random, text: str) -> str:
    """Put one of the document's own values in the place of another."""
    return _put(rng, text, _VALUE, rng.choice(_VALUE.findall(text) or ["1"]))


def _key(rng: random.Random, text: str) -> str:
    return _put(rng, text, _KEY, rng.choice([*_KEYS, *(_KEY.findall(text) or ["a"])]) or "a")


def _lines(rng: random.Random, text: str) -> str:
    """Take lines out, double them, or put them elsewhere."""
    lines = text.splitlines()
    if not lines:
        return text
    at, count = rng.randrange(len(lines)), rng.choice([1, 1, 2, 5])
    taken = lines[at : at + count]
    if rng.random() < 0.7:
        del lines[at : at + count]
    if rng.random() < 0.6:
        place = rng.randrange(len(lines) + 1)
        lines[place:place] = taken
    return "\n".join(lines) + "\n"


def _add(rng: random.Random, text: str) -> str:
    """Add a key, or a table, somewhere."""
    lines = text.splitlines()
    table = rng.choice(["[{}]", "[[{}]]"]).format(rng.choice(_KEYS))
    new = rng.choice([f"{rng.choice(_KEYS)} = {rng.choice(_VALUES)}", table])
    lines.insert(rng.randrange(len(lines) + 1), new)
    return "\n".join(lines) + "\n"


def _bytes(rng: random.Random, text: str) -> str:
    data = bytearray(text.encode("utf-8", "surrogateescape"))
    for _ in range(rng.choice([1, 1, 10])):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.2:
        del data[rng.randrange(len(data) + 1) :]
    return data.decode("utf-8", "surrogateescape")


def _deep(rng: random.Random, text: str) -> str:
    """Nest deeper than any reader likes, or grow beyond every bound."""
    return text + rng.choice(
        ["\n" + ".".join("a" * 2000) + " = 1\n", "\nz = " + "[" * 2000 + "]" * 2000 + "\n",
         "\nz = " + "{a=" * 500 + "1" + "}" * 500 + "\n", "\n# " + "x" * (1 << 20) + "\n"]
    )  # fmt: skip


_WAYS: list[Callable[[random.Random, str], str]] = [
    _value, _value, _value, _value, _other, _other, _key, _lines, _lines, _add, _bytes, _deep,
]  # fmt: skip
