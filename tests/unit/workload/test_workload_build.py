from pathlib import Path

import pytest

from numalab.errors import BuildError, UserError
from numalab.process import run
from numalab.topology.load import load_topology
from numalab.workload.workload import list_workloads, load_workload, resolve
from numalab.workload.workload_files import build_workload


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "mine"
    made.mkdir()
    (made / "workload.toml").write_text("")
    (made / "go").write_text("#!/bin/sh\n")
    (made / "ask.c").write_text(
        '#define _GNU_SOURCE\n#include "numalab.h"\n#include "own.h"\n'
        "int main(void) { return OWN; }\n"
    )
    (made / "own.h").write_text("#define OWN 7\n")
    return made


def test_a_c_file_becomes_a_program_and_a_script_stays(folder: Path, tmp_path: Path) -> None:
    built = build_workload(folder)
    assert sorted(built) == ["ask", "go"]
    assert built["go"] == b"#!/bin/sh\n"
    program = tmp_path / "ask"
    program.write_bytes(built["ask"])
    program.chmod(0o755)
    assert run([program], check=False).returncode == 7
    assert str(tmp_path).encode() not in built["ask"]


@pytest.mark.parametrize("name", ["own.h", "own.inc"])
@pytest.mark.parametrize("is_beside", [False, True])
def test_an_included_file_that_changes_makes_another_program(
    folder: Path, tmp_path: Path, name: str, is_beside: bool
) -> None:
    own = folder / name
    own.write_text("#define OWN 7\n")
    (folder / "ask.c").write_text(f'#include "{name}"\nint main(void) {{ return OWN; }}\n')
    (tmp_path / "other").mkdir()

    def built() -> bytes:
        if is_beside:
            return build_workload(tmp_path / "other", folder / "ask.c")["ask"]
        return build_workload(folder)["ask"]

    before = built()
    assert built() == before
    own.write_text("#define OWN 8\n")
    assert built() != before


def test_what_does_not_compile_says_why_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "ask.c").write_text("int main(void) { return nothing; }\n")
    with pytest.raises(BuildError, match=r"cannot compile .*ask\.c"):
        build_workload(folder)
    assert not list((tmp_path / "cache/programs").glob("ask*"))


def test_a_folder_in_a_workload_is_refused(folder: Path) -> None:
    (folder / "more").mkdir()
    with pytest.raises(UserError, match="more is not a file"):
        build_workload(folder)


def test_a_program_and_a_script_of_one_name_are_refused(folder: Path) -> None:
    (folder / "ask").write_text("#!/bin/sh\n")
    with pytest.raises(UserError, match=r"ask\.c becomes ask"):
        build_workload(folder)


@pytest.mark.parametrize("name", list_workloads())
def test_the_files_of_each_workload_build(name: str) -> None:
    workload = load_workload(name)
    bound = resolve(workload, {}, load_topology("full-4"))
    built = build_workload(workload.file.parent, *bound.programs)
    wanted = {word.split("/")[-1] for word in workload.table.command if "{folder}/" in word}
    assert wanted <= set(built)
