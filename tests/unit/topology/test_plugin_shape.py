"""A shape from a plug-in folder outside the package: checked, predicted, drawn, written."""

import os
import subprocess
from pathlib import Path

from support import forked

PLUGIN = '''
from numalab.api import Count, Link, RuleBroken, Shape, register_shape


@register_shape("wheel")
class Wheel(Shape):
    """A hub, and a rim of nodes around it."""

    spokes: Count

    def check(self, nodes: int) -> None:
        if nodes != self.spokes + 1:
            raise RuleBroken("shape.spokes", f"{nodes} nodes are no hub and {self.spokes} spokes")

    def links(self, nodes: int) -> tuple[Link, ...]:
        rim = [(node, node % self.spokes + 1) for node in range(1, nodes)]
        return tuple((0, node) for node in range(1, nodes)) + tuple((min(r), max(r)) for r in rim)
'''
MACHINE = """
summary = "A wheel"
nodes = 6
cpus = 1
memory_mib = 256

[shape]
kind = "wheel"
distances = [10, 16, 22]
spokes = 5
"""


def numalab(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as another program does, with `home` as its lab folder."""
    env = os.environ | {"NUMALAB_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200"}
    return forked.numalab("topology", *words, env=env)


def lab_folder(path: Path) -> Path:
    for name in ("topologies", "kernel-configs", "plugins"):
        (path / name).mkdir()
    (path / "plugins" / "wheel.py").write_text(PLUGIN)
    (path / "topologies" / "wheel-6.toml").write_text(MACHINE)
    return path


def test_a_shape_from_a_plugin(tmp_path: Path) -> None:
    home = lab_folder(tmp_path)
    file = home / "topologies" / "wheel-6.toml"
    assert f"{file}: ok" in numalab(home, "check", str(file)).stdout
    assert "glueless mesh, distances: 10 16 22" in numalab(home, "predict", "wheel-6").stdout
    assert "<svg" in numalab(home, "show", "wheel-6", "--format", "svg").stdout
    assert 'kind = "wheel"' in numalab(home, "show", "wheel-6", "--format", "toml").stdout
    assert '"const": "wheel"' in numalab(home, "schema").stdout


def test_a_shape_may_yield_its_links(tmp_path: Path) -> None:
    home = lab_folder(tmp_path)
    (home / "plugins" / "wheel.py").write_text(PLUGIN.replace("return tuple(", "yield from tuple("))
    text = numalab(home, "show", "wheel-6", "--format", "dot").stdout
    assert text.count(" -- ") == 10


def test_its_own_rules_are_checked(tmp_path: Path) -> None:
    home = lab_folder(tmp_path)
    file = home / "topologies" / "wheel-6.toml"
    file.write_text(MACHINE.replace("spokes = 5", "spokes = 4"))
    result = numalab(home, "check", str(file))
    assert result.returncode == 2
    assert f"{file}: shape.spokes: 6 nodes are no hub and 4 spokes" in result.stdout
