"""Archives of strangers: names that lead elsewhere, headers that lie, bytes that are spoiled.

Each case spoils an archive of small results in some of the ways below, and imports it. It is
refused in one message and leaves nothing, or all of it is in the new folder.
"""

import io
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import zstandard

from numalab.errors import LabError
from numalab.results.archive import import_results
from numalab.results.layout import is_of_unfinished
from numalab.results.stored import is_plain
from support.example_results import copy_example

CASES, FEW = 2000, 40
_MOST_MEMORY = 96 << 20
_FORMATS: list[Literal[1, 2]] = [1, 2]  # tarfile.GNU_FORMAT, tarfile.PAX_FORMAT
_NAMES = [
    "../evil", "/tmp/evil", "a/../../b", "a\nb", "\x1b[2J", ".hidden", "runs", "plan.json/x",
    "x" * 300, "x.running/y", "a/" * 30 + "b", "", ".", "..", "é", "\udce9",
    "runs/a/b", "runs/a", "C:\\x", "-rf",
]  # fmt: skip
_KINDS = [
    tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE,
    tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK, tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.XGLTYPE, b"Z",
]  # fmt: skip
_SIZES = [0, 1, 511, 512, 513, 1 << 20, 1 << 31, 3 << 30, 5 << 30, 1 << 62]

Members = list[tuple[tarfile.TarInfo, bytes]]


def case(seed: int, scratch: Path) -> str:
    """Spoil an archive and import it."""
    rng = random.Random(seed)
    members = [(_info(name), data) for name, data in _whole()]
    for _ in range(rng.choice([0, 1, 1, 2])):
        rng.choice(_MEMBERS)(rng, members)
    raw = bytearray(_packed(members, rng.choice(_FORMATS)))
    if rng.random() < 0.4:
        rng.choice(_BYTES)(rng, raw)
    packed = bytearray(zstandard.compress(bytes(raw), 3))
    if rng.random() < 0.2:
        rng.choice(_BYTES)(rng, packed)
    archive, target = scratch / "a.tar.zst", scratch / "there" / "results"
    archive.write_bytes(packed)
    (scratch / "mine").write_text("mine")
    tracemalloc.start()
    try:
        import_results(archive, target)
        outcome = "imported"
    except LabError as error:
        text = str(error)
        assert len(text) < 2000
        assert all(char.isprintable() or char == "\n" for char in text.replace("\udce9", ""))
        outcome = "refused"
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < _MOST_MEMORY
    unpacked = scratch / "there"
    assert {path.name for path in scratch.iterdir()} <= {"a.tar.zst", "mine", "there"}
    left = list(unpacked.rglob("*")) if unpacked.is_dir() else []
    assert all(not path.is_symlink() and (path.is_file() or path.is_dir()) for path in left)
    places = [path.relative_to(unpacked) for path in left if path.is_file()]
    assert all(all(map(is_plain, place.parts)) or is_of_unfinished(place) for place in places)
    assert bool(left) == (outcome == "imported")
    return outcome


@cache
def _whole() -> tuple[tuple[str, bytes], ...]:
    import tempfile  # noqa: PLC0415 - once

    with tempfile.TemporaryDirectory() as scratch:
        folder = copy_example(Path(scratch) / "results")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return tuple((str(p.relative_to(folder)), p.read_bytes()[: 64 << 10]) for p in files)


def _info(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def _packed(members: Members, form: Literal[1, 2]) -> bytes:
    """Write an archive as one that lies would: sizes are those of the header, if it has one."""
    raw = io.BytesIO()
    for info, data in members:
        info.size = info.size or len(data)
        raw.write(info.tobuf(form, "utf-8", "surrogateescape"))
        raw.write(data + bytes(-len(data) % 512))
    raw.write(bytes(1024))
    return raw.getvalue()


def _rename(rng: random.Random, members: Members) -> None:
    rng.choice(members)[0].name = rng.choice(_NAMES)


def _add(rng: random.Random, members: Members) -> None:
    info = _info(rng.choice(_NAMES))
    info.type, info.linkname = rng.choice(_KINDS), rng.choice(["", "/etc/passwd", "../mine"])
    members.insert(rng.randrange(len(members) + 1), (info, rng.randbytes(rng.choice([0, 9, 700]))))


def _kind(rng: random.Random, members: Members) -> None:
    rng.choice(members)[0].type = rng.choice(_KINDS)


def _size(rng: random.Random, members: Members) -> None:
    info = rng.choice(members)[0]
    info.size = rng.choice(_SIZES)
    if rng.random() < 0.5:
        info.type = rng.choice(_KINDS)


def _twice(rng: random.Random, members: Members) -> None:
    members.insert(rng.randrange(len(members) + 1), rng.choice(members))


def _headers(rng: random.Random, members: Members) -> None:
    """Add extended headers: sizes and names beside the header's own, sparse maps."""
    keys = ["path", "linkpath", "size", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.major"]
    values = ["../evil", "9" * 30, "-1", "0,1,2", "1", "x" * 5000, "\x1b", ""]
    info = rng.choice(members)[0]
    info.pax_headers = {rng.choice(keys): rng.choice(values) for _ in range(3)}


def _drop(rng: random.Random, members: Members) -> None:
    members.remove(rng.choice(members))


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 20])):
        data[rng.randrange(len(data))] = rng.randrange(256)


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _header_bytes(rng: random.Random, data: bytearray) -> None:
    """Spoil fields of a header, with its checksum made right."""
    at = rng.randrange(0, max(1, len(data) // 512)) * 512
    field, size = rng.choice(
        [(0, 100), (100, 8), (124, 12), (148, 8), (156, 1), (257, 8), (345, 155)]
    )
    data[at + field : at + field + size] = rng.randbytes(size)
    header = data[at : at + 512]
    header[148:156] = b" " * 8
    data[at + 148 : at + 156] = f"{sum(header):06o}\0 ".encode()


_MEMBERS: list[Callable[[random.Random, Members], None]] = [
    _rename, _add, _add, _kind, _size, _twice, _headers, _drop,
]  # fmt: skip
_BYTES: list[Callable[[random.Random, bytearray], None]] = [
    _flip,
    _cut,
    _header_bytes,
    _header_bytes,
]
