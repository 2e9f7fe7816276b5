"""Machines of a Python program: wrong input is refused before anything is built."""

from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.programs.machines import machine


def test_wrong_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="'rign-4'; did you mean ring-4"):
        machine("rign-4")
    with pytest.raises(UserError, match="debian-6"):
        machine("ring-4", kernel="debian-6.21")
    with pytest.raises(UserError, match=r"--package: 'A b' is not a Debian package name"):
        machine("ring-4", packages=["A b"])
    with pytest.raises(UserError, match="no image 'bas'"):
        machine("ring-4", image="bas")
    assert not list(tmp_path.rglob("*.erofs"))
