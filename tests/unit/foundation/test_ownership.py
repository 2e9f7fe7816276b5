"""Only files that no other user can change are inputs: plug-ins, kernels, recipes, series."""

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import UserError
from numalab.places import (
    find_input,
    list_inputs,
    own_input,
    project_dir,
    require_own,
    shipped_dir,
    skipped_inputs,
)
from numalab.plugins import load_plugins, require_plugins
from numalab.study.model import find_study
from support.forked import numalab

STRANGER = 4242
MINE = os.geteuid()
as_root = pytest.mark.skipif(MINE != 0, reason="hardware: only root can give files away")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, without_plugins: None) -> Iterator[Path]:
    """Stand in a lab folder with one plug-in, in a folder that every user may enter."""
    folder = Path(mkdtemp())
    folder.chmod(0o755)
    for name in ("plugins", "topologies", "kernel-configs"):
        (folder / name).mkdir(mode=0o755)
    plugin = folder / "plugins" / "mine.py"
    plugin.write_text(f"open({str(folder / 'ran')!r}, 'a').write('x')\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NUMALAB_HOME", raising=False)
    yield folder
    shutil.rmtree(folder)


def refused(lab: Path, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        require_plugins()
    with suppress(UserError):
        load_plugins()
    assert not (lab / "ran").exists()


def test_a_plugin_of_the_user_runs(lab: Path) -> None:
    load_plugins()
    assert (lab / "ran").read_text() == "x"


@pytest.mark.parametrize("part", [".", "plugins", "plugins/mine.py"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_plugin_that_everybody_can_change_is_refused(lab: Path, part: str, mode: int) -> None:
    (lab / part).chmod(mode)
    refused(lab, "every user may write to .* chmod o-w")


@as_root
@pytest.mark.parametrize("part", [".", "plugins", "plugins/mine.py"])
def test_a_plugin_of_another_user_is_refused(lab: Path, part: str) -> None:
    os.chown(lab / part, STRANGER, STRANGER)
    refused(lab, "belongs to user 4242")


@as_root
@pytest.mark.parametrize("part", [".", "plugins", "plugins/mine.py"])
def test_a_plugin_that_a_group_can_change_is_refused(lab: Path, part: str) -> None:
    os.chown(lab / part, 0, 100)
    (lab / part).chmod(0o775)
    refused(lab, "other users may write to")


@as_root
def test_a_group_of_one_user_is_no_danger(lab: Path) -> None:
    """Where users have groups of their own, umask is 002: Ubuntu, Fedora."""
    for part in (lab, lab / "plugins", lab / "plugins" / "mine.py"):
        part.chmod(0o775)
    load_plugins()
    assert (lab / "ran").exists()
    (lab / "ran").unlink()
    entries = [(0x01, 7, -1), (0x02, 7, STRANGER), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
    acl = struct.pack("<I", 2) + packed
    os.setxattr(lab / "plugins", "system.posix_acl_access", acl)
    refused(lab, "other users may write to")


def test_the_command_line_says_why(lab: Path) -> None:
    (lab / "plugins").chmod(0o777)
    done = numalab("topology", "list")
    assert done.returncode == 0
    assert "ring-4" in done.stdout
    assert "mine.py: is not used: every user may write to" in done.stderr
    assert not (lab / "ran").exists()


def test_a_link_leads_to_a_file_that_passes_the_same_check(lab: Path) -> None:
    elsewhere = Path(mkdtemp())
    target = elsewhere / "target.py"
    (lab / "plugins" / "mine.py").rename(target)
    (lab / "plugins" / "mine.py").symlink_to(target)
    target.chmod(0o666)
    refused(lab, "every user may write to")
    target.chmod(0o600)
    elsewhere.chmod(0o777)
    refused(lab, "every user may write to")
    elsewhere.chmod(0o755)
    load_plugins()
    assert (lab / "ran").exists()


def test_a_link_to_a_lab_folder_changes_nothing(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(lab)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path / "link"))
    (lab / "plugins").chmod(0o1777)
    refused(lab, "every user may write to")


@as_root
@pytest.mark.parametrize("mode", [0o1775, 0o1777])
def test_a_folder_of_plugins_that_is_a_link_may_not_be_sticky(
    lab: Path, tmp_path: Path, mode: int
) -> None:
    """Another user cannot rename a file in a sticky folder, but can add one."""
    (lab / "plugins").rename(tmp_path / "elsewhere")
    (lab / "plugins").symlink_to(tmp_path / "elsewhere")
    os.chown(tmp_path / "elsewhere", 0, 100)
    (tmp_path / "elsewhere").chmod(mode)
    refused(lab, "may write to")


@as_root
def test_a_link_of_another_user_is_refused(lab: Path) -> None:
    target = lab / "target.py"
    (lab / "plugins" / "mine.py").rename(target)
    (lab / "plugins" / "mine.py").symlink_to(target)
    os.chown(lab / "plugins" / "mine.py", STRANGER, STRANGER, follow_symlinks=False)
    refused(lab, "belongs to user 4242")


def test_a_circle_of_links_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UserError, match="too many symbolic links"):
        require_own(tmp_path / "a", tmp_path)


def test_bytecode_beside_a_plugin_does_not_run(lab: Path) -> None:
    load_plugins()
    assert not (lab / "plugins" / "__pycache__").exists()


def test_every_input_is_checked(lab: Path) -> None:
    """A kernel or an image of another user would be built with the privileges of this one."""
    (lab / "topologies" / "mine.toml").write_text("")
    (lab / "kernel-configs" / "kernels.toml").write_text("")
    assert find_input("kernel-configs", "kernels.toml") == lab / "kernel-configs" / "kernels.toml"
    (lab / "kernel-configs").chmod(0o777)
    (lab / "topologies" / "mine.toml").chmod(0o666)
    with pytest.raises(UserError, match=r"kernels\.toml: is not used"):
        find_input("kernel-configs", "kernels.toml")
    with pytest.raises(UserError, match=r"mine\.toml: is not used"):
        list_inputs("topologies", "*.toml", strict=True)
    assert "mine.toml" not in list_inputs("topologies", "*.toml")
    assert any("mine.toml: is not used" in str(error) for error in skipped_inputs())


def test_every_file_of_a_folder_is_checked(lab: Path) -> None:
    """Patches of a series, sources of a workload, files of an image."""
    series = lab / "kernel-configs" / "series" / "mine"
    series.mkdir(parents=True)
    (series / "series").write_text("a.patch\n")
    (series / "a.patch").touch(0o644)
    assert find_input("kernel-configs", "series/mine") == series
    (series / "a.patch").chmod(0o666)
    with pytest.raises(UserError, match=r"a\.patch: is not used"):
        find_input("kernel-configs", "series/mine")
    with pytest.raises(UserError, match=r"a\.patch: is not used"):
        own_input(series)


def test_a_study_by_its_path_is_checked_too(lab: Path, tmp_path: Path) -> None:
    for folder in (lab / "studies", tmp_path):
        folder.mkdir(exist_ok=True)
        (folder / "mine.toml").touch(0o644)
        assert find_study(str(folder / "mine.toml")) == folder / "mine.toml"
        (folder / "mine.toml").chmod(0o666)
        with pytest.raises(UserError, match=r"mine\.toml: is not used"):
            find_study(str(folder / "mine.toml"))


def test_the_current_folder_makes_no_other_file_a_part_of_it(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands run in /tmp, too, to which every user may write."""
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "own" / "mine.toml").touch(0o644)
    tmp_path.chmod(0o1777)
    monkeypatch.chdir(tmp_path)
    assert find_study("own/mine.toml") == Path("own/mine.toml")
    assert own_input(shipped_dir() / "workloads" / "bound-hogs")


@pytest.fixture
def shipped(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What came with numalab, with a study."""
    folder = lab / "checkout"
    monkeypatch.setattr("numalab.places.shipped_dir", lambda: folder)
    (folder / "studies").mkdir(parents=True)
    (folder / "studies" / "mine.toml").touch(0o644)
    for path in (folder, folder / "studies"):
        path.chmod(0o755)
    return folder


def test_what_came_with_numalab_is_believed_by_every_way_within(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shipped / "studies" / "link.toml").symlink_to("../studies/mine.toml")
    for part in (shipped, shipped / "studies", shipped / "studies" / "mine.toml"):
        part.chmod(0o777)  # a group may own a checkout
    monkeypatch.chdir(shipped / "studies")
    for path in ("mine.toml", "../studies/mine.toml", "link.toml", f"{shipped}/studies/mine.toml"):
        assert own_input(Path(path)) == Path(path)
    assert find_study("mine") == shipped / "studies" / "mine.toml"


@pytest.mark.parametrize("weak", ["", "file.toml"])
def test_a_way_that_leaves_what_came_with_numalab_is_checked(
    shipped: Path, tmp_path: Path, weak: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`..` and links make a path begin with the checkout's and lead out of it."""
    file = tmp_path / "file.toml"
    file.touch(0o644)
    (shipped / "studies" / "link.toml").symlink_to(file)
    (shipped / "studies" / "away").symlink_to(tmp_path)
    (tmp_path / "back.toml").symlink_to(shipped / "studies" / "mine.toml")
    monkeypatch.chdir(shipped)
    up = Path(*[".."] * (len(shipped.parts) - 1), *file.parts[1:])
    ways = [file, up, shipped / up, shipped / "studies" / ".." / up, shipped / "studies/link.toml",
            shipped / "studies/away/file.toml", shipped / "studies/away/../file.toml"]  # fmt: skip
    (tmp_path.parent / "file.toml").unlink(missing_ok=True)
    (tmp_path.parent / "file.toml").symlink_to(file)
    for way in ways:
        assert own_input(way) == way, "nobody else can change it"
    (tmp_path / weak).chmod(0o777)
    for way in ways:
        with pytest.raises(UserError, match="every user may write to"):
            own_input(way)
    for name in ("link", "away/file", f"../{up.with_suffix('')}"):
        with pytest.raises(UserError, match="every user may write to"):
            find_study(name)
    if not weak:
        with pytest.raises(UserError, match="every user may write to"):
            own_input(tmp_path / "back.toml")


def test_a_lab_folder_is_the_same_by_every_spelling(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a lab folder no folder may be sticky; elsewhere those above the file may be."""
    study = lab / "studies" / "below" / "mine.toml"
    study.parent.mkdir(parents=True, mode=0o755)
    study.touch(0o644)
    study.parent.parent.chmod(0o1777)
    for home in (lab, lab / "plugins" / ".."):
        monkeypatch.setenv("NUMALAB_HOME", str(home))
        for way in (study, lab / "plugins" / ".." / study.relative_to(lab)):
            with pytest.raises(UserError, match="every user may write to"):
                own_input(way)


@pytest.mark.parametrize("variable", ["NUMALAB_HOME", "NUMALAB_PATH"])
def test_a_folder_of_results_is_never_a_lab_folder(
    lab: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "plan.json").symlink_to("nowhere")
    load_plugins()
    assert project_dir() != lab
    monkeypatch.setenv(variable, str(lab / "plugins"))
    refused(lab, f"{variable} names a folder of results")


def test_the_parent_may_be_sticky_but_not_open(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    lab.mkdir(mode=0o755)
    tmp_path.chmod(0o1777)
    require_own(lab, lab)
    tmp_path.chmod(0o777)
    with pytest.raises(UserError, match="every user may write to"):
        require_own(lab, lab)


@as_root
@given(
    modes=st.lists(st.integers(0, 0o1777), min_size=3, max_size=3),
    owners=st.lists(st.sampled_from([0, STRANGER]), min_size=3, max_size=3),
)
def test_whoever_else_can_change_a_file_is_noticed(modes: list[int], owners: list[int]) -> None:
    """Compared with the kernel: another user tries to write to each part of the path."""
    top = Path(mkdtemp())
    top.chmod(0o755)
    parts = [top / "lab", top / "lab" / "plugins", top / "lab" / "plugins" / "x.py"]
    try:
        parts[0].mkdir()
        parts[1].mkdir()
        parts[2].write_text("")
        for part, mode, owner in zip(parts, modes, owners, strict=True):
            os.chown(part, owner, owner)
            part.chmod(mode)
        try:
            require_own(parts[2], parts[0])
        except UserError:
            return
        assert not can_write(parts)
    finally:
        shutil.rmtree(top)


def can_write(parts: list[Path]) -> bool:
    """Ask the kernel whether a user who is not root may write to one of these."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(STRANGER)
        os.setuid(STRANGER)
        os._exit(any(os.access(part, os.W_OK) for part in parts))
    return os.waitpid(child, 0)[1] != 0
