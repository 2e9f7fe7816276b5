"""Machines of a Python program: wrong input is refused before anything is built."""

from pathlib import Path
from typing import Any, cast

import pytest

from numalab.errors import UserError, WorkloadFailed
from numalab.guest.session import CommandEnd
from numalab.programs.compare_programs import compare_programs
from numalab.programs.machines import GuestSession, LabMachine, machine
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology


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


class FillingSession:
    """In place of a guest: the first command fills the job disk, the second one leaves nothing."""

    alive = True

    def __init__(self) -> None:
        self.ends = [CommandEnd(1, (), "the job disk is full"), CommandEnd(0, ("a note",), "")]

    def run(self, _script: str, _files: object, into: RunDir, **_: object) -> CommandEnd:
        into.returned.mkdir(parents=True)
        end = self.ends.pop(0)
        if end.full:
            into.stdout.write_text("printed")
            into.trace.write_bytes(b"cut")
            (into.returned / "big").write_bytes(b"x")
        return end


def test_a_command_that_failed_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    guest = GuestSession(
        cast("Any", FillingSession()), tmp_path, load_topology("ring-2"), RunDir(tmp_path), True
    )
    with pytest.raises(WorkloadFailed, match=r"disk is full\n.*exited with 1\nstdout: printed"):
        guest.run(["/dev/null"])
    result = guest.run(["/dev/null"])
    assert (result.status, dict(result.files), result.notes) == (0, {}, ("a note",))
    assert [dict(result.files) for result in guest.results] == [{"big": b"x"}, {}]
