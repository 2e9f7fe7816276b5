"""Paths with odd names for every path that a command takes; what is there is valid, or absent.

Names hold bytes that are no UTF-8, line breaks, escape sequences, markup, or are very long.
"""

import random
import shutil
from pathlib import Path

from fuzz.command_tree import Parameter, commands, takes_json
from fuzz.commands import Box, Word
from fuzz.exit_codes import HEAVY, NOTHING, VALID, prepare, refused
from numalab.places import shipped_dir

CASES, FEW = 2000, 6
PARTS = [
    b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"a\nb", b"a\rb", b"\x1b[2J", b"\x1b]0;x\x07",
    b"\xc2\x9b31m", b"\xe2\x80\xae", b"[bold red]", b"[/]", b"%s%n", b"{0}", b"-rf", b"--json",
    b" ", b"~", b"$HOME", b"`id`", b":", b"#1", b"git:", b"deb:", b"@", b"..", b"*", b"?", b"'",
    b'"', b"\\", b"\x7f", b"\xf0\x9f\x98\x80", b"x" * 120, b".hidden", b"<b>", b"&amp;", b"\t",
]  # fmt: skip
# A study that is refused when it is planned: `run` must not start it.
STUDY = """question = "?"
topologies = ["ring-2"]
seeds = [1]
[variants.a]
kernel = "no-such-name"
[[workloads]]
name = "bound-hogs"
parameters = { start_node = 0, allowed_nodes = "0,1" }
"""


def case(seed: int, scratch: Path) -> str:
    """Call one command with odd names for some of its paths."""
    rng = random.Random(seed)
    box = Box(scratch)
    prepare(box)
    names = [name for name, parameters in sorted(commands().items())
             if any(_is_free(name, parameter) for parameter in parameters)]  # fmt: skip
    name = names[seed % len(names)]
    free = [parameter for parameter in commands()[name] if _is_free(name, parameter)]
    odd = rng.sample(free, min(len(free), rng.choice([1, 1, 2])))
    words: list[Word] = [*(refused(name) if name in HEAVY else [])]
    for parameter in odd:
        if parameter.spellings:
            words += [parameter.spellings[0], _odd_path(rng, box, parameter)]
    if rng.random() < 0.5 and takes_json(name):
        words.append("--json")
    words.append("--")
    for parameter in commands()[name]:
        if not parameter.spellings:
            heavy = name in HEAVY and not HEAVY[name]
            usual = NOTHING[0] if heavy else VALID.get(parameter.name, NOTHING[0])
            words.append(_odd_path(rng, box, parameter) if parameter in odd else usual)
    ended = box.run(*name.split(), *words, terminal=rng.random() < 0.3)
    return f"exit code {box.check(ended)}"


def _is_free(name: str, parameter: Parameter) -> bool:
    """Tell whether a path may be odd: the one that has a heavy command refused may not."""
    return parameter.is_path and not (name in HEAVY and HEAVY[name] in parameter.spellings)


def _odd_path(rng: random.Random, box: Box, parameter: Parameter) -> bytes:
    """Return a path with an odd name; where it is an input, mostly put a valid one there."""
    name = b"".join(rng.sample(PARTS, rng.choice([1, 1, 2, 3]))).strip(b"/")
    if rng.random() < 0.1:
        name = rng.choice([b"y" * 255, b"y" * 256, b"y" * 5000, b"/".join([b"z" * 100] * 45)])
    if name in (b".", b"..", b""):
        name += b"x"
    if rng.random() < 0.2:
        name = b"folder" + rng.choice(PARTS) + b"/" + name
    name += rng.choice([b"", b"", b".toml", b".tar.zst", b".json"])
    path = bytes(box.work) + b"/" + name
    if rng.random() < 0.7:
        _put(rng, box, parameter, path)
    return rng.choice([path, b"./" + name])


def _put(rng: random.Random, box: Box, parameter: Parameter, target: bytes) -> None:
    """Put the input of a parameter at a path; names that no disk can have stay absent."""
    path = Path(target.decode("utf-8", "surrogateescape"))
    source = box.work / VALID.get(parameter.name, "nothing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if parameter.name in ("study", "studies"):
            path.write_text(STUDY)
        elif parameter.name in ("topology", "name", "text", "a", "b"):
            path.write_text((box.work / "machine.toml").read_text())
        elif parameter.name == "case":
            case = rng.choice(sorted((shipped_dir() / "hunts").glob("*.toml")))
            path.write_text(case.read_text().replace("violated_by = [", "violated_by = [] # ["))
        elif source.is_dir():
            shutil.copytree(source, path)
        elif source.is_file() and parameter.name not in ("target", "folder"):
            shutil.copy(source, path)
    except OSError:
        return
