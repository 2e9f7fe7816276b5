"""Counts guests of the bed whose kernel runs a breakpoint that it has taken away again.

    PYTHONPATH=tests .venv/bin/python -m testbed.stale_code EMULATOR COUNT [WORD...]

EMULATOR is the program that emulates the bed's host; plain QEMU boots the guests in it, one after
the other, with WORDs on their kernels' command lines, until they find no root. See decision 13.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from numalab.topology.load import load_topology
from testbed.bed import render_argv, running
from testbed.conftest import HOSTS, make_parts

BATCH = 10
GUESTS = r"""
for number in $(seq $0); do
    timeout 300 qemu-system-x86_64 -nodefaults -display none -no-reboot -machine q35 -accel kvm \
        -cpu host -smp 4 -m 256 -kernel /disk/guests/bzImage -serial file:/tmp/console \
        -append "console=ttyS0 oops=panic panic=-1 quiet $*" </dev/null >/dev/null 2>&1
    grep -oE 'Oops: .*|RIP: 0010:.*|not syncing: .*' /tmp/console | head -2 | tr '\n' ' '
    echo
done
"""


def main(emulator: str, count: int, *words: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bed-") as name:
        folder = Path(name)
        parts = replace(make_parts(folder), emulator=Path(emulator))
        argv = render_argv(load_topology(HOSTS / "ring-4x3.toml"), parts, folder)
        with running(argv, folder) as bed:
            print(f"host up after {bed.cpu_seconds():.0f} s of CPU time", flush=True)
            for done in range(BATCH, count + BATCH, BATCH):
                before = bed.cpu_seconds()
                ended = bed.run("sh", "-c", GUESTS, str(BATCH), *words, seconds=3000)
                spent = bed.cpu_seconds() - before
                print(f"{ended.stdout}{done} guests, these {spent:.0f} s of CPU time", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
