"""The schedulers (sched_ext) that a variant may name: where each comes from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from numalab.errors import UserError
from numalab.files import home_expanded, open_regular, reading

SOURCE_ENDING = ".bpf.c"
# tools/sched_ext in Linux 6.12 to 7.3; which of them a kernel has depends on its version.
KERNEL_TOOLS = (
    "scx_simple", "scx_qmap", "scx_central", "scx_flatcg", "scx_pair", "scx_userland", "scx_cpu0",
)  # fmt: skip
# Crates that need no version, and the one that they get.
CRATES = dict.fromkeys(("scx_rusty", "scx_lavd", "scx_bpfland", "scx_layered", "scx_p2dq"), "1.1.4")
NAMES = (*KERNEL_TOOLS, *CRATES)
MOST_ARGUMENTS = 100
_CRATE = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63})@(\d+\.\d+\.\d+[A-Za-z0-9.+-]{0,40})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


class SchedulerOrigin(StrEnum):
    """Where a scheduler comes from."""

    KERNEL = "kernel"  # tools/sched_ext of the variant's kernel
    CRATE = "crate"  # crates.io
    SOURCE = "source"  # NAME.bpf.c of the user, with NAME.c beside it
    PROGRAM = "program"  # of the user, built already


@dataclass(frozen=True)
class SchedulerSpec:
    """A scheduler, and the arguments of its program.

    `path` is the user's file, `version` that of a crate.
    """

    name: str
    origin: SchedulerOrigin
    arguments: tuple[str, ...] = ()
    path: Path | None = None
    version: str = ""

    @property
    def title(self) -> str:
        """The name with its version and arguments."""
        version = f" {self.version}" if self.version else ""
        return " ".join([f"{self.name}{version}", *self.arguments])


def find_scheduler(
    text: str, arguments: Sequence[str] = (), folder: Path = Path()
) -> SchedulerSpec:
    """Return the scheduler that a text names, without a build.

    A tool of the kernel (scx_simple), a crate (scx_rusty, scx_rusty@1.1.4), or a path: a program,
    or NAME.bpf.c with NAME.c beside it. A path is relative to `folder`. Raises UserError.
    """
    words = tuple(arguments)
    if len(words) > MOST_ARGUMENTS or any("\0" in word or "\n" in word for word in words):
        raise UserError(f"are not up to {MOST_ARGUMENTS} lines of text", key="scheduler_arguments")
    if "/" in text or text.endswith(SOURCE_ENDING):
        return _of_user(folder / home_expanded(text), words)
    if text in KERNEL_TOOLS:
        return SchedulerSpec(text, SchedulerOrigin.KERNEL, words)
    if text in CRATES:
        return SchedulerSpec(text, SchedulerOrigin.CRATE, words, version=CRATES[text])
    if crate := _CRATE.fullmatch(text):
        return SchedulerSpec(crate[1], SchedulerOrigin.CRATE, words, version=crate[2])
    choices = [*NAMES, "CRATE@VERSION", "./PROGRAM", f"./NAME{SOURCE_ENDING}"]
    raise UserError(f"no scheduler is called {text!r}", key="scheduler", choices=choices)


def _of_user(path: Path, arguments: tuple[str, ...]) -> SchedulerSpec:
    if not path.is_file():
        raise UserError("no such file", file=path, key="scheduler")
    is_source = path.name.endswith(SOURCE_ENDING)
    name = path.name.removesuffix(SOURCE_ENDING) if is_source else path.name
    if not _NAME.fullmatch(name):
        reason = f"{name!r} is no name of a scheduler: letters, digits, '.', '_', '+', '-'"
        raise UserError(reason, file=path, key="scheduler")
    if is_source and not path.with_name(f"{name}.c").is_file():
        reason = f"needs {name}.c beside it, the program that loads it"
        raise UserError(reason, file=path, key="scheduler")
    with reading(path), open_regular(path) as file:
        if file.read(2) == b"#!":
            reason = "is a script; name the program that it starts"
            raise UserError(reason, file=path, key="scheduler")
    origin = SchedulerOrigin.SOURCE if is_source else SchedulerOrigin.PROGRAM
    return SchedulerSpec(name, origin, arguments, path.absolute())
