"""A patch in place of a kernel: its base, its name, and its copy in the cache."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.artifact.cache import choose_to_prune, list_cache
from numalab.errors import UserError
from numalab.kernel.kernel_build import ensure_kernel, read_inputs
from numalab.kernel.kernel_specs import series_path, without_last_series
from numalab.kernel.patch_artifact import save_patch, saved_patches, short_name
from numalab.kernel.patch_base import version_key
from numalab.kernel.patch_series import find_series
from numalab.kernel.patched_kernel import (
    find_kernel,
    list_all_kernels,
    named_kernel,
    patch_changes,
    patched_kernel,
)
from numalab.places import cache_dir, list_inputs, skipped_inputs
from numalab.source.series import load_series

FILE = "kernel/sched/topology.c"


def patch(number: int = 10, new: str = "line ten") -> str:
    return (
        f"--- a/{FILE}\n+++ b/{FILE}\n@@ -{number - 1},3 +{number - 1},3 @@\n line {number - 1}\n"
        f"-line {number}\n+{new}\n line {number + 1}\n"
    )


@pytest.fixture
def older(project: Path, pack: Callable[..., Path]) -> Path:
    """Add an older source whose line 20 differs, and two kernels of it, one with a series."""
    folder = project.parent / "packing" / "linux-source-8.8"
    shutil.copytree(project.parent / "packing" / "linux-source-9.9", folder)
    text = (folder / "Makefile").read_text().replace("VERSION = 9", "VERSION = 8")
    (folder / "Makefile").write_text(text)
    file = folder / FILE
    file.write_text(file.read_text().replace("line 20", "old line 20"))
    pack({}, "linux-source-8.8")
    table = project / "kernel-configs/kernels.toml"
    table.write_text(
        '[kernel.old-changed]\nsummary = "x"\nsource = "linux-source-8.8"\n'
        'fragments = ["guest"]\nseries = ["change"]\n'
        '[kernel.old]\nsummary = "x"\nsource = "linux-source-8.8"\nfragments = ["guest"]\n'
        + table.read_text()
    )
    return project


def test_the_base_is_the_newest_kernel_that_the_patch_fits(older: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.patch"
    file.write_text(patch())
    both = patched_kernel([str(file)])
    assert (both.base.name, both.note) == ("plain", "applies to plain")
    assert both.patched.base == both.base
    file.write_text(patch(20).replace("-line 20", "-old line 20"))
    only_old = patched_kernel([str(file)])
    assert (only_old.base.name, only_old.note) == ("old", "applies to old; not to plain")
    assert find_kernel(str(file)) == only_old.patched
    file.write_text(patch(21).replace("-line 21", "-line X"))
    with pytest.raises(UserError) as caught:
        find_kernel(str(file))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{file}: applies to no kernel on this host")
    starts = [f"{name}: {file}: does not apply: hunk 1 of 1" for name in ("plain", "old")]
    assert [line for line in lines if ": does not apply: " in line] == [
        f"{start} does not fit {FILE}" for start in starts
    ]
    assert "    > line 21" in lines
    assert "  the patch wants:" in lines


def test_a_missing_source_is_named_if_it_is_newer(older: Path, tmp_path: Path) -> None:
    table = older / "kernel-configs/kernels.toml"
    for version in ("9.10", "7.7"):
        name = f'[kernel.k{version.replace(".", "-")}]\nsummary = "x"\nfragments = ["guest"]\n'
        table.write_text(f'{name}source = "linux-source-{version}"\n' + table.read_text())
    (tmp_path / "x.patch").write_text(patch())
    note = patched_kernel([str(tmp_path / "x.patch")]).note
    assert note == "applies to plain; not tried on k9-10, whose source is not on this host"


def test_the_kernel_is_built_from_a_copy_and_keeps_its_name(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "my fix.mbox"
    file.write_text(f"From x Mon Sep 17 00:00:00 2001\nSubject: [PATCH] s: ten\n\n{patch()}")
    spec = find_kernel(str(file))
    assert spec.name.startswith("plain+my-fix-")
    assert spec.base == find_kernel("plain") == without_last_series(spec)
    file.write_text("no patch any more\n")
    built = ensure_kernel(spec)
    assert "line ten\n" in built.bzimage.read_text()
    assert [series.name for series in built.series] == ["my-fix"]
    assert built.series[0].patches == ("s: ten",)
    file.unlink()
    for name in (spec.name, "plain+my-fix", "my-fix"):
        assert find_kernel(name) == spec
        assert find_kernel(name).base == spec.base
    assert list_all_kernels()[spec.name] == spec
    assert named_kernel(spec.name, Path("case.toml"), "k") == spec
    for name in ("plain+my-fix", str(tmp_path / "x.patch"), "plain+change"):
        with pytest.raises(UserError, match="not in your lab"):
            named_kernel(name, Path("case.toml"), "k")
    [entry] = [entry for entry in list_cache() if entry.kind == "patch"]
    assert (entry.name, entry.in_use) == (spec.name, "only copy")
    assert entry not in choose_to_prune(list_cache(), keep=0, unused_for=0, now=2**40)
    shutil.rmtree(entry.path)
    with pytest.raises(UserError, match=r"no kernel is called 'my-fix'"):
        find_kernel("my-fix")


def test_a_listing_reads_the_lab_once(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in (3, 5, 7):
        (tmp_path / f"{line}.patch").write_text(patch(line))
        find_kernel(str(tmp_path / f"{line}.patch"))
    read, listed = list[str](), list[str]()

    def noted(name: str) -> Path:
        read.append(name)
        return series_path(name)

    def noted_list(kind: str, pattern: str, *, strict: bool = False) -> dict[str, Path]:
        listed.append(pattern)
        return list_inputs(kind, pattern, strict=strict)

    monkeypatch.setattr("numalab.kernel.patch_series.series_path", noted)
    monkeypatch.setattr("numalab.kernel.kernel_specs.list_inputs", noted_list)
    assert len([spec for spec in list_all_kernels().values() if spec.base]) == 3
    assert sorted(read) == sorted(set(read)) != []
    assert listed.count("*.config") <= 2


@pytest.fixture
def with_defaults(project: Path) -> Path:
    """Add fragments for kernels that are not in kernels.toml."""
    table = project / "kernel-configs/kernels.toml"
    table.write_text('fragments = ["guest"]\n' + table.read_text())
    return project


@pytest.mark.parametrize("base", ["{}", "git:{}@v9.9"])
def test_a_patch_on_a_tree_is_listed_until_that_is_removed(
    with_defaults: Path, tmp_path: Path, base: str
) -> None:
    (tmp_path / "x.patch").write_text(patch())
    series, tree = load_series(tmp_path / "x.patch"), tmp_path / "linux-9.9"
    shutil.copytree(with_defaults.parent / "packing/linux-source-9.9", tree)
    saved = save_patch(series, base.format(tree), "x", named=False)
    assert saved.kernel in list_all_kernels()
    shutil.rmtree(tree)
    assert saved.kernel not in list_all_kernels()
    assert skipped_inputs() == ()


def test_a_patch_on_a_package_of_a_suite_is_listed(with_defaults: Path, tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_text(patch())
    series = load_series(tmp_path / "x.patch")
    saved = save_patch(series, "linux-source-9.9/bookworm", "x", named=False)
    assert saved.kernel in list_all_kernels()


def test_a_patch_on_a_kernel_of_another_lab_is_not_listed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_text(patch())
    saved = save_patch(load_series(tmp_path / "x.patch"), "theirs", "x", named=False)
    assert saved.kernel not in list_all_kernels()
    assert skipped_inputs() == ()


def test_another_patch_of_the_same_name_is_another_kernel(project: Path, tmp_path: Path) -> None:
    for folder, new in (("v1", "line ten"), ("v2", "LINE TEN")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.patch").write_text(patch(new=new))
    first = find_kernel(str(tmp_path / "v1/x.patch"))
    second = find_kernel(str(tmp_path / "v2/x.patch"))
    assert first.name != second.name
    assert find_kernel("x") == second
    assert find_kernel(first.name) == first
    find_kernel(str(tmp_path / "v1/x.patch"))
    assert find_kernel("plain+x") == first  # the one used last
    assert len(saved_patches()) == 2


def test_base_and_patch(older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.patch").write_text(patch())
    (tmp_path / "y.patch").write_text(patch(3, "line three"))
    (tmp_path / "c++.patch").write_text(patch(5, "line five"))
    on_old = find_kernel("old+x.patch")
    assert (on_old.base and on_old.base.name, on_old.note) == ("old", "")
    assert find_kernel("plain+change").name == "plain+change"
    two = find_kernel("old+x+y.patch")
    assert two.base == on_old
    assert len(two.series) == 2
    assert find_kernel(two.name) == two
    assert find_kernel("old+c++.patch").name.startswith("old+c-")
    both = patched_kernel(["x.patch", "y.patch"], "plain")
    assert both.patched.name.startswith("plain+x-and-1-")
    assert len(both.series.patches) == 2
    with pytest.raises(UserError, match=r"does not apply: hunk 1 of 1 does not fit .*already"):
        find_kernel("old+x+x.patch")
    with pytest.raises(UserError, match="no kernel is called 'odl"):
        find_kernel("odl+x.patch")


def test_the_changed_lines_include_those_of_the_base(older: Path, tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_text(patch(20).replace("-line 20", "-old line 20"))
    both = patched_kernel([str(tmp_path / "x.patch")], "old-changed")
    [change] = patch_changes(both)
    assert (change.old, change.new) == (FILE, FILE)
    assert "line ten\n" in change.before  # of the series of the base
    [part] = change.changes
    assert [(line.number, line.text) for line in part.removed] == [(20, "old line 20")]
    assert [(line.number, line.text) for line in part.added] == [(20, "line ten")]
    assert change.after.split("\n")[19] == "line ten"


def test_a_range_is_on_the_commit_where_it_begins(with_defaults: Path) -> None:
    folder, git = in_git(with_defaults)
    git("switch", "--quiet", "-c", "topic")
    (folder / FILE).write_text((folder / FILE).read_text().replace("line 7\n", "line seven\n"))
    git("commit", "--quiet", "-am", "sched: seven")
    text = f"git:{folder}@v9.9..topic"
    both = patched_kernel([text])
    assert both.base.name == f"git:{folder}@v9.9"
    assert read_version(both.base.source) == read_version(f"git:{folder}@v9.9")
    assert both.patched.name.startswith("linux-source-9.9-v9.9+linux-source-9.9-v9.9-topic-")
    assert find_kernel(both.patched.name) == both.patched
    assert [part.subject for part in both.series.patches] == ["sched: seven"]
    [change] = patch_changes(both)
    assert change.changes[0].added[0].number == 7
    (with_defaults.parent / "x.patch").write_text(patch(20, "twenty"))
    for texts in ([text, str(with_defaults.parent / "x.patch")], [f"{text}#1"]):
        assert patched_kernel(texts).base == both.base
    git("switch", "--quiet", "main")
    git("commit", "--quiet", "--allow-empty", "-m", "more")
    # main has gone on: the base is the commit that both have in common.
    later = patched_kernel([f"git:{folder}@main..topic"])
    assert read_version(later.base.source) == read_version(f"git:{folder}@v9.9")


def in_git(project: Path) -> tuple[Path, Callable[..., None]]:
    """Make a repository of the source, with a tag v9.9, and return it and its git."""
    folder = project.parent / "packing" / "linux-source-9.9"

    def git(*words: str) -> None:
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "-m", "the source")
    git("tag", "v9.9")
    return folder, git


def test_a_saved_kernel_keeps_the_commit_of_its_base(with_defaults: Path, tmp_path: Path) -> None:
    folder, git = in_git(with_defaults)
    (tmp_path / "x.patch").write_text(patch())
    texts, base = [str(tmp_path / "x.patch")], f"git:{folder}@main"
    first = patched_kernel(texts, base)
    digest = read_inputs(first.patched).digest
    (folder / FILE).write_text((folder / FILE).read_text().replace("line 30\n", "line thirty\n"))
    git("commit", "--quiet", "-am", "sched: thirty")
    for kernel in (find_kernel(first.patched.name), list_all_kernels()[first.patched.name]):
        assert kernel == first.patched
        assert read_inputs(kernel).digest == digest
    later = patched_kernel(texts, base).patched
    assert later.name != first.patched.name
    assert read_inputs(later).digest != digest
    assert patched_kernel(texts, base).patched == find_kernel(later.name) == later
    assert find_kernel(first.patched.name) == first.patched
    git("checkout", "--quiet", "-B", "main", "v9.9")
    assert patched_kernel(texts, base).patched == first.patched


def test_the_plain_name_of_a_series_is_on_the_commit_used_last(with_defaults: Path) -> None:
    folder, git = in_git(with_defaults)
    base, name = f"git:{folder}@main", "linux-source-9.9-main+change"
    first = patched_kernel(["change"], base).patched
    assert find_kernel(name) == first
    (folder / FILE).write_text((folder / FILE).read_text().replace("line 30\n", "line thirty\n"))
    git("commit", "--quiet", "-am", "sched: thirty")
    later = patched_kernel(["change"], base).patched
    assert find_kernel(name) == later != first
    assert find_kernel(first.name) == first
    assert patched_kernel(["change"], base).patched == later


def test_a_series_of_an_earlier_numalab_keeps_its_name(with_defaults: Path) -> None:
    folder, _ = in_git(with_defaults)
    base, label = f"git:{folder}@main", "linux-source-9.9-main"
    old = save_patch(find_series("change"), base, label, named=True)
    for _use in range(2):
        assert patched_kernel(["change"], base).patched.name == old.kernel == f"{label}+change"


def test_a_kernel_of_an_earlier_numalab_keeps_its_name(with_defaults: Path, tmp_path: Path) -> None:
    """Its record has no commit."""
    folder, _ = in_git(with_defaults)
    (tmp_path / "x.patch").write_text(patch())
    base = f"git:{folder}@main"
    old = save_patch(load_series(tmp_path / "x.patch"), base, "linux-source-9.9-main", named=False)
    assert patched_kernel([str(tmp_path / "x.patch")], base).patched.name == old.kernel
    [record] = saved_patches()
    assert record.commit


def test_a_base_may_be_a_folder_of_a_revision(with_defaults: Path, tmp_path: Path) -> None:
    folder, git = in_git(with_defaults)
    git("read-tree", "--prefix=linux/", "main")
    git("commit", "--quiet", "-m", "the source in a folder")
    (tmp_path / "x.patch").write_text(patch())
    text, base = str(tmp_path / "x.patch"), f"git:{folder}@HEAD:linux"
    kernel = patched_kernel([text], base).patched
    digest = read_inputs(kernel).digest
    git("rm", "--quiet", "-r", "--cached", "linux")
    git("commit", "--quiet", "-m", "without it")
    assert find_kernel(kernel.name) == kernel
    assert read_inputs(kernel).digest == digest


@pytest.mark.parametrize("commit", ["", "1" * 40])
def test_the_source_of_a_base_that_is_a_tag_names_it(
    with_defaults: Path, tmp_path: Path, commit: str
) -> None:
    """Kernels of kernels.toml name it as well; an earlier numalab wrote the commit for it."""
    folder, git = in_git(with_defaults)
    git("tag", "-m", "of a tree", "source", "v9.9^{tree}")
    (tmp_path / "x.patch").write_text(patch())
    texts, series = [str(tmp_path / "x.patch")], load_series(tmp_path / "x.patch")
    for tag in ("v9.9", "source"):
        base, label = f"git:{folder}@{tag}", f"linux-source-9.9-{tag}"
        old = save_patch(series, base, label, named=False, commit=commit)
        both = patched_kernel(texts, base)
        assert both.base.source == both.patched.source == base
        assert both.patched.name == old.kernel
        assert find_kernel(old.kernel) == both.patched


@pytest.mark.parametrize("text", ["{}/x.patch", "change"])
def test_two_bases_of_one_name_give_kernels_of_two_names(
    with_defaults: Path, tmp_path: Path, text: str
) -> None:
    """As two clones of one name, and as branches of two remotes."""
    folder, git = in_git(with_defaults)
    (tmp_path / "x.patch").write_text(patch())
    for remote in ("a", "b"):
        git("update-ref", f"refs/remotes/{remote}/main", "main")
    bases = [f"git:{folder}@a/main", f"git:{folder}@b/main"]
    first, second = (patched_kernel([text.format(tmp_path)], base).patched for base in bases)
    assert first.name != second.name
    for spec in (first, second):
        assert find_kernel(spec.name) == spec
        assert named_kernel(spec.name, Path("case.toml"), "k") == spec
        assert list_all_kernels()[spec.name] == spec


def test_a_name_that_two_kernels_have_is_refused(with_defaults: Path, tmp_path: Path) -> None:
    """As an earlier numalab gave it."""
    folder, git = in_git(with_defaults)
    (tmp_path / "x.patch").write_text(patch())
    series = load_series(tmp_path / "x.patch")
    for remote in ("a", "b"):
        git("update-ref", f"refs/remotes/{remote}/main", "main")
        save_patch(series, f"git:{folder}@{remote}/main", remote, named=False)
    for file in cache_dir("patches").glob("*/patch.json"):
        file.write_text(re.sub('"kernel": "[ab]', '"kernel": "main', file.read_text()))
    [name] = {record.kernel for record in saved_patches()}
    message = f"'{re.escape(name)}' is the name of kernels on git:.*@a/main and git:.*@b/main; name"
    with pytest.raises(UserError, match=message):
        find_kernel(name)
    with pytest.raises(UserError, match=message):
        named_kernel(name, Path("case.toml"), "k")
    again = patched_kernel([str(tmp_path / "x.patch")], f"git:{folder}@b/main").patched
    assert again.name != name
    assert find_kernel(again.name) == again
    with pytest.raises(UserError, match=message):
        find_kernel(name)


def test_a_kernel_whose_base_was_moved_is_the_one_whose_base_exists(
    with_defaults: Path, tmp_path: Path
) -> None:
    """An earlier numalab gave both one name."""
    folder, _ = in_git(with_defaults)
    (tmp_path / "x.patch").write_text(patch())
    series, present = load_series(tmp_path / "x.patch"), f"git:{folder}@main"
    for base, label in ((present, "a"), (f"git:{tmp_path}/moved@main", "b")):
        save_patch(series, base, label, named=False)
    for file in cache_dir("patches").glob("*/patch.json"):
        file.write_text(re.sub('"kernel": "[ab]', '"kernel": "main', file.read_text()))
    [name] = {record.kernel for record in saved_patches()}
    assert find_kernel(name).source == present
    assert list_all_kernels()[name] == find_kernel(name)
    shutil.rmtree(folder)
    assert find_kernel(name).name == name, "its build says that the base is gone"


def read_version(source: str) -> str:
    folder, revision = source.removeprefix("git:").split("@")
    words = ["git", "-C", folder, "rev-parse", f"{revision}^{{commit}}"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("older", "newer"), [("6.12.3", "6.12.10"), ("6.12.0-rc3", "6.12.0"), ("5.19", "6.1")]
)
def test_versions_are_sorted_by_number(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("v2_20240101_sched_fix", "v2_20240101_sched_fix"),
        ("linux@v6.18..my/topic", "linux-v6.18-my-topic"),
        ("../../etc", "etc"),
        ("\x1b[31m\u00fc", "31m"),
        ("", "patch"),
        ("x" * 80, "x" * 40),
    ],
)
def test_names_of_patches_are_safe(text: str, name: str) -> None:
    assert short_name(text) == name
