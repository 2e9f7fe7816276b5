"""The pytest plug-in: machines of markers and options, without a guest."""

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
    ],
)
def test_wrong_markers_are_named(pytester: pytest.Pytester, marker: str, message: str) -> None:
    pytester.makepyfile(TEST.format(marker=marker))
    done = pytester.runpytest("--collect-only", "-q")
    assert done.ret != 0
    done.stdout.fnmatch_lines_random([message])


def test_wrong_machines_fail_with_one_message(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST.format(marker='"rign-4"'))
    done = pytester.runpytest("-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*did you mean ring-4?*"])
    assert "Traceback" not in done.stdout.str()


def test_a_test_without_the_marker_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(guest):\n    pass\n")
    done = pytester.runpytest("-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*mark the test, as in @pytest.mark.numa*"])


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
