"""The guest kernel's command line. Pure; every word says why it is there.

Reference: Documentation/admin-guide/kernel-parameters.txt, Linux 6.12.
"""

import re

from numalab.errors import UserError
from numalab.machine.memory import Region
from numalab.machine.model import DETERMINISTIC, Mode

TRACE_INSTANCE = "lab"
_LONGEST = 2047  # COMMAND_LINE_SIZE on x86 is 2048, with the final NUL


# What a real processor has to be measured for, and QEMU's is known for.
_EMULATED = (
    # At CONFIG_HZ=250 and 1 GHz, which is what TCG's TSC has in icount mode: saves the calibration
    # of each CPU, which on a busy host takes most of the boot.
    "lpj=4000000",
    # No check of the timer interrupt's wiring.
    "no_timer_check",
)
# All vCPUs read the same clock, which makes sched_clock() stable. Not in tcg mode: its TSC is the
# host's, and on a busy host the guest measures it wrongly (seen: 690 MHz instead of 2600). Without
# this word the kernel finds out, and takes another clock.
_ONE_CLOCK = ("tsc=reliable",)


# Our own kernels are built without them; before 6.9 that could not be said for all of them.
_UNMITIGATED = ("mitigations=off",)
# A kernel at a random place takes memory from a node that only chance knows.
_IN_PLACE = ("nokaslr",)
_RENAMED = (5, 13)  # sched_debug became sched_verbose (9406415f46f6)
_WITHOUT_MITIGATIONS = (6, 9)  # CONFIG_CPU_MITIGATIONS


def _version(release: str) -> tuple[int, ...]:
    """Return major and minor of a release, (999,) where it does not say."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (999,)


def render_cmdline(
    region: Region | None,
    *,
    mode: Mode,
    unwanted: tuple[Region, ...] = (),
    extra: tuple[str, ...] = (),
    release: str = "",
    modular: bool = False,
) -> str:
    """Render the command line of a guest whose trace instance lies in `region`.

    `release` is the kernel's; without one it is a recent kernel. `modular`: it is a distribution's,
    whose configuration is not ours.

    `unwanted` is memory that the kernel must leave alone (`unwanted_regions`). `extra` words come
    last, so that they win. Raises UserError for words the kernel would not read as one word, and
    for a line that is too long.
    """
    words = [
        "console=ttyS0",
        "root=/dev/pmem0",  # the first NVDIMM
        "rootwait=20",  # NVDIMMs are probed asynchronously
        "rootfstype=erofs",
        "ro",
        "init=/usr/lib/numalab/init",
        # An oops is a panic: a guest that goes on after one proves nothing.
        "oops=panic",
        # After a panic the guest stays as it is; pvpanic tells the host, which ends it.
        "panic=0",
        # Prints the sched domains and groups at boot; reports show them.
        "sched_debug" if _version(release) < _RENAMED else "sched_verbose",
    ]
    if modular or _version(release) < _WITHOUT_MITIGATIONS:
        words += _UNMITIGATED
    if modular:
        words += _IN_PLACE
    if mode != "kvm":
        words += _EMULATED
    if mode in DETERMINISTIC:
        words += _ONE_CLOCK
    words += [f"memmap={hidden.size:#x}${hidden.address:#x}" for hidden in unwanted]
    if region is not None:
        words += [
            f"memmap={region.size:#x}${region.address:#x}",
            f"trace_instance={TRACE_INSTANCE}@{region.address:#x}:{region.size:#x}",
        ]
    for word in extra:
        if not word or not word.isprintable() or (" " in word and '"' not in word):
            raise UserError(f"{word!r} is not one word of a command line", key="cmdline")
    line = " ".join([*words, *extra])
    if len(line) > _LONGEST:
        raise UserError(f"the kernel command line has {len(line)} characters, {_LONGEST} fit")
    return line
