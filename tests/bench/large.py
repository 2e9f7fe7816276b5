"""Makes a long recording out of a small one."""

import mmap
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from numalab.capture.trace_file import CpuData, open_trace

_PLACE = struct.Struct("<IQQ")  # a CPU, and the offset and size of its pages (option BUFFER)
_PIECE = 1 << 12  # pages that are written at a time


def repeat(source: Path, target: Path, times: int) -> None:
    """Write a trace.dat in which the pages of `source` come `times` times, each time later.

    `source` is of version 7, not packed. Raises ValueError for another one.
    """
    with source.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    trace = open_trace(data, source)
    if trace.version != 7 or any(cpu.compressed for cpu in trace.cpus):
        raise ValueError(f"{source} is packed, or not of version 7")
    size = trace.layout.page_bytes
    pages = [
        np.frombuffer(data, np.uint8, cpu.size // size * size, cpu.offset).reshape(-1, size)
        for cpu in trace.cpus
    ]
    # The first 8 bytes of a page are its time; the events of the last one end within 5 s.
    times_of = [part[:, :8].copy().view("<i8")[:, 0] for part in pages if len(part)]
    length = max(part[-1] for part in times_of) - min(part[0] for part in times_of) + 5_000_000_000
    head = bytearray(data)  # with pages that nothing names any more: the options come after them
    head += bytes(-len(head) % size)
    begin = len(head)
    for cpu, part in zip(trace.cpus, pages, strict=True):
        moved = replace(cpu, offset=begin, size=part.size * times)
        head = head.replace(_place(cpu), _place(moved))
        begin += moved.size
    # The kernel's counts are those of the source.
    head = head.replace(b"read events: ", b"seen events: ")
    with target.open("wb") as out:
        out.write(head)
        for part in pages:
            for number in range(times):
                for start in range(0, len(part), _PIECE):
                    piece = part[start : start + _PIECE].copy()
                    piece[:, :8].view("<i8")[:] += number * length
                    out.write(piece.data)


def _place(cpu: CpuData) -> bytes:
    return _PLACE.pack(cpu.cpu, cpu.offset, cpu.size)
