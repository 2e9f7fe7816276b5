"""A scheduler's build: from sources with a toolkit whose BPF part is played by scripts."""

import dataclasses
import subprocess
from pathlib import Path

import pytest

from numalab.errors import BuildError, UserError
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.scheduler import scheduler_artifact
from numalab.scheduler.scheduler_artifact import ensure_scheduler
from numalab.scheduler.scheduler_spec import SchedulerSpec, find_scheduler
from numalab.scheduler.toolkit_artifact import Toolkit, check_kernel, ensure_toolkit

SPEC = KernelSpec("named", "", "linux-source-9.9", fragments=("guest",))
CLANG = """#!/bin/sh
case " $* " in
*" -v "*) printf '%s\\n' 'search starts here:' ' /usr/include' 'End of search list.' >&2 ;;
*" --version "*) echo 'clang version 19.1.7' ;;
*) grep -q BROKEN ./*.bpf.c && { echo 'scx_mine.bpf.c:1:1: error: BROKEN'; exit 1; }
   for word; do last=$word; done; echo object >"$last" ;;
esac
exit 0
"""
BPFTOOL = """#!/bin/sh
case $2 in
object) cp "$4" "$3" ;;
skeleton) echo "static const char *skeleton = \\"$5\\";" ;;
esac
"""
PROGRAM = '#include <stdio.h>\n#include "{0}.bpf.skel.h"\nint main(void) {{ puts(skeleton); }}\n'


def a_kernel(folder: Path, options: str) -> BuiltKernel:
    config = folder / "config"
    config.write_text(options)
    return BuiltKernel(
        "named", folder / "bzImage", "9.9.1", config, "", "d" * 32, (), "9.9.1", 1.0, "gcc", ""
    )


@pytest.fixture
def kernel(tmp_path: Path) -> BuiltKernel:
    return a_kernel(tmp_path, "CONFIG_SCHED_CLASS_EXT=y\nCONFIG_DEBUG_INFO_BTF=y\n")


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolkit:
    """A toolkit with the sources of one scheduler of the kernel."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "toolkit"
    (path / "src").mkdir(parents=True)
    for name, text in {"clang": CLANG, "bpftool": BPFTOOL}.items():
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    subprocess.run(["ar", "rc", path / "libbpf.a"], check=True)
    (path / "src/scx_simple.bpf.c").write_text("int x;\n")
    (path / "src/scx_simple.c").write_text(PROGRAM.format("scx_simple"))
    (path / "schedulers").write_text("scx_simple\n")
    toolkit = Toolkit(path)
    monkeypatch.setattr(scheduler_artifact, "find_clang", lambda: path / "clang")
    monkeypatch.setattr(scheduler_artifact, "ensure_toolkit", lambda *_: toolkit)
    return toolkit


def output(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


def mine(folder: Path, skeleton: str = "scx_mine") -> SchedulerSpec:
    (folder / "scx_mine.bpf.c").write_text("int y;\n")
    (folder / "scx_mine.c").write_text(PROGRAM.format(skeleton))
    return find_scheduler("scx_mine.bpf.c", folder=folder)


def test_a_tool_of_the_kernel_is_built_once(toolkit: Toolkit, kernel: BuiltKernel) -> None:
    built = ensure_scheduler(find_scheduler("scx_simple"), SPEC, kernel)
    assert (built.program.name, output(built.program)) == ("scx_simple", "scx_simple")
    toolkit.bpftool.unlink()
    assert ensure_scheduler(find_scheduler("scx_simple"), SPEC, kernel) == built


def test_a_tool_that_the_kernel_lacks_is_refused(toolkit: Toolkit, kernel: BuiltKernel) -> None:
    with pytest.raises(UserError, match=r"of named has no scx_pair.*valid: scx_simple"):
        ensure_scheduler(find_scheduler("scx_pair"), SPEC, kernel)


@pytest.mark.parametrize("skeleton", ["scx_mine", "scx_simple"])
def test_a_copy_may_keep_the_name_of_the_skeleton(
    toolkit: Toolkit, kernel: BuiltKernel, tmp_path: Path, skeleton: str
) -> None:
    built = ensure_scheduler(mine(tmp_path, skeleton), SPEC, kernel)
    assert (built.program.name, output(built.program)) == ("scx_mine", skeleton)


def test_an_edit_makes_another_program(
    toolkit: Toolkit, kernel: BuiltKernel, tmp_path: Path
) -> None:
    spec = mine(tmp_path)
    before = ensure_scheduler(spec, SPEC, kernel)
    (tmp_path / "scx").mkdir()
    (tmp_path / "scx/common.bpf.h").write_text("/* a header of its own */\n")
    after = ensure_scheduler(spec, SPEC, kernel)
    assert before.program != after.program


def test_a_folder_with_too_many_headers_is_refused(
    toolkit: Toolkit, kernel: BuiltKernel, tmp_path: Path
) -> None:
    spec = mine(tmp_path)
    for number in range(1001):
        (tmp_path / f"{number}.h").touch()
    with pytest.raises(UserError, match="more than 1000 headers lie beside it"):
        ensure_scheduler(spec, SPEC, kernel)


def test_an_error_of_the_compiler_is_shown(
    toolkit: Toolkit, kernel: BuiltKernel, tmp_path: Path
) -> None:
    spec = mine(tmp_path)
    (tmp_path / "scx_mine.bpf.c").write_text("BROKEN\n")
    with pytest.raises(BuildError, match="error: BROKEN"):
        ensure_scheduler(spec, SPEC, kernel)


def test_a_program_is_used_as_it_is(kernel: BuiltKernel, tmp_path: Path) -> None:
    (tmp_path / "scx_mine").write_bytes(b"\x7fELF")
    spec = find_scheduler("./scx_mine", folder=tmp_path)
    assert ensure_scheduler(spec, SPEC, kernel).program == tmp_path / "scx_mine"


def test_a_kernel_needs_sched_ext_and_for_a_toolkit_its_source(
    kernel: BuiltKernel, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"has no source: name a scheduler that is built"):
        ensure_toolkit(dataclasses.replace(SPEC, fragments=()), kernel)
    without = a_kernel(tmp_path, "CONFIG_DEBUG_INFO_BTF=y\n")
    with pytest.raises(UserError, match=r"named lacks SCHED_CLASS_EXT, as the fragment sched-ext"):
        check_kernel(without)
