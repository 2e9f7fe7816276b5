"""Machines of a Python program: wrong input is refused before anything is built."""

from pathlib import Path
from typing import Any, cast

import pytest

from numalab.errors import UserError
from numalab.programs.compare_programs import compare_programs
from numalab.programs.machines import LabMachine, machine


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
    with pytest.raises(UserError, match="packages: is one string; write a list of words, such as"):
        machine("ring-4", packages="numactl")
    assert not list(tmp_path.rglob("*.erofs"))


def test_one_string_is_no_list_of_words() -> None:
    made = LabMachine(*cast("tuple[Any, Any, Any, Any, Any]", (None,) * 5))
    with pytest.raises(UserError, match=r"add: is one string; .* such as \['/etc/hosts'\]"):
        made.run(["true"], add="/etc/hosts")
    with pytest.raises(UserError, match=r"timeout: -1 is not above 0 s"):
        made.run(["true"], timeout=-1)
    with pytest.raises(UserError, match=r"env: 'A=B' is not a name of a variable"):
        made.run(["true"], env={"A=B": "c"})
    with pytest.raises(UserError, match="words: is one string"):
        compare_programs(made, "true", "true", seeds=3)
