"""The memory model begins anew in the hold of a guest: nothing from before has an effect."""

import random
from pathlib import Path

import pytest

from support.memory_core import NS, MemoryCore, build_core
from unit.emulator.test_memory_plugin import CPUS, LINES, NODES, parameters

MS = 1_000_000 * NS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_core(tmp_path_factory.mktemp("core"))


def costs(core: MemoryCore, seed: int, begin_ps: int) -> list[int]:
    """Let all CPUs switch tasks, fetch, write and share lines; return what each access costs."""
    chance = random.Random(seed)
    core.now_ps = begin_ps
    core.advance(begin_ps)
    paid = []
    for step in range(4_000):
        cpu, line = chance.randrange(CPUS), chance.choice((chance.randrange(NODES * LINES), 5, 70))
        if step % 100 == 0:
            core.switch(cpu, 0xFFFF_8880_0000_0000 + chance.randrange(9), core.now_ps)
            core.advance(core.now_ps)
        if step % 700 == 0:
            core.mark(cpu)
            core.barrier(cpu)
        paid.append((core.store if chance.random() < 0.4 else core.load)(cpu, line))
    return paid


def tables(folder: Path) -> tuple[Path, Path, Path]:
    folder.mkdir()
    return folder / "counts", folder / "traffic", folder / "places"


def test_a_memory_that_began_anew_does_what_a_new_one_does(library: Path, tmp_path: Path) -> None:
    old_tables, new_tables = tables(tmp_path / "old"), tables(tmp_path / "new")
    old = MemoryCore(library, parameters(), nodes=NODES, tables=old_tables[:2])
    old.count_places(old_tables[2])
    before = costs(old, 1, 3 * MS)
    again = costs(old, 2, 2000 * MS)
    old.restart()
    new = MemoryCore(library, parameters(), nodes=NODES, tables=new_tables[:2])
    new.count_places(new_tables[2])
    assert costs(old, 2, 5000 * MS) == costs(new, 2, 5000 * MS) != again
    assert before != again
    for core in (old, new):
        core.finish()
    written = [path.read_bytes() for path in new_tables]
    assert [path.read_bytes() for path in old_tables] == written
    assert all(len(data) > 64 for data in written)
