"""A case: a machine and the loads that it is given, one after the other in one boot."""

import hashlib
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.document import check_document
from numalab.errors import UserError
from numalab.hunt.load import Load, render_loads
from numalab.topology.export import render_topology_file
from numalab.topology.file_format import TopologyFile
from numalab.topology.file_rules import build_topology
from numalab.topology.limits import RuleBroken
from numalab.topology.topology import Topology

NAME = "hunted"  # what each machine is called in results


@dataclass(frozen=True)
class Case:
    """A machine and loads. Equal cases have equal texts, and so the same runs."""

    machine: Topology
    loads: tuple[Load, ...]

    @property
    def text(self) -> str:
        """All of it, as text: the topology file and the loads."""
        return f"{render_topology_file(self.machine)}\n{render_loads(self.loads)}\n"

    def key(self, *also: str) -> str:
        """Return what tells this case, and whatever else is given, from any other."""
        return hashlib.sha256("\0".join([self.text, *also]).encode()).hexdigest()[:16]

    def only(self, *loads: Load) -> "Case":
        """Return the machine with these loads."""
        return replace(self, loads=loads)


def machine_of(text: str) -> Topology | None:
    """Read the text of a topology file; None where it breaks a rule."""
    path = Path(f"{NAME}.toml")
    try:
        document = check_document(tomllib.loads(text), TopologyFile, path)
        return build_topology(NAME, document)
    except (UserError, RuleBroken, tomllib.TOMLDecodeError):
        return None
