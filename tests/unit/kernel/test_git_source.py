"""Sources out of git and out of folders, and series that are ranges of commits."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.errors import HostError, UserError
from numalab.kernel.kernel_build import built_kernel, ensure_kernel, read_inputs
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patch_series import find_series, is_range, is_series, range_base
from numalab.kernel.patched_kernel import find_kernel, patch_changes, patched_kernel
from numalab.places import shipped_dir
from numalab.source.git import split_git
from numalab.source.kernel_source import find_source, unpack
from numalab.source.series import apply_series
from numalab.source.source_tree import switch_tree

FILE = "kernel/sched/topology.c"


def git(repository: Path, *words: str) -> str:
    identity = ["-c", "user.name=somebody", "-c", "user.email=some@body"]
    done = subprocess.run(
        ["git", "-C", repository, *identity, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(project: Path) -> Path:
    """A git repository of the fake kernel: a tag v9.9, and a commit more that changes a line."""
    folder = project.parent / "packing" / "linux-source-9.9"
    git(folder.parent, "init", "--quiet", "--initial-branch=main", str(folder))
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "the source")
    git(folder, "tag", "v9.9")
    write(folder, "line 20", "line twenty")
    git(folder, "commit", "--quiet", "-am", "sched: say twenty in words")
    return folder


def write(folder: Path, old: str, new: str) -> None:
    path = folder / FILE
    path.write_text(path.read_text().replace(old, new))


def kernel(source: str, *series: str) -> KernelSpec:
    return KernelSpec("from-git", "", source, series, ("guest",))


def test_revisions_take_turns_in_one_tree(repository: Path) -> None:
    new = ensure_kernel(kernel(f"git:{repository}"))
    assert "line twenty" in new.bzimage.read_text()
    assert new.source_version == "9.9.1"
    old = ensure_kernel(kernel(f"git:{repository}@v9.9", "change"))
    assert "line 20\n" in old.bzimage.read_text()
    assert "line ten\n" in old.bzimage.read_text()
    assert old.digest != new.digest
    assert (old.first_name, old.first_seconds) == ("from-git", new.seconds)
    again = kernel(f"git:{repository}@main")
    assert built_kernel(again) == new  # the same content by another name
    trees = {find_source(f"git:{repository}@{name}").folder for name in ("main", "v9.9")}
    assert len(trees) == 1
    [tree] = trees
    assert len(list((tree / "source").glob("build-*"))) == 1


def test_a_switch_writes_what_differs_and_forgets_the_series(repository: Path) -> None:
    source = find_source(f"git:{repository}@v9.9")
    tree = unpack(source)
    before = (tree / "Makefile").stat().st_mtime_ns
    switch_tree(tree, [find_series("change")])
    assert "line ten" in (tree / FILE).read_text()
    assert unpack(find_source(f"git:{repository}")) == tree
    text = (tree / FILE).read_text()
    assert "line twenty" in text
    assert "line ten" not in text
    assert (tree / "Makefile").stat().st_mtime_ns == before
    assert switch_tree(tree, []) == ()


def test_an_interrupted_switch_is_made_good_and_keeps_the_builds(repository: Path) -> None:
    built = ensure_kernel(kernel(f"git:{repository}@v9.9"))
    tree = unpack(find_source(f"git:{repository}@v9.9"))
    before = (tree / "Makefile").stat().st_mtime_ns
    switch_tree(tree, [find_series("change")])
    (tree.parent / "checkout.json").unlink()
    (tree.parent / "index.lock").touch()
    (tree / FILE).write_text("half")
    (tree / "kernel" / "of-another-revision.c").touch()
    assert unpack(find_source(f"git:{repository}")) == tree
    assert "line twenty" in (tree / FILE).read_text()
    assert not (tree / "kernel" / "of-another-revision.c").exists()
    assert (tree / "Makefile").stat().st_mtime_ns == before
    assert len(list(tree.glob("build-*"))) == 1
    again = ensure_kernel(kernel(f"git:{repository}"))
    assert (again.first_name, again.first_seconds) == ("from-git", built.seconds)
    # Without git's index nothing is known of the files.
    for name in ("checkout.json", "index"):
        (tree.parent / name).unlink()
    (tree / "Makefile").write_text("half")
    assert "VERSION" in (unpack(find_source(f"git:{repository}")) / "Makefile").read_text()


def test_the_repository_is_only_read(repository: Path) -> None:
    def state() -> dict[str, bytes]:
        files = [path for path in (repository / ".git").rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in files}

    before = state()
    write(repository, "line 5\n", "line five\n")
    find_series(f"git:{repository}@v9.9..main")
    unpack(find_source(f"git:{repository}@v9.9"))
    unpack(find_source(str(repository)))
    assert state() == before


def test_a_repository_runs_no_monitor_of_its_own(repository: Path, tmp_path: Path) -> None:
    monitor, mark = tmp_path / "monitor", tmp_path / "mark"
    monitor.write_text(f"#!/bin/sh\ntouch {mark}\nprintf 'x\\0/\\0'\n")
    monitor.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(monitor))
    find_source(str(repository))
    find_source(f"git:{repository}@v9.9")
    assert not mark.exists()


def test_a_repository_runs_no_filter_of_its_own(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (repository / ".gitattributes").write_text("* filter=x\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "a filter")
    git(repository, "config", "filter.x.clean", f"touch {mark}; cat")
    (repository / "Makefile").touch()
    assert not find_source(str(repository)).origin.endswith("-dirty")
    assert not mark.exists()


def test_a_repository_lacks_what_it_would_fetch(repository: Path, tmp_path: Path) -> None:
    """A partial clone names the program that gives it the rest."""
    mark = tmp_path / "mark"
    partial = tmp_path / "partial"
    git(tmp_path, "init", "--quiet", str(partial))
    git(partial, "config", "extensions.partialClone", "origin")
    git(partial, "config", "core.repositoryFormatVersion", "1")
    git(partial, "config", "remote.origin.url", str(repository))
    git(partial, "config", "remote.origin.promisor", "true")
    git(partial, "config", "remote.origin.uploadpack", f"touch {mark}; false")
    commit = git(repository, "rev-parse", "HEAD")
    (partial / ".git" / "refs" / "heads" / "main").write_text(commit + "\n")
    with pytest.raises(UserError):
        find_source(f"git:{partial}@main")
    assert not mark.exists()


@pytest.mark.parametrize("lacks", ["blob:none", "tree:0"])
@pytest.mark.parametrize("last", ["main", "merge"])
def test_a_partial_clone_names_what_it_lacks(
    repository: Path, tmp_path: Path, lacks: str, last: str
) -> None:
    git(repository, "switch", "--quiet", "-c", "merge", "v9.9")
    write(repository, "line 30", "line thirty")
    git(repository, "commit", "--quiet", "-am", "on the side")
    git(repository, "merge", "--quiet", "main")
    git(repository, "config", "uploadpack.allowFilter", "true")
    words = ["clone", "--quiet", "--bare", f"--filter={lacks}", f"file://{repository}"]

    def fetch(name: str, read: Callable[[str], object], revision: str, command: str) -> None:
        """Clone, and run the command that the error names."""
        if not (tmp_path / name).exists():
            git(tmp_path, *words, str(tmp_path / name))
        with pytest.raises(UserError) as caught:
            read(f"git:{tmp_path / name}@{revision}")
        message = f"{name}: is a partial clone, which lacks files of "
        message += rf"(\S+); `git ({command} \1) >/dev/null` in it fetches them$"
        hint = re.search(message, str(caught.value))
        assert hint is not None, str(caught.value)
        git(tmp_path / name, *hint[2].split())

    fetch("range", find_series, f"v9.9..{last}", "log -p -m")
    series = [find_series(f"git:{path}@v9.9..{last}") for path in (tmp_path / "range", repository)]
    assert series[0].info.patches == series[1].info.patches
    fetch("source", find_source, last, "archive")
    whole = find_source(f"git:{tmp_path / 'source'}@{last}")
    assert whole.digest == find_source(f"git:{repository}@{last}").digest


def test_a_folder_is_read_after_git_removed_objects(repository: Path) -> None:
    """The index of the snapshot has files whose objects were those of a commit of the user."""
    write(repository, "line 5\n", "line five\n")
    os.utime(repository / FILE, (1e9, 1e9))  # git reads a file again that is as new as its index
    git(repository, "commit", "--quiet", "-am", "to be undone")
    before = find_source(str(repository)).digest
    git(repository, "reset", "--quiet", "HEAD~1")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "--quiet", "--prune=now")
    assert find_source(str(repository)).digest == before


def test_files_that_git_removed_are_read_again_the_next_time(repository: Path) -> None:
    """Their objects were those of the user's index, which had no tree of them."""
    write(repository, "line 5\n", "line five\n")
    for name in git(repository, "ls-files").split():  # as new as its index: it would be read again
        os.utime(repository / name, (1e9, 1e9))
    git(repository, "add", "--all")
    before = find_source(str(repository))
    git(repository, "reset", "--quiet")
    git(repository, "gc", "--quiet", "--prune=now")
    with pytest.raises(
        HostError, match="files that it had before, which `git gc` removes"
    ) as caught:
        unpack(find_source(str(repository)))
    assert caught.value.hint == "start the command again"
    again = find_source(str(repository))
    assert again.digest == before.digest
    assert "line five\n" in (unpack(again) / FILE).read_text()


def test_a_folder_is_taken_as_it_is_now(repository: Path) -> None:
    write(repository, "line 5\n", "line five\n")
    (repository / "new.c").write_text("new\n")
    (repository / ".gitignore").write_text("*.o\n")
    (repository / "built.o").write_text("object\n")
    committed, now = find_source(f"git:{repository}"), find_source(str(repository))
    assert committed.digest != now.digest
    assert now.origin.startswith("git v9.9-1-")
    assert now.origin.endswith("-dirty")
    tree = unpack(now)
    assert "line five\n" in (tree / FILE).read_text()
    assert (tree / "new.c").exists()
    assert not (tree / "built.o").exists()
    assert not (unpack(committed) / "new.c").exists()


def test_a_worktree_and_a_bare_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "work"), "v9.9")
    git(repository, "clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    wanted = find_source(f"git:{repository}@v9.9").digest
    assert find_source(f"git:{tmp_path / 'work'}").digest == wanted
    assert find_source(f"git:{tmp_path / 'bare.git'}@v9.9").digest == wanted
    write(tmp_path / "work", "line 5\n", "line five\n")
    assert "line five" in (unpack(find_source(str(tmp_path / "work"))) / FILE).read_text()


def test_a_folder_without_git(repository: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("Makefile", "Kconfig", FILE):
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        (plain / name).write_bytes((repository / name).read_bytes())
    spec = kernel(str(plain))
    first = read_inputs(spec).digest
    assert "line twenty" in ensure_kernel(spec).bzimage.read_text()
    write(plain, "line twenty", "line 2 x 10")
    assert read_inputs(spec).digest != first
    assert "line 2 x 10" in ensure_kernel(spec).bzimage.read_text()


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("v6.12..fix", True), ("v6.12..", True), ("a/b..c/d", True), ("../x.patch", False),
        ("debian-6.12+../x.patch", False), ("x/../y.patch", False), ("", False),
    ],
)  # fmt: skip
def test_a_path_above_is_no_range(text: str, is_one: bool) -> None:
    assert is_range(text) is is_one


@pytest.mark.parametrize(
    ("revisions", "is_one"),
    [("v9.9..@", True), ("@~1..@", True), ("v9.9..main@{0}", True), ("v9.9..main#1", True),
     ("@", False), ("main@{0}", False)],
)  # fmt: skip
def test_the_end_of_a_range_may_hold_an_at_sign(
    repository: Path, revisions: str, is_one: bool
) -> None:
    text = f"git:{repository}@{revisions}"
    assert is_range(text) is is_series(text) is is_one
    if is_one:
        assert len(find_series(text).patches) == 1
        begin = find_source(range_base(text)).digest
        assert begin == find_source(f"git:{repository}@v9.9").digest


def test_a_range_of_commits_is_a_series(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series = find_series(f"git:{repository}@v9.9..main")
    assert [patch.subject for patch in series.patches] == ["sched: say twenty in words"]
    monkeypatch.chdir(repository)
    assert find_series("v9.9..").info.digest == series.info.digest
    built = ensure_kernel(kernel("linux-source-9.9", f"git:{repository}@v9.9..main"))
    assert "line twenty" in built.bzimage.read_text()


@pytest.mark.parametrize("is_linear", [True, False])
def test_a_range_makes_its_last_commit(repository: Path, is_linear: bool) -> None:
    """Also what a merge itself changed, and whatever the settings of git say of copies."""
    git(repository, "config", "diff.renames", "copies")
    write(repository, "line 5\n", "line five\n")
    (repository / "copy.c").write_text((repository / FILE).read_text())
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "a copy")
    if not is_linear:
        git(repository, "switch", "--quiet", "-c", "side", "v9.9")
        write(repository, "line 30", "line thirty")
        git(repository, "commit", "--quiet", "-am", "on the side")
        git(repository, "merge", "--quiet", "--no-commit", "main")
        write(repository, "line 35", "line of the merge")
        git(repository, "commit", "--quiet", "-am", "the merge")
    series = find_series(f"git:{repository}@v9.9..HEAD")
    assert len(series.patches) == (2 if is_linear else 1)
    patched = apply_series([series], lambda name: shown(repository, f"v9.9:{name}"))
    assert set(patched) == {FILE, "copy.c"}
    assert patched == {name: shown(repository, f"HEAD:{name}") for name in patched}


def test_the_range_of_the_documented_job_is_the_pull_request(
    project: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job has two commits of the merge that a host of git makes; main has moved on."""
    table = project / "kernel-configs/kernels.toml"
    table.write_text('fragments = ["guest"]\n' + table.read_text())
    git(repository, "switch", "--quiet", "-c", "topic", "v9.9")
    for number, word in (("25", "twenty-five"), ("30", "thirty")):
        write(repository, f"line {number}", f"line {word}")
        git(repository, "commit", "--quiet", "-am", word)
    git(repository, "switch", "--quiet", "--detach", "main")
    git(repository, "merge", "--quiet", "--no-ff", "topic")
    git(repository, "switch", "--quiet", "-c", "pull")
    page = (shipped_dir() / "docs/how-to/run-in-ci.md").read_text(encoding="utf-8")
    (depth,) = re.findall(r"fetch-depth: (\d+)", page)
    (commits,) = re.findall(r"numalab patch (HEAD\S+) ", page)
    clone = tmp_path / "linux"
    words = ["clone", "--quiet", f"--depth={depth}", f"file://{repository}", str(clone)]
    git(tmp_path, *words, "--branch=pull")
    monkeypatch.chdir(clone)
    judged = patched_kernel([commits])
    assert judged.base.source == f"git:{clone}@{git(clone, 'rev-parse', 'HEAD^1')}"
    (series,) = ensure_kernel(judged.patched).series
    assert len(series.patches) == 1
    assert [change.new for change in patch_changes(judged)] == [FILE]
    diff = git(clone, "diff", "HEAD^1", "HEAD")
    assert ("+line thirty" in diff, "line twenty\n" in diff) == (True, False)


PLAIN_DIFF = f"--- a/{FILE}\n+++ b/{FILE}\n@@ -5 +5 @@\n-line 5\n+line wrong\n"


@pytest.mark.parametrize(
    "quoted",
    [
        f"diff --git a/{FILE} b/{FILE}\n{PLAIN_DIFF}",
        PLAIN_DIFF,
        f"diff --git a/{FILE} b/copy.c\n",
        f"diff --cc {FILE}\n",
        f"diff --combined {FILE}\n",
        "@@@ -1,2 -1,2 +1,3 @@@\n",
        "@@ -5 +5 @@\n-line 5\n+line wrong\n",
        "From x@y Thu Nov  3 10:00:00 2022\nSubject: [PATCH v7] x\n",
    ],
)
def test_what_the_message_of_a_commit_quotes_is_no_part_of_a_range(
    repository: Path, quoted: str
) -> None:
    write(repository, "line 30", "line thirty")
    git(repository, "commit", "--quiet", "-am", f"sched: thirty\n\nNot\n\n{quoted}\nbut:")
    series = find_series(f"git:{repository}@v9.9..HEAD")
    assert series.info.patches == ("sched: say twenty in words", "sched: thirty")
    patched = apply_series([series], lambda name: shown(repository, f"v9.9:{name}"))
    assert patched == {FILE: shown(repository, f"HEAD:{FILE}")}


def test_a_message_that_no_parser_takes_for_its_own_stays(repository: Path) -> None:
    message = "+++ exited with 0 +++\n\nFrom the log at 10:22 of 2021:\n\na word\n@@ no hunk"
    write(repository, "line 30", "line thirty")
    git(repository, "commit", "--quiet", "-am", f"sched: thirty\n\n{message}")
    last = find_series(f"git:{repository}@v9.9..HEAD").patches[-1]
    assert last.subject == "sched: thirty"
    assert message in last.text


def test_a_commit_without_a_change_is_no_patch_of_a_range(repository: Path) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "to trigger a test")
    write(repository, "line 30", "line thirty")
    git(repository, "commit", "--quiet", "-am", "sched: thirty")
    patches = find_series(f"git:{repository}@v9.9..HEAD").info.patches
    assert patches == ("sched: say twenty in words", "sched: thirty")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("format.useAutoBase", "true"), ("diff.orderFile", "/no/such/file"),
     ("format.coverLetter", "true")],
)  # fmt: skip
def test_settings_of_git_do_not_spoil_a_range(repository: Path, setting: str, value: str) -> None:
    git(repository, "config", setting, value)
    patches = find_series(f"git:{repository}@v9.9..HEAD").info.patches
    assert patches == ("sched: say twenty in words",)


def shown(repository: Path, name: str) -> str | None:
    """Return the text of a file of a revision, None for no file."""
    done = subprocess.run(
        ["git", "-C", repository, "show", name], check=False, capture_output=True, text=True
    )
    return None if done.returncode else done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("git:/no/such/folder@v1", "'/no/such/folder' is no folder (git:PATH@REVISION)"),
        ("git:{repository}@v8", "git finds no 'v8'"),
        ("git:{repository}@--help", "git finds no '--help'"),
        ("git:{repository}@^main", "git finds no '^main': ^ leaves commits out"),
        ("{repository}/.git", "of one; git:{repository}/.git@REVISION reads a bare repository"),
        ("git:{repository}@HEAD:kernel", "holds no kernel: it has no Makefile of one"),
        ("git:{project}", "git finds no 'HEAD'"),
        ("{project}", "holds no kernel: it has no Makefile of one"),
    ],
)
def test_what_is_no_source_is_named(
    repository: Path, project: Path, text: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        find_source(text.format(repository=repository, project=project))
    assert message.format(repository=repository) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("git:{repository}@main", "'main' is no range FROM..TO"),
        ("git:{repository}@main..main", "no commit in main..main"),
        ("git:{repository}@v9.9..nope", "git finds no 'nope'"),
        ("git:{repository}@^v9.9..main", "git finds no '^v9.9'"),
        ("no-such-series", "'no-such-series' is no series: no such file"),
    ],
)
def test_what_is_no_range_is_named(repository: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        find_series(text.format(repository=repository))
    assert message.format() in str(caught.value)


def test_paths_and_revisions_may_hold_an_at_sign(tmp_path: Path) -> None:
    odd = tmp_path / "linux@home"
    odd.mkdir()
    assert split_git(f"git:{odd}@HEAD@{{1}}") == (odd, "HEAD@{1}")
    assert split_git(f"git:{odd}") == (odd, "HEAD")


def test_a_git_source_has_no_name_and_the_default_fragments(
    repository: Path, project: Path
) -> None:
    file = project / "kernel-configs/kernels.toml"
    file.write_text('fragments = ["guest"]\n' + file.read_text())
    spec = find_kernel(f"git:{repository}@v9.9")
    assert (spec.name, spec.fragments) == (f"git:{repository}@v9.9", ("guest",))
    assert "line 20\n" in ensure_kernel(spec).bzimage.read_text()
