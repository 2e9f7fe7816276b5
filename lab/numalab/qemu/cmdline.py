"""The guest kernel's command line, with the reason of each word. Pure.

Reference: Documentation/admin-guide/kernel-parameters.txt, Linux 6.12.
"""

import re
from collections.abc import Iterable, Mapping

from numalab.capture.spec import TRACE_INSTANCE
from numalab.errors import UserError
from numalab.machine.memory import Region
from numalab.machine.model import DETERMINISTIC, Mode

_LONGEST = 2047  # COMMAND_LINE_SIZE on x86 is 2048, with the final NUL


# Properties of QEMU's processor, which a kernel measures on a real one.
_EMULATED = (
    # At CONFIG_HZ=250 and 1 GHz, the frequency of TCG's TSC in icount mode. Saves the calibration
    # of each CPU, which on a busy host takes most of the boot.
    "lpj=4000000",
    # No check of the timer interrupt's wiring.
    "no_timer_check",
)
# All vCPUs read the same clock, which makes sched_clock() stable. Not in tcg mode: its TSC is the
# host's, and on a busy host the guest measures it wrongly (seen: 690 MHz instead of 2600). Without
# this word the kernel finds out, and takes another clock.
_ONE_CLOCK = ("tsc=reliable",)


# Turns of the loop in which init holds the guest, so that the host can save it there
# (images/src/numalab-start.c). None in kvm, where the placement is proved from the first
# instruction on. Where time is counted in instructions, the loop ends before the next tick.
HOLD_TURNS: Mapping[Mode, int] = {"icount": 24_000, "tcg": 96_000, "timed": 24_000}

# numalab builds kernels without mitigations; before 6.9 no option disables all of them.
_UNMITIGATED = ("mitigations=off",)
# A kernel at a random address takes memory from a random node.
_IN_PLACE = ("nokaslr",)
_RENAMED = (5, 13)  # sched_debug became sched_verbose (9406415f46f6)
_EROFS = (5, 4)  # before, images are ext4 (numalab.image.ext4_artifact)
_WITHOUT_MITIGATIONS = (6, 9)  # CONFIG_CPU_MITIGATIONS


def _version(release: str) -> tuple[int, ...]:
    """Return major and minor of a release, (999,) for an unknown one."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (999,)


def check_words(words: Iterable[str], key: str = "cmdline") -> None:
    """Raise UserError for a word that the kernel would split."""
    for word in words:
        if not word or not word.isprintable() or (" " in word and '"' not in word):
            raise UserError(f"{word!r} is not one word of a command line", key=key)


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

    `release` is the kernel's, by default that of a recent kernel. `modular`: a distribution built
    the kernel. `unwanted` is memory that the kernel must not use (`unwanted_regions`). `extra`
    words come last, so that they override others. Raises UserError for words that the kernel would
    split, and for a line that is too long.
    """
    words = [
        "console=ttyS0",
        "root=/dev/pmem0",  # the first NVDIMM
        "rootwait=20",  # NVDIMMs are probed asynchronously
        "rootfstype=ext4" if _version(release) < _EROFS else "rootfstype=erofs",
        "ro",
        "init=/usr/lib/numalab/init",
        # An oops is a panic: results of a guest after an oops are invalid.
        "oops=panic",
        # After a panic the guest stops; pvpanic notifies the host, which ends it.
        "panic=0",
        # Prints the sched domains and groups at boot, for reports.
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
    if mode in HOLD_TURNS:
        words += [f"NUMALAB_HOLD={HOLD_TURNS[mode]}"]  # the kernel gives it to init
    words += [f"memmap={hidden.size:#x}${hidden.address:#x}" for hidden in unwanted]
    if region is not None:
        words += [
            f"memmap={region.size:#x}${region.address:#x}",
            f"trace_instance={TRACE_INSTANCE}@{region.address:#x}:{region.size:#x}",
        ]
    check_words(extra)
    line = " ".join([*words, *extra])
    if len(line) > _LONGEST:
        raise UserError(f"the kernel command line has {len(line)} characters, {_LONGEST} fit")
    return line
