"""A reproducer without numalab: a QEMU command, a kernel configuration and a C file."""

import shlex
from pathlib import Path

from numalab.cpulist import format_cpulist
from numalab.files import make_dir, write_text
from numalab.hunt.boot_case import WORKLOAD, HuntBench
from numalab.hunt.case import Case
from numalab.hunt.finding import Finding
from numalab.hunt.load import render_loads
from numalab.machine.memory import backed_mib
from numalab.machine.model import usual_shift
from numalab.topology.topology import Topology
from numalab.workload.workload import load_workload
from numalab.workload.workload_files import shared_headers

SCRIPT = "reproduce.sh"


def write_reproducer(
    folder: Path, case: Case, finding: Finding, bench: HuntBench, seed: int
) -> None:
    """Write a folder with everything except QEMU, gcc, cpio and the kernel."""
    make_dir(folder)
    source = load_workload(WORKLOAD).file.parent / "hunt.c"
    for path in (source, *shared_headers()):
        write_text(folder / path.name, path.read_text(encoding="utf-8"))
    config = bench.builds.kernels[bench.kernel.name].config
    if config is not None:
        write_text(folder / "kernel.config", config.read_text(encoding="utf-8"))
    write_text(folder / SCRIPT, render_script(case, finding, bench.kernel.name, seed))
    (folder / SCRIPT).chmod(0o700)


def render_script(case: Case, finding: Finding, kernel: str, seed: int) -> str:
    """Return the shell script, which builds the load as init of the guest and boots it."""
    words = " \\\n  ".join(qemu_words(case.machine, seed))
    return f"""#!/bin/sh
# {finding.prop}: {_plain(finding.text)}
# Seen on {_plain(kernel)}. Say where its bzImage is, built with kernel.config:
#   KERNEL=path/to/bzImage ./{SCRIPT}
# At the end of each load a line for each process says on which CPU it was last, and its CPU time.
set -e
cd "$(dirname "$0")"
gcc -O2 -static -I. -o init hunt.c -lpthread
printf %s {shlex.quote(render_loads(case.loads))} >loads
printf 'init\\nloads\\n' | cpio -o -H newc --quiet >initramfs
exec qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -serial stdio \\
  {words} \\
  -kernel "${{KERNEL:?}}" -initrd initramfs \\
  -append "console=ttyS0 rdinit=/init quiet sched_verbose lpj=4000000 no_timer_check tsc=reliable"
"""


def qemu_words(machine: Topology, seed: int) -> list[str]:
    """Return the QEMU options of a machine in `icount` mode, each with its value."""
    shape, shift = machine.packaging, usual_shift("icount", machine)
    words = [
        "-machine q35 -cpu max,la57=off",
        f"-accel tcg,thread=single -icount shift={shift},sleep=off -seed {seed}",
        f"-smp {shape.cpus},sockets={shape.sockets},dies={shape.dies},cores={shape.cores},"
        f"threads={shape.threads}",
        f"-m {sum(map(backed_mib, machine.nodes))}",
    ]
    for node in machine.nodes:
        ranges = format_cpulist(node.cpus).split(",") if node.cpus else []
        cpus = "".join(f",cpus={cpu_range}" for cpu_range in ranges)
        words.append(f"-object memory-backend-ram,id=m{node.id},size={backed_mib(node)}M")
        words.append(f"-numa node,nodeid={node.id},memdev=m{node.id}{cpus}")
    for source, row in enumerate(machine.distances):
        for target, value in enumerate(row):
            if source != target:
                words.append(f"-numa dist,src={source},dst={target},val={value}")
    return words


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
