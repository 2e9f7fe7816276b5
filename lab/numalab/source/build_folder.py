"""A folder in which something is built for minutes, and which a later build goes on with."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def under_way(out: Path) -> Iterator[None]:
    """Mark `out` while a build works in it; start afresh where the mark of a killed build is left.

    An interrupted make or ninja removes its half-written files. One that was killed cannot, and
    would take them for finished ones the next time.
    """
    mark = out / "numalab.building"
    if mark.exists():
        shutil.rmtree(out)
    out.mkdir(exist_ok=True)
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)
