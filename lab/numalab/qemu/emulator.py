"""The QEMU program: its version, and a wrapper with all vCPUs in one thread."""

import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from numalab.errors import HostError
from numalab.files import replacing
from numalab.places import cache_dir
from numalab.process import find_program, run


@cache
def qemu_version(program: Path | None) -> tuple[int, ...]:
    """Return major and minor version of a program, None for the host's QEMU; () where unknown.

    Cached: the program does not change while this process runs.
    """
    try:
        program = program or find_program("qemu-system-x86_64", "qemu-system-x86")
        text = run([program, "--version"], check=False, timeout=20).stdout
    except HostError:  # the start of the guest raises the error
        return ()
    return parse_qemu_version(text)


def parse_qemu_version(text: str) -> tuple[int, ...]:
    """Parse what `--version` prints, or a version, into major and minor; () where it says none."""
    match = re.search(r"(?:version |^)(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else ()


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
