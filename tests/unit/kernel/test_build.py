import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.artifact.builder import build_failed
from numalab.artifact.digest import hash_file
from numalab.errors import BuildError, HostError, UserError
from numalab.kernel import kernel_build as build
from numalab.kernel.kernel_build import built_kernel, ensure_kernel, inputs_of, read_inputs
from numalab.kernel.patched_kernel import find_kernel
from numalab.locks import locked
from numalab.source import kernel_source as source


def packed(path: str) -> str:
    """Return a file of the fake source package."""
    return (source.PACKAGES.parent / "packing/linux-source-9.9" / path).read_text()


def write_topology(project: Path, word: str) -> None:
    """Let the series write `word` into the file that the fake make looks at."""
    patch = project / "kernel-configs/series/change/0001-change.patch"
    patch.write_text(patch.read_text().replace("+line ten", f"+{word}"))


def test_builds_once_and_the_variant_in_the_same_tree(project: Path) -> None:
    steps: list[tuple[str, float | None]] = []
    plain = ensure_kernel(find_kernel("plain"), on_progress=lambda *step: steps.append(step))
    assert plain.bzimage.read_text().startswith("line 1\n")
    assert plain.config is not None
    assert "CONFIG_SMP=y" in plain.config.read_text()
    assert "CONFIG_EXPERT=y" in plain.config.read_text()
    assert (plain.release, plain.source_version) == ("9.9.1", "9.9.1")
    assert plain.series == ()
    assert plain.symbols is not None
    assert plain.symbols.read_bytes().startswith(b"\x7fELF")
    assert ("kernel/sched/topology.o", 1 / build.STEPS) in steps
    assert built_kernel(find_kernel("plain")) == plain
    assert ensure_kernel(find_kernel("plain")) == plain

    assert built_kernel(find_kernel("changed")) is None
    changed = ensure_kernel(find_kernel("changed"))
    assert changed.bzimage.read_text() == plain.bzimage.read_text().replace("line 10", "line ten")
    [info] = changed.series
    assert (info.name, info.patches) == ("change", ("sched: change line ten",))
    assert changed.digest != plain.digest
    assert changed.config_hash == plain.config_hash
    assert plain.runs_in_icount and not replace(plain, release="6.4.16").runs_in_icount
    paused = replace(info, name="relax-at-bring-up")
    assert replace(plain, release="6.4.16", series=(paused,)).runs_in_icount
    trees = list((plain.bzimage.parents[2] / "kernel-trees").glob("*/source/build-*"))
    assert len(trees) == 1  # one tree and one build folder for both


def test_a_kernel_from_the_cache_has_the_names_of_its_own_series(project: Path) -> None:
    """The same patches by the name of a series, by the file, and by a number are one build."""
    named = find_kernel("changed")
    file = str(project / "kernel-configs/series/change/0001-change.patch")
    by_file = replace(named, name="by-file", series=(file,))
    first = ensure_kernel(by_file)
    assert [info.name for info in first.series] == ["0001-change"]
    cached = built_kernel(named)
    assert cached is not None and cached.bzimage == first.bzimage
    assert [(cached.spec_name, info.name) for info in cached.series] == [("changed", "change")]


def test_the_same_inputs_give_the_same_bytes_after_a_variant(project: Path) -> None:
    first = ensure_kernel(find_kernel("plain"))
    before = first.bzimage.read_bytes()
    ensure_kernel(find_kernel("changed"))
    shutil.rmtree(first.bzimage.parent)
    assert built_kernel(find_kernel("plain")) is None
    again = ensure_kernel(find_kernel("plain"))
    assert (again.digest, again.bzimage.read_bytes()) == (first.digest, before)


def test_the_digest_depends_on_every_input(
    project: Path, pack: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = find_kernel("changed")
    earlier = {read_inputs(spec).digest}

    def is_new() -> bool:
        digest = read_inputs(spec).digest
        new = digest not in earlier
        earlier.add(digest)
        return new

    assert not is_new()
    fragment = project / "kernel-configs/guest.config"
    text = fragment.read_text()
    fragment.write_text(text.replace("More than one", "Many"))
    assert not is_new()  # a reason is not an input
    fragment.write_text(text + "\n# Why.\nCONFIG_A=3\n")
    assert is_new()
    write_topology(project, "line TEN")
    assert is_new()
    pack({"kernel/sched/topology.c": packed("kernel/sched/topology.c") + "more\n"})
    assert is_new()
    monkeypatch.setattr(build, "SETTINGS", {**build.SETTINGS, "KCFLAGS": "-O3"})
    assert is_new()
    monkeypatch.setattr(build, "version_line", lambda *_: "another compiler")
    assert is_new()
    spec = replace(spec, series=())
    assert is_new()


def test_what_a_kernel_was_built_from_may_change(project: Path) -> None:
    """Line tables and toolkits are made later, and must be of the kernel's own sources."""
    spec = find_kernel("plain")
    built = ensure_kernel(spec)
    assert inputs_of(spec, built) == read_inputs(spec)
    fragment = project / "kernel-configs/guest.config"
    fragment.write_text(fragment.read_text() + "\n# Why.\nCONFIG_NOW=y\n")
    with pytest.raises(UserError, match="what plain was built from has changed"):
        inputs_of(spec, built)


def test_only_a_kernel_with_btf_uses_pahole(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[str] = []

    def version(program: str, package: str) -> str:
        programs.append(program)
        return f"{program} of {package}"

    monkeypatch.setattr(build, "version_line", version)
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/bin/{name}")
    spec = find_kernel("plain")
    plain = read_inputs(spec)
    assert (plain.settings["PAHOLE"], programs) == ("false", ["gcc", "ld"])
    fragment = project / "kernel-configs/guest.config"
    fragment.write_text(fragment.read_text() + f"\n# Types.\n{build.BTF}=y\n")
    with_btf = read_inputs(spec)
    assert with_btf.settings["PAHOLE"] == "pahole"
    assert "pahole of dwarves" in with_btf.compiler
    assert with_btf.config_digest != plain.config_digest
    monkeypatch.setattr(
        "shutil.which", lambda name, **_: None if name == "pahole" else f"/usr/bin/{name}"
    )
    assert built_kernel(spec) is None, "it can be looked for without pahole"
    with pytest.raises(HostError, match="pahole is not installed"):
        ensure_kernel(spec)


def test_a_damaged_entry_is_built_again(project: Path) -> None:
    built = ensure_kernel(find_kernel("plain"))
    whole = built.bzimage.read_bytes()
    built.bzimage.write_bytes(whole[:-1])
    assert built_kernel(find_kernel("plain")) is None
    assert ensure_kernel(find_kernel("plain")).bzimage.read_bytes() == whole
    assert built.config is not None
    built.config.write_bytes(b"")  # what a power cut may leave
    assert built_kernel(find_kernel("plain")) is None
    assert ensure_kernel(find_kernel("plain")).config_hash == hash_file(built.config)
    (built.bzimage.parent / "kernel.json").write_text('{"digest": 1}')
    assert built_kernel(find_kernel("plain")) is None


def test_a_package_that_is_not_here_is_asked_of_the_mirror(project: Path) -> None:
    (source.PACKAGES / "linux-source-9.9.tar.xz").unlink()
    assert built_kernel(find_kernel("plain")) is None
    with pytest.raises(HostError, match="there is no mirror in tests"):
        ensure_kernel(find_kernel("plain"))


@pytest.mark.parametrize("installed", [True, False])
def test_ccache_is_used_where_it_is(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    real = shutil.which

    def which(name: str, mode: int = os.F_OK | os.X_OK, path: str | None = None) -> str | None:
        if name == "ccache":
            return "/usr/bin/ccache" if installed else None
        return real(name, mode, path)

    monkeypatch.setattr(shutil, "which", which)
    ensure_kernel(find_kernel("plain"))
    log = "".join(path.read_text() for path in (tmp_path / "cache").rglob("*.log"))
    assert ("compiler: ccache gcc" in log) is installed


def test_a_missing_tool_names_the_command(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "TOOLS", {**build.TOOLS, "no-such-tool": "some-package"})
    with pytest.raises(HostError, match="no-such-tool is not installed\n  hint: apt-get install"):
        ensure_kernel(find_kernel("plain"))


def test_a_damaged_or_empty_tarball(project: Path, pack: Callable[..., Path]) -> None:
    tarball = source.PACKAGES / "linux-source-9.9.tar.xz"
    tarball.write_bytes(b"not a tarball")
    with pytest.raises(BuildError, match=f"{re.escape(str(tarball))} holds no kernel"):
        ensure_kernel(find_kernel("plain"))
    shutil.rmtree(source.PACKAGES.parent / "packing")
    pack({"README": "no kernel"})
    with pytest.raises(BuildError, match="holds no kernel: it has no Makefile of one"):
        ensure_kernel(find_kernel("plain"))
    cache = Path(os.environ["NUMALAB_CACHE"]) / "kernel-trees"
    assert list(cache.glob("*/source")) == []  # nothing that looks unpacked


def test_a_tarball_that_is_cut_short(project: Path, pack: Callable[..., Path]) -> None:
    """The Makefile can still be read, so that only unpacking finds it out."""
    tarball = pack({"zz": os.urandom(1 << 16).hex()})
    tarball.write_bytes(tarball.read_bytes()[:-20000])
    with pytest.raises(BuildError, match=f"cannot unpack {re.escape(str(tarball))}"):
        ensure_kernel(find_kernel("plain"))
    cache = Path(os.environ["NUMALAB_CACHE"]) / "kernel-trees"
    assert list(cache.glob("*/source")) == []


def test_a_tarball_of_two_folders_is_refused(project: Path, tmp_path: Path) -> None:
    tarball = source.PACKAGES / "linux-source-9.9.tar.xz"
    packing = tmp_path / "packing"
    (packing / "another").mkdir()
    tops = ("linux-source-9.9", "another")
    subprocess.run(["tar", "-C", packing, "-cJf", tarball, *tops], check=True)
    with pytest.raises(UserError) as caught:
        ensure_kernel(find_kernel("plain"))
    assert str(caught.value) == (
        f"{tarball}: holds another, linux-source-9.9; pack one folder that holds all"
    )
    cache = Path(os.environ["NUMALAB_CACHE"]) / "kernel-trees"
    assert list(cache.glob("*/source")) == []
    subprocess.run(["tar", "-C", packing, "-cJf", tarball, f"./{tops[0]}"], check=True)
    assert ensure_kernel(find_kernel("plain")).source_version == "9.9.1"


def test_a_refused_option_is_named_with_the_reason(project: Path) -> None:
    fragment = project / "kernel-configs/guest.config"
    asked = (("REFUSED", "y"), ("UNKNOWN", "n"), ("CHANGED", "3"), ("NOSUCH", "y"))
    options = "".join(f"\n# Why.\nCONFIG_{name}={value}\n" for name, value in asked)
    fragment.write_text(fragment.read_text() + options)
    with pytest.raises(UserError) as caught:
        ensure_kernel(find_kernel("plain"))
    assert str(caught.value).splitlines() == [
        f"{fragment}:7: CONFIG_REFUSED=y: the configuration refused it: it depends on NEVER && SMP,"
        " with NEVER=n (Kconfig:1)",
        "guest.config:13: CONFIG_CHANGED=3: the configuration has 7 instead",
        "guest.config:16: CONFIG_NOSUCH=y: Linux 9.9.1 has no such option; if others have it, let"
        ' its reason begin with "Since X.Y:" or "Until X.Y:"',
    ]
    assert built_kernel(find_kernel("plain")) is None


def test_an_option_that_is_off_has_to_exist(project: Path) -> None:
    fragment = project / "kernel-configs/guest.config"
    hidden = (
        "\n# Off, and not in .config.\nCONFIG_REFUSED=n\n\n# Since 9.10: no.\nCONFIG_NOSUCH=n\n"
    )
    text = fragment.read_text() + hidden
    fragment.write_text(text)
    assert ensure_kernel(find_kernel("plain"))
    fragment.write_text(text.replace("Since 9.10: no", "Since 9.8: no"))
    with pytest.raises(UserError, match=r"fig:10: CONFIG_NOSUCH=n: Linux 9\.9\.1 has no suc"):
        ensure_kernel(find_kernel("plain"))


def test_an_option_of_other_versions_is_not_asked_for(project: Path) -> None:
    fragment = project / "kernel-configs/guest.config"
    more = "\n# Since 9.10: later.\nCONFIG_NOSUCH=y\n\n# Until 9.9: now.\nCONFIG_NOW=y\n"
    fragment.write_text(fragment.read_text() + more)
    built = ensure_kernel(find_kernel("plain"))
    assert built.config is not None
    assert "CONFIG_NOW=y" in built.config.read_text()
    assert "CONFIG_NOSUCH" not in built.config.read_text()


def test_a_series_that_does_not_apply_names_the_patch(project: Path) -> None:
    patch = project / "kernel-configs/series/change/0001-change.patch"
    patch.write_text(patch.read_text().replace("-line 10", "-line X"))
    with pytest.raises(UserError) as caught:
        ensure_kernel(find_kernel("changed"))
    assert str(caught.value).startswith(f"{patch}: does not apply: hunk 1 of 1 does not fit kernel")
    assert "  > line 10" in str(caught.value)


def test_a_compile_error_ends_with_the_log(project: Path) -> None:
    write_topology(project, "BROKEN")
    with pytest.raises(BuildError) as caught:
        ensure_kernel(find_kernel("changed"))
    text = str(caught.value)
    assert text.startswith("changed does not build\n  | kernel/sched/topology.c:2:1: error: expec")
    assert caught.value.log is not None
    assert text.endswith(f"log: {caught.value.log}")
    assert "error: expected declaration" in caught.value.log.read_text()
    assert built_kernel(find_kernel("changed")) is None
    write_topology(project, "line ten")


def test_a_full_disk_is_one_message(project: Path) -> None:
    write_topology(project, "FULL")
    with pytest.raises(HostError, match="no space left on the disk while changed was built"):
        ensure_kernel(find_kernel("changed"))


def test_a_full_disk_while_unpacking_is_one_message(project: Path) -> None:
    package = source.find_source("linux-source-9.9")
    full = "tar: x: Cannot write: No space left on device\n"
    error = source.unpack_failed(package.name, Path("x.tar"), package.folder, full)
    assert isinstance(error, HostError)
    assert str(error).startswith("no space left on the disk of ")
    assert "\n  hint: free 3 GB there" in str(error)


def test_a_missing_header_names_its_package(project: Path) -> None:
    write_topology(project, "LIBELF")
    with pytest.raises(HostError, match=r"without gelf\.h\n  log: .*\n  hint: apt-get install lib"):
        ensure_kernel(find_kernel("changed"))


def test_first_errors_come_before_the_last_lines(tmp_path: Path) -> None:
    tail = "\n".join(["make: *** [x] Error 2", "  CC later.o"])
    error = build_failed("k", ["a.c:1: error: x", "make: *** [x] Error 2"], tail, tmp_path / "log")
    assert isinstance(error, BuildError)
    assert error.tail.splitlines() == ["a.c:1: error: x", "make: *** [x] Error 2", "  CC later.o"]


def test_a_path_that_kbuild_cannot_take(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "with space"))
    with pytest.raises(HostError, match="takes no space or colon in a path\n  hint: set NUMALAB"):
        ensure_kernel(find_kernel("plain"))


def test_a_build_that_was_killed_starts_afresh(project: Path) -> None:
    plain = ensure_kernel(find_kernel("plain"))
    cache = Path(os.environ["NUMALAB_CACHE"])
    [out] = cache.glob("kernel-trees/*/source/build-*")
    (out / "numalab.building").touch()
    (out / "half.o").touch()
    shutil.rmtree(plain.bzimage.parent)
    assert ensure_kernel(find_kernel("plain")).digest == plain.digest
    assert not (out / "half.o").exists()
    assert not (out / "numalab.building").exists()


def test_an_interrupted_build_leaves_nothing_that_looks_finished(
    project: Path, pack: Callable[..., Path]
) -> None:
    makefile = packed("Makefile")
    waits = makefile.replace("\t@cat kernel", "\t@touch $(O)/reached; sleep 60\n\t@cat kernel")
    pack({"Makefile": waits})
    script = (
        "from pathlib import Path; import sys; import numalab.source.kernel_source as s;"
        "s.PACKAGES = Path(sys.argv[1]); from numalab.kernel.kernel_build import *;"
        "from numalab.kernel.patched_kernel import find_kernel; ensure_kernel(find_kernel('plain'))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, source.PACKAGES], stderr=subprocess.PIPE, text=True
    )
    cache = Path(os.environ["NUMALAB_CACHE"])
    deadline = time.monotonic() + 30
    while not list(cache.glob("kernel-trees/*/source/build-*/reached")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in stderr
    assert list((cache / "kernels").glob("*")) == []
    assert built_kernel(find_kernel("plain")) is None


def test_two_processes_build_one_after_the_other(project: Path) -> None:
    script = (
        "from pathlib import Path; import sys; import numalab.source.kernel_source as s;"
        "s.PACKAGES = Path(sys.argv[1]); from numalab.kernel.kernel_build import *;"
        "from numalab.kernel.patched_kernel import find_kernel;"
        "print(ensure_kernel(find_kernel(sys.argv[2])).digest)"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, source.PACKAGES, name],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("plain", "changed", "plain")
    ]
    digests = [child.communicate(timeout=60)[0].strip() for child in children]
    assert all(child.returncode == 0 for child in children)
    assert digests[0] == digests[2] != digests[1]
    changed = built_kernel(find_kernel("changed"))
    plain = built_kernel(find_kernel("plain"))
    assert changed is not None
    assert plain is not None
    assert "line ten" in changed.bzimage.read_text()
    assert "line ten" not in plain.bzimage.read_text()


def test_the_progress_of_a_build_that_continues_begins_where_it_was(project: Path) -> None:
    first = ensure_kernel(find_kernel("plain"))
    folder = source.find_source("linux-source-9.9").folder
    (out,) = (folder / "source").glob("build-*")
    (out / "vmlinux").unlink()
    for number in range(90):
        (out / f"{number}.o").touch()
    shutil.rmtree(first.bzimage.parent)
    steps: list[tuple[str, float | None]] = []
    ensure_kernel(find_kernel("plain"), on_progress=lambda *step: steps.append(step))
    (share,) = (share for name, share in steps if name == "kernel/sched/topology.o")
    assert share is not None
    assert share >= 91 / build.STEPS


def test_waiting_for_another_build_is_said(project: Path) -> None:
    folder = source.find_source("linux-source-9.9").folder
    steps: list[str] = []
    with locked(folder / "lock"):
        waiting = threading.Thread(
            target=lambda: ensure_kernel(
                find_kernel("plain"), on_progress=lambda text, _: steps.append(text)
            )
        )
        waiting.start()
        deadline = time.monotonic() + 30
        while not steps:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert steps == ["waiting for another build"]
    waiting.join()
    assert steps[-1] == "kernel/sched/topology.o"
