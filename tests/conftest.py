"""What every test shares: golden files and where they lie."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from numalab.plugins import unload_plugins

pytest_plugins = ["pytester"]

# No deadline: a busy host must not fail a test. CI has the same examples every time, a developer
# new ones; a failure prints how to repeat it.
settings.register_profile(
    "numalab",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("numalab")

GOLDEN = Path(__file__).parent / "data" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/data/golden/<name>; a missing golden file fails."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--regenerate"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not path.exists():
            pytest.fail(f"{path} is missing; run pytest --regenerate and review it")
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def without_plugins() -> Iterator[None]:
    """Give the registries without plug-ins, and remove those that the test adds."""
    unload_plugins()
    yield
    unload_plugins()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI nothing is skipped in silence, except for hardware that a host may lack."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith("hardware:"):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped in CI: {reason}"
    return report
