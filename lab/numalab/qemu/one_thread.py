"""QEMU as `tcg` mode starts it: all vCPUs in one thread, which libvirt has no element for.

With a thread for each vCPU, QEMU 7.2 now and then runs stale code where the guest's kernel patches
itself: one thread translates an instruction while another one replaces it, and what was translated
is kept (2 of 37 boots that recorded events ended in "Oops: int3"; with one thread none of 128). A
boot also takes half the CPU time, because no thread waits for another.
"""

from contextlib import suppress
from pathlib import Path

from numalab.files import replacing
from numalab.places import cache_dir
from numalab.process import find_program

# `tcg` as a word of its own is what libvirt gives to -accel, and QEMU takes its first -accel.
_SCRIPT = """\
#!/bin/sh
# Written by numalab: QEMU with all vCPUs in one thread, for its mode tcg.
for word; do
    shift
    [ "$word" = tcg ] && word=tcg,thread=single
    set -- "$@" "$word"
done
exec {qemu} "$@"
"""


def one_thread_emulator() -> Path:
    """Return a program that is QEMU, but runs all vCPUs in one thread; written where it is missing.

    It stays as it is, because libvirt asks every new one what it can do, which takes a second.
    Raises HostError where there is no QEMU.
    """
    text = _SCRIPT.format(qemu=find_program("qemu-system-x86_64", "qemu-system-x86"))
    path = cache_dir("libvirt") / "qemu-one-thread"
    with suppress(OSError):
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return path
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o700)
    return path
