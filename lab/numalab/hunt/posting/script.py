"""The shell script of a finding: it boots the reproducer in QEMU, without numalab."""

import shlex
from dataclasses import dataclass

from numalab.cpulist import format_cpulist
from numalab.guest.console import printable
from numalab.hunt.case import Case
from numalab.hunt.loads.load_text import render_loads
from numalab.hunt.posting.program import PROGRAM
from numalab.hunt.property import DOMAINS, LOST, SPLAT
from numalab.machine.memory import backed_mib
from numalab.machine.model import usual_shift
from numalab.topology.topology import Topology

SCRIPT = "reproduce.sh"
_COMMAND_LINE = (
    "console=ttyS0 rdinit=/init oops=panic panic=-1 sched_verbose lpj=4000000 no_timer_check"
    " tsc=reliable"
)
# These are about the kernel's log, which the script prints whole.
IN_LOG = frozenset({LOST, SPLAT, DOMAINS})

# The init of the guest: what the reproducer finds on a running system, and the end.
_INIT = f"""\
gcc -O2 -static -o "$work/reproducer" {PROGRAM}
gcc -O2 -static -o "$work/init" -x c - <<'END'
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{{
	mkdir("/dev", 0755);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("none", "/dev", "devtmpfs", 0, 0);
	mount("none", "/proc", "proc", 0, 0);
	mount("none", "/sys", "sysfs", 0, 0);
	for (int i = 0; i < 3; i++)
		dup2(open("/dev/console", O_RDWR), i);
	if (write(open("/proc/sys/kernel/numa_balancing", O_WRONLY), "0", 1) != 1)
		sleep(0); /* a kernel without it */
	if (!fork())
		execl("/reproducer", "reproducer", (char *)0);
	while (wait(0) > 0)
		;
	reboot(RB_POWER_OFF);
}}
END
(cd "$work" && touch -d @0 init reproducer &&
  printf 'init\\nreproducer\\n' | cpio -o -H newc --reproducible --quiet >initramfs)"""


@dataclass(frozen=True)
class Statement:
    """What a script says of itself: the violated property, the observation, and the kernel."""

    prop: str
    text: str
    kernel: str
    seed: int


def render_script(case: Case, statement: Statement, *, short: bool) -> str:
    """Return the shell script, which builds and boots the reproducer.

    `short`: the reproducer is the C file of `numalab.hunt.posting.program`; else it is numalab's
    driver, which reads the load from a file.
    """
    words = " \\\n  ".join(qemu_words(case.machine))
    return f"""#!/bin/sh
# {printable(statement.prop)}: {printable(statement.text)}
# Seen on {printable(statement.kernel)}. Say where its bzImage is, built with kernel.config:
#   KERNEL=path/to/bzImage ./{SCRIPT}
# QEMU=path names another QEMU, SEED=number another seed, QEMU_OPTIONS further options.
set -e
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
{_INIT if short else _driver(case)}
# shellcheck disable=SC2086
"${{QEMU:-qemu-system-x86_64}}" -nodefaults -no-user-config -display none -no-reboot \\
  -serial stdio -rtc base=2026-01-01,clock=vm ${{QEMU_OPTIONS:-}} \\
  -seed "${{SEED:-{statement.seed}}}" \\
  {words} \\
  -kernel "${{KERNEL:?}}" -initrd "$work/initramfs" \\
  -append "{_COMMAND_LINE} {"ignore_loglevel" if statement.prop in IN_LOG else "quiet"}"
"""


def _driver(case: Case) -> str:
    return f"""\
# At the end of each load a line for each process says on which CPU it was last, and its CPU time.
gcc -O2 -static -I. -o "$work/init" hunt.c -lpthread
printf %s {shlex.quote(render_loads(case.loads))} >"$work/loads"
(cd "$work" && touch -d @0 init loads &&
  printf 'init\\nloads\\n' | cpio -o -H newc --reproducible --quiet >initramfs)"""


def qemu_words(machine: Topology) -> list[str]:
    """Return the QEMU options of a machine in `icount` mode, each with its value, but the seed."""
    shape, shift = machine.packaging, usual_shift("icount", machine)
    words = [
        "-machine q35 -cpu max,la57=off",
        f"-accel tcg,thread=single -icount shift={shift},sleep=off",
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
