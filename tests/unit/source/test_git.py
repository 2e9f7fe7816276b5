"""A folder of the user as a kernel source: all of its files, whatever the environment says."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from numalab.errors import HostError, UserError
from numalab.process import CommandFailed, Completed, run
from numalab.source import git as module
from numalab.source.git import find_revision, git, read_blob, snapshot


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    return repository(tmp_path / "a tree", {"Makefile": "VERSION = 6\n", ".gitignore": "*.mod.c\n"})


def repository(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    in_git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name).write_text(text)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    in_git(folder, "add", "-f", ".")
    in_git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x")


def in_git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def names(folder: Path) -> set[str]:
    """Return the files of the present state of a folder."""
    now = snapshot(folder)
    words = ["ls-tree", "-r", "--name-only", now.tree]
    env = {"GIT_DIR": str(now.folder / "repository.git")}
    return set(git(words, env=env).stdout.split())


def test_ignored_files_of_the_user_are_part_of_a_kernel(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`core` is a common entry, and the name of many folders of the kernel."""
    ignore = tmp_path / "config/git/ignore"
    ignore.parent.mkdir(parents=True)
    ignore.write_text("core\n*.c\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tree / "core").mkdir()
    (tree / "core/a.c").write_text("")
    assert names(tree) == {"Makefile", ".gitignore", "core/a.c"}


def test_a_tracked_file_is_part_of_it_though_gitignore_names_it(tree: Path) -> None:
    (tree / "a.mod.c").write_text("")
    assert "a.mod.c" not in names(tree)
    commit(tree)
    (tree / "b.mod.c").write_text("")
    assert names(tree) == {"Makefile", ".gitignore", "a.mod.c"}
    (tree / "a.mod.c").unlink()
    assert names(tree) == {"Makefile", ".gitignore"}


@pytest.mark.parametrize("rule", ["", "/*\n!/debian/\n"])
@pytest.mark.parametrize("own", [False, True])
def test_what_an_earlier_snapshot_had_makes_no_difference(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool, rule: str
) -> None:
    if not own:
        shutil.rmtree(tree / ".git")
    (tree / "debian").mkdir()
    for name in ("left.c", "kept.c", "debian/left.c"):
        (tree / name).write_text("")
    assert names(tree) == {"Makefile", ".gitignore", "left.c", "kept.c", "debian/left.c"}
    (tree / ".gitignore").write_text(f"left.c\n{rule}")
    assert names(tree) == {"Makefile", ".gitignore", "kept.c"}
    warm = snapshot(tree).tree
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "empty"))
    assert snapshot(tree).tree == warm


DEBIAN = "*.o\na\0b\n/vmlinux\n!keep.o\n# Debian packaging\n/*\n!/debian/\n"


@pytest.mark.parametrize("own", [False, True])
def test_the_rule_of_debian_hides_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """Its source packages ignore all that is at the top. What a build leaves stays ignored."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    tree = tmp_path / "linux-source-6.12"
    tree.mkdir()
    if own:
        in_git(tree, "init", "-q")
    for folder in ("kernel/sched", "debian", "odd \udcff"):
        (tree / folder).mkdir(parents=True)
    (tree / "Makefile").write_text("VERSION = 6\n")
    (tree / ".gitignore").write_text(DEBIAN)
    (tree / "kernel/.gitignore").write_text("/made\n")
    if own:
        commit(tree)
    left = ("vmlinux", "kernel/made", "kernel/sched/core.o")
    for name in ("kernel/sched/new.c", "kernel/sched/keep.o", "debian/rules", *left):
        (tree / name).write_text("")
    (tree / "odd \udcff/a.c").write_text("")
    (tree / "link.c").symlink_to("kernel/sched/new.c")
    words = ["ls-tree", "-r", "-z", "--name-only", snapshot(tree).tree]
    env = {"GIT_DIR": str(snapshot(tree).folder / "repository.git")}
    listed = git(words, env=env, errors="surrogateescape").stdout.split("\0")
    made = {"kernel/.gitignore", "kernel/sched/new.c", "kernel/sched/keep.o", "debian/rules"}
    assert set(listed) == {"", "Makefile", ".gitignore", "link.c", "odd \udcff/a.c", *made}


def test_a_list_of_ignored_files_that_is_too_long(tree: Path) -> None:
    (tree / ".gitignore").write_text("/*\n" + "a\n" * 40000)
    with pytest.raises(UserError, match="larger than 65536 bytes"):
        snapshot(tree)


def test_a_repository_in_a_tree_is_refused(tree: Path) -> None:
    repository(tree / "driver", {"a.c": ""})
    with pytest.raises(UserError, match="driver: is a git repository of its own, and is not read"):
        snapshot(tree)


def test_a_git_above_this_process_has_no_effect(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks of git set GIT_DIR and GIT_INDEX_FILE."""
    other = repository(tmp_path / "other", {"b": ""})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert names(tree) == {"Makefile", ".gitignore"}
    assert read_blob(find_revision(f"git:{tree}@HEAD"), "Makefile") == "VERSION = 6\n"


def test_several_commands_read_a_folder_at_once(tree: Path) -> None:
    for number in range(300):
        (tree / f"{number}.c").write_text(str(number))
    with ThreadPoolExecutor(4) as pool:
        trees = {read.tree for read in pool.map(snapshot, [tree] * 8)}
    assert len(trees) == 1


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("warning: x\nfatal: cannot read a\nb\n", "fatal: cannot read a"),
        ("odd\n", "odd"),
        ("", "it gave no reason"),
    ],
)
def test_the_reason_of_git_is_a_whole_line(
    stderr: str, reason: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_words: object, **_settings: object) -> Completed:
        raise CommandFailed(Completed(("git",), 128, "", stderr, 0.0))

    find_revision(f"git:{tree}")  # makes the repository of the cache
    monkeypatch.setattr(module, "run", lambda argv, **settings: fails() if "add" in argv
                        else Completed((), 1, "", "", 0.0))  # fmt: skip
    with pytest.raises(UserError, match=f"a tree: git cannot read this folder: .*{reason}$"):
        snapshot(tree)


@pytest.mark.parametrize("step", ["init", "add"])
def test_a_full_disk_names_the_cache(
    step: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_git(argv: list[str], **settings: Any) -> Completed:
        if step in argv:
            stderr = "error: a\nfatal: write error: No space left on device\n"
            raise CommandFailed(Completed(("git",), 128, "", stderr, 0.0))
        return run(argv, **settings)

    monkeypatch.setattr(module, "run", run_git)
    with pytest.raises(
        HostError, match=r"git cannot write .*/cache/kernel-trees/git-.*: .*No spac"
    ):
        snapshot(tree)
    monkeypatch.undo()
    monkeypatch.setenv("NUMALAB_CACHE", str(tree.parent / "cache"))
    assert names(tree) == {"Makefile", ".gitignore"}


def test_settings_of_git_and_make_do_not_reach_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """kbuild writes its configuration to the file that KCONFIG_CONFIG names."""
    kept = {"CPATH": "/opt/include", "HOSTCFLAGS": "-I/opt", "NUMALAB_HOME": "/x"}
    for name in ("KCONFIG_CONFIG", "KBUILD_OUTPUT", "GIT_DIR", "KCFLAGS", "CFLAGS", "MAKEFLAGS"):
        monkeypatch.setenv(name, "/tmp/precious")
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    printed = run(["env"], env={"KBUILD_BUILD_USER": "numalab"}).stdout
    assert "precious" not in printed and "KBUILD_BUILD_USER=numalab\n" in printed
    assert all(f"{name}={value}\n" in printed for name, value in kept.items())
