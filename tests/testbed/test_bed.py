"""The bed's own machinery, without a host."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import bed
from testbed.bed import BedFailed, running


def boots_ending(monkeypatch: pytest.MonkeyPatch, consoles: Sequence[str]) -> list[str]:
    """Let boots fail with these consoles, one after the other; an empty one is a host that is up.

    Returns what became of them.
    """
    told: list[str] = []
    rest = list(consoles)

    @contextmanager
    def booted(_argv: Sequence[str], _folder: Path) -> Iterator[str]:
        console = rest.pop(0)
        if console:
            told.append("failed")
            raise BedFailed(f"QEMU ended during the boot\n{console}")
        yield "a bed"
        told.append("ended")

    monkeypatch.setattr(bed, "_booted", booted)
    return told


@pytest.mark.parametrize("oopses", [0, 1, 2])
def test_a_host_that_oopses_is_booted_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, oopses: int
) -> None:
    told = boots_ending(monkeypatch, [*["Oops: int3: 0000"] * oopses, ""])
    with running((), tmp_path) as up:
        assert str(up) == "a bed" and told == ["failed"] * oopses
    assert told == [*["failed"] * oopses, "ended"]


@pytest.mark.parametrize(
    ("consoles", "boots"), [(["Oops: int3: 0000"] * 5, 3), (["VFS: cannot open root", ""], 1)]
)
def test_a_host_that_cannot_come_up_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, consoles: list[str], boots: int
) -> None:
    told = boots_ending(monkeypatch, consoles)
    with pytest.raises(BedFailed, match=consoles[0]), running((), tmp_path):
        pass
    assert told == ["failed"] * boots


def test_a_test_that_fails_with_an_oops_is_no_reason_to_boot_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = boots_ending(monkeypatch, ["", ""])
    with pytest.raises(BedFailed, match="later"), running((), tmp_path):
        raise BedFailed("Oops: later")
    assert told == []
