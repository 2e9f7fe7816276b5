"""Foreign results and archives whose documents name code: kernels, topologies, images, plug-ins.

Each case has a stranger's results name files of the archive and of the reader, with code in them
that leaves a mark, and asks all that the command line offers of them, also from within the folder.
"""

import io
import json
import os
import random
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

from fuzz.commands import Box, Ended, Word, missing_image
from fuzz.results import HOSTILE
from support.example_results import RUNS, copy_example

CASES, FEW = 500, 4
VERSION = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n"
# A lab whose kernels end at once: what an honest name leads to must cost nothing either.
HONEST = """
[kernel."debian-6.12"]
summary = "ends at once"
source = "./nothing.tar"
[kernel."debian-6.12-undo-group-construction"]
summary = "ends at once"
source = "./nothing.tar"
"""
missing = missing_image
COMMANDS: list[list[str]] = [
    ["verify", "{}"], ["verify", "{}", "--json"], ["verify", "{}", "--run", RUNS[0]],
    ["report", "{}"], ["report", "{}", "--format", "perfetto"],
    ["report", "{}", "--overview", "overview.html"], ["status", "{}"], ["status", "{}", "--json"],
    ["query", "{}"], ["query", "{}", "SELECT * FROM events LIMIT 5"], ["compare", "{}", "{}"],
    ["export", "{}", "out.tar.zst"], ["plan", "{}/study.toml"], ["plan", "{}/plan.json"],
    ["run", "mine", "--resume", "--output", "{}"], ["run", "group-construction", "--output", "{}"],
    ["topology", "list"], ["measures"], ["kernel", "list"], ["image", "list"], ["workload", "list"],
    ["bisect", "--case", "{}/case.toml", "--output", "{}"],
    ["topology", "check", "{}/machine.toml"],
]  # fmt: skip


def case(seed: int, scratch: Path) -> str:
    """Make results of a stranger and ask everything of them."""
    rng = random.Random(seed)
    box = Box(scratch)
    box.with_image()
    _honest_lab(box)
    folder = copy_example(box.work / "theirs")
    for plant in rng.sample(_PLANTS, rng.choice([0, 1, 2])):
        plant(rng, box, folder)
    names = _code(rng, box, folder)
    for _ in range(rng.choice([1, 2, 4])):
        rng.choice(_WAYS)(rng, folder, names)
    if rng.random() < 0.4:
        _links(rng, box, folder)  # last: nothing here may write through a link or into a pipe
    if rng.random() < 0.5:
        archive = _pack(rng, folder, box.work / "theirs.tar.zst")
        imported = box.work / "imported"
        ended = box.run("import", archive, "--output", imported)
        if box.check(ended) != 0:
            return "refused"
        folder = imported
    codes = [box.check(_ask(rng, box, folder)) for _ in range(4)]
    return f"exit codes {' '.join(map(str, sorted(set(codes))))}"


def _ask(rng: random.Random, box: Box, folder: Path) -> Ended:
    """Run one command on the results, now and then from within them."""
    line = COMMANDS[0] if rng.random() < 0.3 else rng.choice(COMMANDS)
    inside = rng.random() < 0.4
    cwd = rng.choice([folder, folder / "runs"]) if inside else box.work
    path = rng.choice([str(folder), os.path.relpath(folder, cwd)])
    words: list[Word] = [word.replace("{}", path) for word in line]
    lab = {"NUMALAB_PATH": str(box.work / "lab")}
    return box.run(*words, cwd=cwd if cwd.is_dir() else box.work, env=lab)


def _honest_lab(box: Box) -> None:
    """Make the reader's own lab, in which every kernel is refused before anything is built."""
    configs = box.work / "lab" / "kernel-configs"
    configs.mkdir(parents=True)
    (configs / "kernels.toml").write_text(HONEST)
    (box.work / "lab" / "nothing.tar").write_bytes(b"")
    image = box.work / "lab" / "images"
    image.mkdir()


def _code(rng: random.Random, box: Box, folder: Path) -> list[str]:
    """Put code that leaves a mark into the results and beside them; return paths that name it."""
    touch = f"touch {box.mark}"
    makefile = f"{VERSION}$(shell {touch})\nall %:\n\t{touch}\n"
    paths = []
    for base in (folder, box.outside.parent / "work" / "beside"):
        source = base / "kernel"
        (source / "scripts").mkdir(parents=True, exist_ok=True)
        (source / "Makefile").write_text(makefile)
        (source / "Kconfig").write_text(f'config X\n\tdefault "$(shell,{touch})"\n')
        for name in ("configure", "scripts/config", "run.sh"):
            (source / name).write_text(f"#!/bin/sh\n{touch}\n")
            (source / name).chmod(0o755)
        tarball = base / f"linux.tar{rng.choice(['', '.xz', '.gz'])}"
        mode: Any = {".tar": "w", ".xz": "w:xz", ".gz": "w:gz"}[tarball.suffix]
        with tarfile.open(tarball, mode) as archive:
            archive.add(source, "linux")
        if not (source / ".git").is_dir():
            _repository(source, touch)
        for path in (source, tarball):
            relative = os.path.relpath(path, box.work)
            paths += [str(path), f"./{relative}", f"git:{path}", f"git:{path}@HEAD", f"deb:{path}"]
            paths += [
                f"~/../{box.work.name}/{relative}",
                os.path.relpath(path, folder),
                f"{folder}/../{relative}",
            ]
    return [*paths, str(box.outside / "secret.txt"), "/proc/kmsg", "/dev/zero", "/dev/stdin"]


def _repository(source: Path, touch: str) -> None:
    """Make a repository whose configuration and hooks run code."""
    git = ["git", "-C", str(source), "-c", "user.name=x", "-c", "user.email=x@x"]
    for line in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *line], check=True, capture_output=True)
    config = source / ".git" / "config"
    config.write_text(
        f"{config.read_text()}\tfsmonitor = {touch}\n\tpager = {touch}\n\tsshCommand = {touch}\n"
        f'[filter "x"]\n\tsmudge = {touch}\n\tclean = {touch}\n[diff]\n\texternal = {touch}\n'
    )
    (source / ".gitattributes").write_text("* filter=x\n")
    for name in ("post-checkout", "pre-commit", "post-index-change"):
        hook = source / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\n{touch}\n")
        hook.chmod(0o755)


def _lab_folders(_rng: random.Random, box: Box, folder: Path) -> None:
    """Make the results look like a lab folder: plug-ins, kernels, workloads, images, studies."""
    touch = f"touch {box.mark}"
    plugin = f"import pathlib\npathlib.Path({str(box.mark)!r}).touch()\n"
    texts = {
        "plugins/evil.py": plugin, "runs/plugins/evil.py": plugin,
        "kernel-configs/kernels.toml": HONEST.replace("./nothing.tar", "./linux.tar"),
        "kernel-configs/base.config": "CONFIG_X=y\n",
        "workloads/bound-hogs/workload.toml": 'summary = "x"\nargv = ["sh"]\n',
        "workloads/bound-hogs/Makefile": f"all:\n\t{touch}\n",
        "images/base.toml": f'summary = "x"\npackages = ["$({touch})"]\n',
        "Makefile": f"$(shell {touch})\nall:\n\t{touch}\n", "sitecustomize.py": plugin,
        "numalab/__init__.py": plugin, "typer.py": plugin, "json.py": plugin,
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _links(rng: random.Random, box: Box, folder: Path) -> None:
    """Put links and pipes in the place of files and folders."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in rng.sample(files, min(len(files), 3)):
        path.unlink()
        targets = [box.outside / "secret.txt", box.outside, Path("/dev/zero"), Path("../" * 9)]
        if rng.random() < 0.3:
            os.mkfifo(path)
        else:
            path.symlink_to(rng.choice(targets))


def _studies(rng: random.Random, _box: Box, folder: Path) -> None:
    """Add documents that commands may be pointed at."""
    for name in ("study.toml", "machine.toml", "case.toml"):
        kernel = rng.choice(["./linux.tar", "kernel", str(folder / "kernel"), "debian-6.12"])
        (folder / name).write_text(
            f'question = "?"\ntopologies = ["{folder}/machine.toml"]\nseeds = [1]\n'
            f'[variants.a]\nkernel = "{kernel}"\n[case]\nproperty = "affinity"\nvalue = 1\n'
            f'most = 0\nsentence = "x"\nviolated_by = ["{kernel}"]\n'
            '[[workloads]]\nname = "hunt"\nparameters = { seconds = 1.0, loads = "hog n=3" }\n'
        )


_PLANTS: list[Callable[[random.Random, Box, Path], None]] = [_lab_folders, _studies]


def _kernel(rng: random.Random, folder: Path, names: list[str]) -> None:
    """Have the plan name code where it names kernels, topologies, workloads or images."""
    path = folder / "plan.json"
    if not path.is_file() or path.is_symlink():
        return
    plan = json.loads(path.read_text())
    file = plan["file"]
    name = rng.choice(names)
    match rng.randrange(8):
        case 0 | 1 | 2:
            for variant in file["variants"].values():
                variant["kernel"] = name
        case 3:
            file["variants"][rng.choice(["before", "after"])]["kernel"] = name
        case 4:
            file["image"] = name
        case 5:
            file["topologies"] = [name]
        case 6:
            file["workloads"][0]["name"] = name
        case _:
            file["machine"]["emulator"] = name
    if rng.random() < 0.3:
        plan["path"] = rng.choice([name, "/proc/kmsg", "/dev/stdin", str(folder / "study.toml")])
    path.write_text(json.dumps(plan))


def _anything(rng: random.Random, folder: Path, names: list[str]) -> None:
    """Have any text of any document name code."""
    path = rng.choice([path for path in sorted(folder.rglob("*.json")) if not path.is_symlink()])
    if not path.is_file():
        return
    place: Any = json.loads(path.read_text())
    document = place
    while isinstance(place, dict | list) and place:
        key: Any = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list):
            place[key] = rng.choice([*names, *names, *HOSTILE])
        place = place[key]
    path.write_text(json.dumps(document))


_WAYS: list[Callable[[random.Random, Path, list[str]], None]] = [_kernel, _kernel, _anything]


def _pack(rng: random.Random, folder: Path, target: Path) -> Path:
    """Pack the results as `export` does, with all that it would leave out, or as a stranger."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            plain = path.is_file() and not path.is_symlink() and not name.startswith("kernel/.git")
            if plain and (rng.random() < 0.98 or name == "plan.json"):
                archive.add(path, name, recursive=False)
    target.write_bytes(zstandard.compress(raw.getvalue(), 3))
    return target
