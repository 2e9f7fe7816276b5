"""A case: a machine and the loads that run on it, one after the other in one boot."""

import hashlib
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.document import check_document
from numalab.errors import UserError
from numalab.hunt.loads.load import Load
from numalab.hunt.loads.load_text import render_loads
from numalab.topology.export import render_topology_file
from numalab.topology.file_format import TopologyFile
from numalab.topology.file_rules import build_topology
from numalab.topology.limits import RuleBroken
from numalab.topology.topology import Topology

NAME = "hunted"  # the name of every machine in results


@dataclass(frozen=True)
class Case:
    """A machine and loads. Equal cases have equal texts, and so equal runs."""

    machine: Topology
    loads: tuple[Load, ...]

    @property
    def text(self) -> str:
        """The topology file and the loads as text."""
        return f"{render_topology_file(self.machine)}\n{render_loads(self.loads)}\n"

    def key(self, *also: str) -> str:
        """Return a digest of this case and of further texts."""
        return hashlib.sha256("\0".join([self.text, *also]).encode()).hexdigest()[:16]

    def with_machine_changes_last(self) -> "Case":
        """Return the case with its loads in this order, but those that change the machine last."""
        return replace(self, loads=tuple(sorted(self.loads, key=lambda load: load.changes_machine)))

    def only(self, *loads: Load) -> "Case":
        """Return the machine with these loads."""
        return replace(self, loads=loads)


def machine_of(text: str) -> Topology | None:
    """Return the machine of a topology file; None if the text breaks a rule."""
    path = Path(f"{NAME}.toml")
    try:
        document = check_document(tomllib.loads(text), TopologyFile, path)
        return build_topology(NAME, document)
    except (UserError, RuleBroken, tomllib.TOMLDecodeError):
        return None
