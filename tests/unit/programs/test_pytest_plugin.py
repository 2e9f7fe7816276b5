"""The pytest plug-in: machines of markers and options, without a guest."""

import re
from pathlib import Path

import pytest

import numalab.api  # noqa: F401 - before the tests in this process, which would import it anew
from numalab import pytest_plugin

TEST = """
import pytest

@pytest.mark.numa({marker})
def test_it(guest, numa_machine):
    pass
"""


@pytest.mark.parametrize(
    ("marker", "ids"),
    [
        ('"ring-4", "mesh-8"', ["test_it[ring-4]", "test_it[mesh-8]"]),
        ('"ring-4", seeds=2', ["test_it[ring-4]", "test_it[ring-4-seed2]"]),
    ],
)
def test_a_test_runs_on_every_machine_and_seed(
    pytester: pytest.Pytester, marker: str, ids: list[str]
) -> None:
    pytester.makepyfile(TEST.format(marker=marker))
    done = pytester.runpytest("--collect-only", "-q")
    assert [line.rpartition("::")[2] for line in done.outlines if "::" in line] == ids


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("", "*name a machine, as in*"),
        ("4", "*name a machine, as in*"),
        ('"ring-4", seed=3', "*no option 'seed'*"),
        ('"ring-4", seeds=0', "*seeds=0 is not a number of 1 or more*"),
        ('"ring-4", events=5', "*events=5 is not a list of texts*"),
        ('"ring-4", events="sched:sched_switch"', "*'sched:sched_switch' is not a list of texts*"),
        ('"ring-4", packages=[1]', "*packages=?1? is not a list of texts*"),
        ('"ring-4", kernel=["debian-6.12"]', "*kernel=?'debian-6.12'? is not a text*"),
    ],
)
def test_wrong_markers_are_named(pytester: pytest.Pytester, marker: str, message: str) -> None:
    pytester.makepyfile(TEST.format(marker=marker))
    done = pytester.runpytest("--collect-only", "-q")
    assert done.ret != 0
    done.stdout.fnmatch_lines_random([message])
    done.stdout.no_fnmatch_line("*pytest_plugin.py*")  # of a traceback


def test_wrong_machines_fail_with_one_message(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST.format(marker='"rign-4"'))
    done = pytester.runpytest("-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*did you mean ring-4?*"])
    assert "Traceback" not in done.stdout.str()


def test_machines_of_the_option_may_have_blanks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST.format(marker='"ring-4"'))
    done = pytester.runpytest("--collect-only", "-q", "--numa-machines", "ring-2, mesh-2")
    assert "test_it[ring-2]" in done.stdout.str() and "test_it[mesh-2]" in done.stdout.str()


# In place of a guest: it keeps a file, and is lost in the second test.
LOST = """
import pytest
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from numalab.api import GuestLost
from numalab import pytest_plugin
from numalab.campaign.boot import run_folder

class Session:
    results, alive, machine = [], True, None
    def keep(self, folder, commands):
        folder.mkdir(parents=True)
        (folder / "console").write_text("panic")

class Machine:
    @contextmanager
    def boot(self, events):
        with run_folder(None) as directory:
            (directory.path / "console").write_text("panic")
            Session.path = directory.path
            yield Session()

@pytest.fixture(scope="session")
def numa_machine(request):
    machine = Machine()
    request.config.stash[pytest_plugin._GUESTS].machines[request.param] = machine
    return machine

@pytest.mark.numa("ring-2")
@pytest.mark.parametrize("name", ["a b", "a/b"])
def test_it(guest, name):
    raise GuestLost("the guest's kernel panicked", kept=Session.path)
"""


def test_what_is_kept_of_a_lost_guest_is_where_the_report_says(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(pytester.path / "cache"))
    pytester.makepyfile(LOST)
    done = pytester.runpytest("-q", "-p", "no:xdist")
    done.assert_outcomes(failed=2)
    text = done.stdout.str()
    folders = set(re.findall(r"kept: (\S+)", text))
    assert len(folders) == 2 and all(Path(folder, "console").is_file() for folder in folders)
    copies = set(re.findall(r"console, output and recordings: (\S+)", text))
    assert len(copies) == 2 and all(Path(folder, "console").is_file() for folder in copies)


OWN_MACHINE = """
import pytest

@pytest.fixture
def numa_machine():
    return object()

def test_it(guest):
    pass
"""
TOO_LATE = """
import pytest

@pytest.fixture
def mine(request):
    return request.getfixturevalue("guest")

@pytest.mark.numa("ring-4")
def test_it(mine):
    pass
"""


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("def test_it(guest):\n    pass\n", "*mark the test, as in @pytest.mark.numa*"),
        (TOO_LATE, "*a marked test names the fixture as an argument, not by getfixture*"),
        (OWN_MACHINE, "*needs numalab's fixture numa_machine, and another one took its place*"),
    ],
)
def test_a_test_without_a_machine_is_told_why(
    pytester: pytest.Pytester, test: str, message: str
) -> None:
    pytester.makepyfile(test)
    done = pytester.runpytest("-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([message])
    done.stdout.no_fnmatch_line("*StopIteration*")


# In place of a guest: which machine a worker of pytest-xdist gets.
WORKERS = """
import pytest

@pytest.fixture(scope="session")
def numa_machine(request):
    return request.param.topology

@pytest.mark.parametrize("number", range(5))
@pytest.mark.numa("ring-2", "mesh-8")
def test_it(number, numa_machine, worker_id, pytestconfig):
    (pytestconfig.rootpath / f"{numa_machine}.{worker_id}.{number}").touch()
"""


def test_with_xdist_the_workers_share_the_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WORKERS)
    done = pytester.runpytest_subprocess("-n", "2")
    done.assert_outcomes(passed=10)
    names = [path.name.split(".") for path in pytester.path.glob("*-*.gw*")]
    assert {machine for machine, _, _ in names} == {"ring-2", "mesh-8"}
    assert {worker for _, worker, _ in names} == {"gw0", "gw1"}


def test_the_marker_is_described(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest("--markers")
    done.stdout.fnmatch_lines(["@pytest.mark.numa(machine, ..., kernel=*"])
    assert "--numa-machines" in pytester.runpytest("--help").stdout.str()
    assert pytest_plugin.__doc__ is not None and "numa_machine" in pytest_plugin.__doc__
