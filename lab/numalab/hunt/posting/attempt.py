"""Run a script of a finding as its reader would, and read its verdict."""

import re
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError
from numalab.guest.console import printable
from numalab.host.privilege import privilege, render_privilege
from numalab.hunt.posting.crash import console_lines
from numalab.hunt.posting.script import SCRIPT
from numalab.places import cache_dir
from numalab.process import run
from numalab.qemu.emulator import qemu_version
from numalab.scratch import scratch_folder

_MOST_BYTES = 1 << 18  # of output, which a kernel under test decides
_MOST_ROWS = 1000
_SECONDS = 240.0  # of wall time, on a busy host
_VERDICT = re.compile(r"(REPRODUCED|not reproduced): (\d{1,12}\.\d\d) [^\n]{1,100}")
_ROW = re.compile(r"(task|CPU|load) \d{1,4}[: ][^\n]{1,240}")


@dataclass(frozen=True)
class Attempt:
    """One boot of a reproducer: what it printed.

    `figure` and `reproduced` are None where the guest printed no verdict; `reason` says why.
    `console` are lines of all that it printed.
    """

    kernel: str
    seed: int
    rows: tuple[str, ...]
    figure: float | None = None
    reproduced: bool | None = None
    reason: str = ""
    console: tuple[str, ...] = ()


def run_script(folder: Path, kernel: str, bzimage: Path, seed: int, qemu: Path | None) -> Attempt:
    """Run the script of a folder on a kernel, with QEMU's sandbox, and return what it printed.

    `qemu` is another QEMU than that of the host. Ctrl-C is passed on and ends the guest.
    """
    options = render_privilege(privilege(embedded=True, version=qemu_version(qemu)))
    env = {"KERNEL": str(bzimage), "SEED": str(seed), "QEMU_OPTIONS": " ".join(options)}
    env |= {"QEMU": str(qemu)} if qemu else {}
    shell = f'"$0" 2>&1 | head -c {_MOST_BYTES}'
    try:
        # The script has no time to remove its files if it is killed.
        with scratch_folder(cache_dir("boots"), "script-") as path:
            argv: list[str | Path] = ["sh", "-c", shell, folder / SCRIPT]
            env["TMPDIR"] = str(path)
            done = run(argv, env=env, timeout=_SECONDS, check=False)
    except HostError as error:
        return Attempt(kernel, seed, (), reason=printable(str(error).splitlines()[0]))
    return read_output(kernel, seed, done.stdout)


def read_output(kernel: str, seed: int, text: str) -> Attempt:
    """Read what a guest printed: the rows of its table, and the verdict."""
    lines = [line.strip("\r") for line in text.split("\n")]
    rows = tuple(printable(line) for line in lines if _ROW.fullmatch(line))[:_MOST_ROWS]
    console = console_lines(lines)
    verdicts = [match for line in lines if (match := _VERDICT.fullmatch(line))]
    if len(verdicts) != 1:
        without = (line for line in lines if line.startswith("not measured: "))
        reason = printable(next(without, "the guest printed no verdict"))
        return Attempt(kernel, seed, rows, reason=reason, console=console)
    reproduced = verdicts[0][1] == "REPRODUCED"
    return Attempt(kernel, seed, rows, float(verdicts[0][2]), reproduced, console=console)
