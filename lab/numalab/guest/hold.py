"""The hold: the moment between boot and job in which a guest can be saved.

`numalab-start hold` keeps the first CPU busy there (images/src/numalab-start.c). A guest that is
stopped while only that CPU runs, and runs in its loop, goes on as if it had never been stopped: in
`icount` mode to the last instruction, because no other CPU is waiting for its turn.
"""

import re

# Registers of the CPU in that loop.
_HELD = {"R12": 0x6E756D616C616221, "R13": 0x7374617274206D65}
_CPU = re.compile(r"^CPU#(\d+)\r?$", re.M)
_REGISTER = re.compile(r"\b(R1[234]|CPL|HLT) ?=([0-9a-f]+)")


def turns_left(registers: str, cpu_count: int) -> int | None:
    """Return the turns of the loop that are left; None for a guest that is not held.

    It is held while its first CPU is in the loop, and all others are halted. `registers` is what
    QEMU's monitor prints for `info registers -a`.
    """
    parts = _CPU.split(registers)
    numbers, texts = parts[1::2], parts[2::2]
    if [int(number) for number in numbers] != list(range(cpu_count)):
        return None
    cpus = [{name: int(value, 16) for name, value in _REGISTER.findall(text)} for text in texts]
    in_loop = cpus[0].get("CPL") == 3 and cpus[0].items() >= _HELD.items()
    if not in_loop or any(cpu.get("HLT") != 1 for cpu in cpus[1:]):
        return None
    return cpus[0].get("R14", 0) & 0xFFFF_FFFF
