"""Imports the test machines that hwloc publishes, and says what became of each.

`python tests/fuzz/hwloc_trees.py hwloc-2.9.0/tests/hwloc`: of hwloc's source (in Debian: `apt-get
source hwloc`) the Linux sysfs trees (`linux/*.tar.bz2`, `x86+linux/*.tar.bz2`) and the XML files
(`xml/*.xml`). Nothing of it is part of this project.
"""

import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from numalab.document import check_document
from numalab.errors import UserError
from numalab.topology.export import render_topology_file
from numalab.topology.file_format import TopologyFile
from numalab.topology.file_rules import build_topology
from numalab.topology.importers.any_format import read_machine
from numalab.topology.importers.imported import Imported
from numalab.topology.predict.prediction import predict


def machines(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each machine and what can be imported of it."""
    for tar in sorted(folder.glob("linux/*.tar.bz2")) + sorted(folder.glob("x86+linux/*.tar.bz2")):
        place = scratch / tar.name
        with tarfile.open(tar) as archive:
            archive.extractall(place)
        system = next(place.glob("**/sys/devices/system"), None)
        yield f"{tar.parent.name}/{tar.name}", system if system is not None else place
    for file in sorted(folder.glob("xml/*.xml")):
        yield f"xml/{file.name}", file


def accepted(imported: Imported) -> None:
    """Check that the file made of a machine reads back, and that the machine can be predicted."""
    table = tomllib.loads(render_topology_file(imported.topology))
    again = build_topology("x", check_document(table, TopologyFile, Path("x")))
    assert again.distances == imported.topology.distances
    assert again.nodes == imported.topology.nodes
    assert again.packaging == imported.topology.packaging, (
        again.packaging,
        imported.topology.packaging,
    )
    predict(again)


def main() -> int:
    """Print one line for each machine, and the figures."""
    figures: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for name, source in machines(Path(sys.argv[1]), Path(scratch)):
            try:
                imported = read_machine(str(source), None, name="x")
                accepted(imported)
            except UserError as error:
                reason = str(error).replace(str(source), "").lstrip(": ")
                print(f"{name}: refused: {reason[:150]}")
                figures["refused"] += 1
                continue
            shape = imported.topology.packaging
            size = f"{len(imported.topology.nodes)} nodes, {imported.topology.cpu_count} CPUs"
            print(
                f"{name}: {size}, "
                f"{shape.sockets}x{shape.dies}x{shape.cores}x{shape.threads} "
                f"{imported.topology.llc}; {'; '.join(imported.notes)[:160]}"
            )
            figures["imported"] += 1
    print(", ".join(f"{count} {what}" for what, count in sorted(figures.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
