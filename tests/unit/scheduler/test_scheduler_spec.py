"""Which scheduler a text names."""

from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.scheduler.scheduler_spec import SchedulerOrigin, find_scheduler
from numalab.study.model import load_study


def test_a_tool_of_the_kernel_and_a_crate_have_names() -> None:
    assert find_scheduler("scx_simple").origin is SchedulerOrigin.KERNEL
    crate = find_scheduler("scx_rusty", ["--slice-us-underutil", "20000"])
    assert (crate.origin, crate.version) == (SchedulerOrigin.CRATE, "1.1.4")
    assert crate.title == "scx_rusty 1.1.4 --slice-us-underutil 20000"
    other = find_scheduler("scx_new@0.1.2-rc1")
    assert (other.name, other.version) == ("scx_new", "0.1.2-rc1")


@pytest.mark.parametrize("text", ["scx_rusti", "scx_new@1", "scx new@1.0.0", "", "-h@1.0.0"])
def test_another_name_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(UserError, match=r"no scheduler is called .*scx_simple"):
        find_scheduler(text)


def test_a_path_is_relative_to_the_folder_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "scx_mine").write_bytes(b"\x7fELF")
    spec = find_scheduler("./scx_mine", folder=tmp_path)
    assert (spec.origin, spec.path) == (SchedulerOrigin.PROGRAM, tmp_path / "scx_mine")
    with pytest.raises(UserError, match="no such file"):
        find_scheduler("./scx_yours", folder=tmp_path)
    (tmp_path / "scx_script").write_text("#!/bin/sh\nexec ./scx_mine\n")
    with pytest.raises(UserError, match="is a script; name the program that it starts"):
        find_scheduler("./scx_script", folder=tmp_path)


def test_a_source_needs_the_program_that_loads_it(tmp_path: Path) -> None:
    (tmp_path / "scx_mine.bpf.c").touch()
    with pytest.raises(UserError, match=r"needs scx_mine\.c beside it"):
        find_scheduler("scx_mine.bpf.c", folder=tmp_path)
    (tmp_path / "scx_mine.c").touch()
    spec = find_scheduler("scx_mine.bpf.c", folder=tmp_path)
    assert (spec.name, spec.origin) == ("scx_mine", SchedulerOrigin.SOURCE)


@pytest.mark.parametrize("name", ["scx mine", "scx'mine", "-scx", "é"])
def test_a_name_that_a_shell_could_misread_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match="is no name of a scheduler"):
        find_scheduler(f"./{name}", folder=tmp_path)


def test_arguments_are_bounded_lines() -> None:
    with pytest.raises(UserError, match="lines of text"):
        find_scheduler("scx_simple", ["-f"] * 101)
    with pytest.raises(UserError, match="lines of text"):
        find_scheduler("scx_simple", ["-f\n-v"])


@pytest.mark.parametrize("key", ["scheduler_arguments = ['-f']", "scheduler_watchdog = 5"])
def test_keys_about_a_scheduler_need_one(key: str, tmp_path: Path) -> None:
    text = (
        'question = "q"\ntopologies = ["ring-2"]\nseeds = [1]\n[[workloads]]\nname = "hogs"\n'
        f'[variants.mine]\nkernel = "debian-6.12-sched-ext"\n{key}\n'
    )
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(UserError, match="needs `scheduler`"):
        load_study(file)
    file.write_text(text + 'scheduler = "scx_simple"\n')
    assert load_study(file).variants["mine"].scheduler == "scx_simple"
    file.write_text(text.replace(key, "scheduler_watchdog = 31\n") + 'scheduler = "scx_simple"\n')
    with pytest.raises(UserError, match="scheduler_watchdog"):
        load_study(file)
