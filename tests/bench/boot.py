"""How long one short command in a guest takes, from prompt to prompt, beside virtme-ng.

`python tests/bench/boot.py MODE` prints the wall and CPU seconds of both, round by round.
"""

import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.patched_kernel import find_kernel

COMMAND = ("cat", "/proc/uptime")
NUMALAB = (sys.executable, "-c", "from numalab.cli.entry import main; main()")
# The same; at the end it writes its own CPU seconds, without those of QEMU, to $OWN_CPU.
_COUNTED = """
import atexit, os, time
atexit.register(lambda: open(os.environ["OWN_CPU"], "w").write(str(time.process_time())))
from numalab.cli.entry import main
main()
"""


_UNTIL_SAVED = 2  # boots
_LAST_BYTES = 20_000  # of the output of a command that fails


@dataclass(frozen=True)
class Cost:
    """Wall seconds, and CPU seconds of a command and all that it started."""

    wall: float
    cpu: float


def measure(mode: str, rounds: int) -> tuple[Cost, Cost | None]:
    """Boot ring-4 by numalab in `mode`, and in turns by virtme-ng; the middle one of each counts.

    virtme-ng is $VNG, or `vng` on PATH. It gets the same kernel with the 9p, virtiofs and overlayfs
    that it needs, or the bzImage $VNG_KERNEL. It emulates with a thread for each vCPU, so it is
    compared with `tcg` only. Numalab's guests continue a saved one.
    """
    for _ in range(_UNTIL_SAVED):
        cost((*NUMALAB, "boot", "ring-4", "--mode", mode, "--", *COMMAND))
    vng = shutil.which(os.environ.get("VNG", "vng")) if mode == "tcg" else None
    image = virtme_kernel() if vng else ""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(cost((*NUMALAB, "boot", "ring-4", "--mode", mode, "--", *COMMAND)))
        if vng:
            path = f"{Path(vng).parent}:{os.environ['PATH']}"
            theirs.append(cost(virtme_ng(vng, image), env={"PATH": path}))
    return _middle(ours), _middle(theirs) if theirs else None


def measure_cold(mode: str, rounds: int) -> Cost:
    """Boot ring-4 in `mode` without a saved guest; the middle one counts."""
    words = ("boot", "ring-4", "--cold", "--mode", mode, "--")
    return _middle([cost((*NUMALAB, *words, *COMMAND)) for _ in range(rounds)])


def own_cpu(folder: Path) -> float:
    """Return the CPU seconds of `numalab boot` outside of QEMU."""
    path = folder / "own-cpu"
    argv = [sys.executable, "-c", _COUNTED, "boot", "ring-4", "--mode", "tcg", "--", *COMMAND]
    subprocess.run(
        argv, check=True, env={**os.environ, "OWN_CPU": str(path)}, capture_output=True, timeout=300
    )
    return float(path.read_text())


def virtme_kernel() -> str:
    """Return the bzImage for virtme-ng; it is built where the cache lacks it."""
    image = os.environ.get("VNG_KERNEL")
    return image or str(ensure_kernel(find_kernel("debian-6.12-virtme")).bzimage)


def virtme_ng(vng: str, image: str) -> tuple[str, ...]:
    """Return the command that boots the same machine: 4 nodes of 768 MiB with 2 CPUs each."""
    nodes = [f"--numa=768M,cpus={2 * node}-{2 * node + 1}" for node in range(4)]
    words = [vng, "--run", image, "--disable-kvm", "--cpus=8", "--memory=3G", *nodes]
    # It wants a terminal.
    return ("script", "-qec", shlex.join([*words, "--exec", shlex.join(COMMAND)]), "/dev/null")


def cost(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> Cost:
    """Run a command, with `env` added to the environment.

    Raises RuntimeError with the end of its output if it fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        code = subprocess.run(
            argv,
            check=False,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        ).returncode
        if code:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _LAST_BYTES))
            end = output.read().decode(errors="replace")
            raise RuntimeError(f"{' '.join(argv)} exits with {code}: ...{end}")
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu)


def _middle(costs: Sequence[Cost]) -> Cost:
    return Cost(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))


if __name__ == "__main__":
    for result in measure(sys.argv[1] if len(sys.argv) > 1 else "tcg", 3):
        print(result)
