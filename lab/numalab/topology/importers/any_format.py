"""Imports a machine from any supported format, which it detects."""

from pathlib import Path

from numalab.errors import UserError
from numalab.files import read_bounded
from numalab.topology.importers.hwloc import parse_hwloc
from numalab.topology.importers.imported import MAX_TEXT, Imported
from numalab.topology.importers.numactl import parse_numactl
from numalab.topology.importers.sysfs import read_sysfs


def read_machine(source: str, text: bytes | None, *, name: str) -> Imported:
    """Import a sysfs tree (a folder), hwloc's XML, or the output of `numactl -H`.

    `text` is the content of `source` (from stdin), or None to read the file or folder. Raises
    UserError for a source that cannot be read or has no such format.
    """
    path = Path(source)
    if text is None and path.is_dir():
        return read_sysfs(path, name=name, source=f"sysfs of {source}")
    if text is None:
        text = read_bounded(path, MAX_TEXT)
    if len(text) > MAX_TEXT:
        raise UserError(f"larger than {MAX_TEXT} bytes", file=path)
    decoded = text.decode("utf-8-sig", "replace")
    if decoded.lstrip().startswith("<"):
        return parse_hwloc(decoded, name=name, source="hwloc XML", file=path)
    return parse_numactl(decoded, name=name, source="numactl -H", file=path)
