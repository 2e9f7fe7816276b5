"""Every command with random options and arguments, valid and not, derived from the commands.

New commands and options are part of it by themselves. What would build or boot is only called with
an argument that is refused: nothing here starts a guest or a compiler.
"""

import random
from pathlib import Path

from fuzz.command_tree import Parameter, commands
from fuzz.commands import Box, Word
from support.example_results import copy_example

CASES, FEW = 3000, 8
# Commands that build, boot or install when all is valid, each with the option that gets a value
# which is nothing; for those without one the argument is nothing.
HEAVY = {
    "run": "", "boot": "--kernel", "shell": "--kernel", "hunt": "--kernel", "bisect": "--measure",
    "verify": "--run", "kernel build": "--source", "kernel try": "--base", "kernel config": "",
    "kernel refresh": "--base", "emulator build": "", "image build": "", "image shell": "--kernel",
    "doctor": "--pages",
}  # fmt: skip
NUMACTL = """available: 2 nodes (0-1)
node 0 cpus: 0 1
node 0 size: 512 MB
node 1 cpus: 2 3
node 1 size: 512 MB
node distances:
node   0   1
  0:  10  20
  1:  20  10
"""
# Options that change this host or reach another one.
REFUSED = {"--fix", "--connect", "--cluster"}
# Values that are valid for the parameter of that name.
VALID = {
    "results": "results", "topology": "ring-4", "kernel": "debian-6.12", "file": "trace.dat",
    "before": "results", "after": "results", "files": "machine.toml", "a": "ring-4", "b": "mesh-8",
    "text": "ring-4", "source": "numactl.txt", "target": "new.tar.zst", "folder": "new",
    "patch": "one.patch", "series": "undo-group-construction", "words": "true", "name": "base",
    "studies": "group-construction", "study": "group-construction", "archive": "archive.tar.zst",
    "workload": "bound-hogs",
}  # fmt: skip
NOTHING = ["no-such-name", "./no/such/file", "git:/nonexistent@HEAD", "deb:no-such-package", ""]
TEXTS = [
    "", "x", "-", "--", "-1", "0", "1", "3", "99999999999999999999", "1e400", "nan", "0-3", "3-0",
    "0,,1", "ring-4", "debian-6.12", "group-construction", "base", "bound-hogs", "self", ".", "..",
    "/", "/etc/passwd", "/dev/null", "/dev/zero", "/proc/self/mem", "~", "a\tb", "é", "=", "a=b",
    "20m", "10GiB", "json", "html", "junit", "worse", "kvm", "icount", "timed", "auto", "--json",
    "SELECT * FROM runs", "SELECT", "SELECT * FROM read_csv('/etc/passwd')", "6.12", "5.10", "*",
    "results", "trace.dat", "machine.toml", "archive.tar.zst", "out", "x" * 300,
]  # fmt: skip


def case(seed: int, scratch: Path) -> str:
    """Call one command with random words."""
    rng = random.Random(seed)
    box = Box(scratch)
    prepare(box)
    name = sorted(commands())[seed % len(commands())]
    words = random_words(rng, name)
    terminal = rng.random() < 0.2
    ended = box.run(*name.split(), *words, terminal=terminal)
    code = box.check(ended)
    if name in HEAVY and "--help" not in words and "-h" not in words:
        assert code != 0, f"an argument that is nothing was accepted\n{ended}"
    return f"exit code {code}"


def prepare(box: Box) -> None:
    """Put inputs into the working folder: results, a recording that is none, a machine."""
    copy_example(box.work / "results")
    (box.work / "trace.dat").write_bytes(b"\x17\x08\x44tracing6\0" + bytes(100))
    (box.work / "machine.toml").write_text('summary = "x"\nnodes = 2\ncpus = 1\nmemory_mib = 512\n')
    (box.work / "archive.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (box.work / "numactl.txt").write_text(NUMACTL)
    (box.work / "one.patch").write_text("--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-a\n+b\n")


def random_words(rng: random.Random, name: str) -> list[Word]:
    """Return options and arguments of a command, most of them of the right kind."""
    words: list[Word] = []
    options = [option for option in commands()[name] if not REFUSED & {*option.spellings}]
    options = [option for option in options if option.spellings]
    for option in rng.sample(options, min(len(options), rng.choice([0, 1, 1, 2, 3]))):
        words.append(rng.choice(option.spellings))
        words += [] if option.is_flag else [random_value(rng, option)]
    if rng.random() < 0.1:
        words.append(rng.choice(["--no-such-option", "-Z", "--", "--help", "-h", "--json=1"]))
    arguments: list[Word] = []
    for argument in commands()[name]:
        if not argument.spellings:
            count = rng.choice([1, 1, 1, 2]) if argument.repeated else 1
            arguments += [random_value(rng, argument) for _ in range(count)]
    if rng.random() < 0.1:
        arguments = arguments[: rng.randrange(len(arguments) + 1)]
    if rng.random() < 0.1:
        arguments.append(rng.choice(TEXTS))
    if name in HEAVY:
        arguments = [rng.choice(NOTHING)] if arguments else []
        words += refused(name)
    return [*words, *arguments]


def valid_words(name: str) -> list[Word]:
    """Return words with which a command does its work, or is refused where that is heavy."""
    arguments = [parameter for parameter in commands()[name] if not parameter.spellings]
    words: list[Word] = [VALID.get(argument.name, "x") for argument in arguments]
    if name in HEAVY:
        return [*refused(name), *words] if HEAVY[name] else [NOTHING[0]]
    return words


def refused(name: str) -> list[str]:
    """Return options that have a heavy command refused, whatever else it is given."""
    if name == "bisect":
        return ["--study", "group-construction", "--measure", NOTHING[0]]
    return [HEAVY[name], NOTHING[0]] if HEAVY[name] else []


def random_value(rng: random.Random, parameter: Parameter) -> str:
    """Return a value: often of the parameter's own kind."""
    if rng.random() < 0.6:
        if parameter.choices:
            return rng.choice(parameter.choices)
        if parameter.kind in (int, float):
            return rng.choice(["0", "1", "2", "7", "100"])
        if parameter.name in VALID:
            return VALID[parameter.name]
    return rng.choice(TEXTS)
