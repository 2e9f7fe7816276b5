"""Kernels of releases that the user provides, found below the paths of $NUMALAB_LINUX."""

import subprocess
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from numalab.cli.inputs.kernel import app
from numalab.errors import UserError
from numalab.kernel.kernel_build import built_kernel, ensure_kernel, read_inputs
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import find_kernel
from numalab.source.kernel_source import ENDINGS, find_source
from numalab.source.own_trees import VARIABLE, NoOwnTree, check_release, find_own_tree


def write_tree(folder: Path, version: tuple[int, int]) -> Path:
    folder.mkdir(parents=True)
    major, minor = version
    makefile = f"VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = 0\nEXTRAVERSION =\n"
    (folder / "Makefile").write_text(makefile, encoding="utf-8")
    return folder


def test_a_folder_of_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(tmp_path / "trees/linux-4.12", (4, 12))
    monkeypatch.setenv(VARIABLE, f"/nowhere:{tmp_path / 'trees'}")
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    assert find_own_tree("mainline:4.12", ENDINGS) == str(tree)
    source = find_source("mainline:4.12")
    assert (source.name, source.version) == ("mainline:4.12", "4.12.0")
    assert source.digest == find_source(str(tree)).digest


def test_a_tarball_of_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(tmp_path / "linux-5.4", (5, 4))
    packed = tmp_path / "trees/linux-5.4.tar.gz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(tree, "linux-5.4")
    monkeypatch.setenv(VARIABLE, str(packed.parent))
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    assert find_own_tree("mainline:5.4", ENDINGS) == str(packed)
    assert find_source("mainline:5.4").version == "5.4.0"


def test_a_tag_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(tmp_path / "linux", (4, 19))
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "-qm", "4.19"], ["tag", "v4.19"]):
        subprocess.run(["git", *identity, *words], cwd=tree, check=True)
    monkeypatch.setenv(VARIABLE, str(tree))
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    assert find_own_tree("mainline:4.19", ENDINGS) == f"git:{tree}@v4.19"
    assert find_source("mainline:4.19").version == "4.19.0"
    with pytest.raises(NoOwnTree):
        find_source("mainline:4.18")


def test_a_missing_release_is_explained(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    kernels = project / "kernel-configs/kernels.toml"
    table = '\n[kernel.old]\nsummary = "old"\nsource = "mainline:4.12"\nfragments = ["guest"]\n'
    kernels.write_text(kernels.read_text() + table)
    spec = find_kernel("old")
    assert built_kernel(spec) is None
    with pytest.raises(NoOwnTree, match=r"Linux 4\.12 is not on this host") as caught:
        ensure_kernel(spec)
    assert "set NUMALAB_LINUX to a git repository with the tag v4.12" in str(caught.value.hint)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(NoOwnTree, match=f"; NUMALAB_LINUX is {tmp_path}"):
        ensure_kernel(spec)


def test_a_home_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "~no-such-user/linux")
    with pytest.raises(UserError, match="~no-such-user/linux: there is no such home folder"):
        find_own_tree("mainline:4.12", ENDINGS)


def test_build_all_skips_a_missing_release(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    kernels = project / "kernel-configs/kernels.toml"
    table = '\n[kernel.old]\nsummary = "old"\nsource = "mainline:4.12"\nfragments = ["guest"]\n'
    kernels.write_text(kernels.read_text() + table)
    done = CliRunner().invoke(app, ["build", "--all"])
    assert done.exit_code == 0
    assert "skipped old: Linux 4.12 is not on this host" in done.stderr


def test_another_release_than_the_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "linux-4.12", (4, 13))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"the tree that NUMALAB_LINUX names is Linux 4\.13\.0"):
        find_source("mainline:4.12")
    check_release("mainline:6.13-rc2", "6.13.0-rc2")


@pytest.mark.parametrize("text", ["mainline:", "mainline:../x", "mainline:4", "mainline:4.12/x"])
def test_no_release(text: str) -> None:
    with pytest.raises(UserError, match="names no release"):
        find_source(text)


def test_only_kernels_before_4_16_are_linked_with_large_pages(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "LD" not in read_inputs(find_kernel("plain")).settings
    for version in ((4, 15), (4, 16)):
        write_tree(tmp_path / f"linux-{version[0]}.{version[1]}", version)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    spec = KernelSpec("old", "", "mainline:4.15", (), ("guest",))
    assert read_inputs(spec).settings["LD"] == "ld -z max-page-size=0x200000"
    assert "LD" not in read_inputs(KernelSpec("new", "", "mainline:4.16", (), ("guest",))).settings
