"""A pytest plug-in: tests of programs on NUMA machines.

    @pytest.mark.numa("ring-4", "mesh-8")
    def test_memory_is_near(guest):
        result = guest.run(["numactl", "--membind=1", "./fill", "64"], memory=True).check()
        assert result.memory_share(1) > 0.9

The marker names machines; a test runs once on each. `guest` is a running guest that the tests of
one machine share; `numa_machine` is the machine, and `compare_programs` compares two programs on
it. With pytest-xdist, each worker has a guest of its own.
"""

import hashlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from numalab.run_dir import RunDir

if TYPE_CHECKING:  # a test run without the marker must not pay for the import
    from numalab.api import GuestSession, LabMachine, ProgramComparison, Topology

_FIXTURES = ("numa_machine", "guest", "compare_programs")
_OPTIONS = ("kernel", "mode", "image", "packages", "events", "seeds")
_PROGRESS_SECONDS = 5.0
_GUESTS = pytest.StashKey["_Guests"]()
_COMMANDS = pytest.StashKey[int]()
_WrongMarker = pytest.Collector.CollectError  # pytest shows its text only


@dataclass(frozen=True)
class _Wanted:
    """A machine that a test asks for, with the options of its marker."""

    topology: str
    seed: int
    kernel: str
    mode: str
    image: str
    packages: tuple[str, ...]
    events: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.topology if self.seed == 1 else f"{self.topology}-seed{self.seed}"


@dataclass
class _Guests:
    """The machines that were built, and the one guest that runs."""

    machines: dict[_Wanted, "LabMachine"] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)
    wanted: _Wanted | None = None
    session: "GuestSession | None" = None

    def of(self, wanted: _Wanted) -> "GuestSession":
        """Return a running guest; boot one if another machine or none runs."""
        if self.session is None or self.wanted != wanted or not self.session.alive:
            self.end()
            started = self.machines[wanted].boot(events=wanted.events)
            self.session, self.wanted = self.stack.enter_context(started), wanted
        return self.session

    def end(self) -> None:
        self.session = None
        self.stack.close()

    def lose(self, error: BaseException) -> BaseException | None:
        """End a guest that was lost; return the error with the folder that is kept of it."""
        from numalab.api import GuestLost  # noqa: PLC0415

        if not isinstance(error, GuestLost) or self.session is None:
            return None
        self.session = None
        try:
            self.stack.__exit__(type(error), error, error.__traceback__)
        except GuestLost as moved:
            return moved.with_traceback(error.__traceback__)
        return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("numalab", "NUMA machines (numalab)")
    group.addoption(
        "--numa-machines",
        metavar="NAME,...",
        help="machines for tests with the marker numa, instead of those that it names",
    )
    group.addoption("--numa-kernel", metavar="NAME", help="kernel of these machines")
    group.addoption("--numa-mode", metavar="MODE", help="mode of these machines")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    options = ", ".join(f"{name}=" for name in _OPTIONS)
    config.addinivalue_line("markers", f"numa(machine, ..., {options}): run on these NUMA machines")
    config.stash[_GUESTS] = _Guests()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the guest."""
    if guests := config.stash.get(_GUESTS, None):
        guests.end()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on each machine of its marker."""
    marker = metafunc.definition.get_closest_marker("numa")
    if marker is None or not set(_FIXTURES) & set(metafunc.fixturenames):
        return
    wanted = _wanted(marker, metafunc.config)
    metafunc.parametrize(
        "numa_machine", wanted, ids=[choice.id for choice in wanted], indirect=True, scope="session"
    )


def _wanted(marker: pytest.Mark, config: pytest.Config) -> list[_Wanted]:
    if unknown := sorted(marker.kwargs.keys() - set(_OPTIONS)):
        raise _WrongMarker(f"marker numa: no option {unknown[0]!r} (valid: {_OPTIONS})")
    options: dict[str, Any] = dict(marker.kwargs)
    machines = marker.args
    if text := config.getoption("--numa-machines"):
        machines = tuple(name.strip() for name in text.split(","))
    if not machines or not all(isinstance(name, str) for name in machines):
        raise _WrongMarker('marker numa: name a machine, as in @pytest.mark.numa("ring-4")')
    seeds = options.pop("seeds", 1)
    if type(seeds) is not int or seeds < 1:
        raise _WrongMarker(f"marker numa: seeds={seeds!r} is not a number of 1 or more")
    for name, preset in (("kernel", "debian-6.12"), ("mode", "auto"), ("image", "base")):
        chosen = config.getoption(f"--numa-{name}", default=None)
        options[name] = chosen or options.get(name, preset)
        if not isinstance(options[name], str):
            raise _WrongMarker(f"marker numa: {name}={options[name]!r} is not a text")
    for name in ("packages", "events"):
        texts = options.get(name, ())
        if not isinstance(texts, list | tuple) or not all(isinstance(word, str) for word in texts):
            raise _WrongMarker(f"marker numa: {name}={texts!r} is not a list of texts")
        options[name] = tuple(texts)
    return [
        _Wanted(topology=name, seed=seed, **options)
        for name in machines
        for seed in range(1, seeds + 1)
    ]


@pytest.fixture(scope="session")
def numa_machine(request: pytest.FixtureRequest) -> "LabMachine":
    """The machine of this test: a `numalab.api.LabMachine`, with its kernel and image built."""
    from numalab.api import LabError, machine  # noqa: PLC0415

    wanted = getattr(request, "param", None)
    if not isinstance(wanted, _Wanted):
        how = 'mark the test, as in @pytest.mark.numa("ring-4")'
        late = "a marked test names the fixture as an argument, not by getfixturevalue()"
        pytest.fail(f"{how}; {late}", pytrace=False)
    guests = request.config.stash[_GUESTS]
    if wanted not in guests.machines:
        try:
            guests.machines[wanted] = machine(
                wanted.topology,
                mode=wanted.mode,
                kernel=wanted.kernel,
                image=wanted.image,
                packages=wanted.packages,
                seed=wanted.seed,
                on_progress=_progress(request.config),
            )
        except LabError as error:
            pytest.fail(f"numalab: {error}", pytrace=False)
    return guests.machines[wanted]


@pytest.fixture
def guest(request: pytest.FixtureRequest, numa_machine: "LabMachine") -> "GuestSession":
    """A running guest: a `numalab.api.GuestSession`. Tests of the same machine share it."""
    from numalab.api import LabError  # noqa: PLC0415

    guests = request.config.stash[_GUESTS]
    keys = (key for key, built in guests.machines.items() if built is numa_machine)
    if (wanted := next(keys, None)) is None:
        reason = "guest needs numalab's fixture numa_machine, and another one took its place"
        pytest.fail(reason, pytrace=False)
    try:
        session = guests.of(wanted)
    except LabError as error:
        pytest.fail(f"numalab: {error}", pytrace=False)
    request.node.stash[_COMMANDS] = len(session.results)
    return session


@pytest.fixture
def compare_programs(
    request: pytest.FixtureRequest, numa_machine: "LabMachine"
) -> "Callable[..., ProgramComparison]":
    """A function that compares two commands: `numalab.api.compare_programs` on this machine."""
    from numalab import api  # noqa: PLC0415

    progress = _progress(request.config)
    return partial(api.compare_programs, numa_machine, on_progress=progress)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the files of a test that failed, and say where they are."""
    session: GuestSession | None = getattr(item, "funcargs", {}).get("guest")
    before = item.stash.get(_COMMANDS, None)  # another plug-in may have a fixture of this name
    kept = ""
    if call.when == "call" and call.excinfo is not None and session and before is not None:
        kept = _kept(item, session)
        moved = item.config.stash[_GUESTS].lose(call.excinfo.value)
        if moved is not None:  # the folder that the error names has another name now
            call.excinfo = pytest.ExceptionInfo.from_exception(moved)
    report = yield
    if kept and report.failed:
        report.sections.append(("numalab", kept))
    return report


def _kept(item: pytest.Item, session: "GuestSession") -> str:
    """Copy console and files of a test's commands; return what happened, and where they are."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", item.nodeid)[-90:].strip("-.")
    name = f"{words}-{hashlib.sha256(item.nodeid.encode('utf-8', 'replace')).hexdigest()[:6]}"
    cache = getattr(item.config, "cache", None)  # -p no:cacheprovider leaves it out
    kept = Path(cache.mkdir("numalab")) if cache else item.config.rootpath / "numalab-failed"
    folder = kept / name
    shutil.rmtree(folder, ignore_errors=True)
    commands = session.results[item.stash[_COMMANDS] :]
    lines = [str(command) for command in commands[-3:]]
    session.keep(folder, commands)
    pages = [f"page: {page}" for page in _pages(folder, session.machine)]
    return "\n".join([*lines, f"console, output and recordings: {folder}", *pages])


def _pages(folder: Path, topology: "Topology") -> Iterator[Path]:
    """Write a page for each command whose events were recorded."""
    from numalab.api import LabError  # noqa: PLC0415
    from numalab.report.build.recording import (  # noqa: PLC0415
        measure_recording,
        recording_report,
    )
    from numalab.report.page.cell_page import render_html  # noqa: PLC0415

    for trace in sorted(folder.glob("command-*/out/trace.dat")):
        page = trace.parents[1] / "index.html"
        with suppress(LabError):  # the test's own failure matters more
            measured = measure_recording(trace, topology, RunDir(page.parent))
            report = recording_report(trace, measured, topology, ())
            page.write_text(render_html(report), encoding="utf-8")
            yield page


def _progress(config: pytest.Config) -> Callable[[str, float | None], None]:
    """Return a function that prints the progress of builds, past the capture of output."""
    capture = config.pluginmanager.getplugin("capturemanager")
    last = time.monotonic()

    def show(text: str, done: float | None) -> None:
        nonlocal last
        if time.monotonic() - last < _PROGRESS_SECONDS:
            return
        last = time.monotonic()
        part = "" if done is None else f" {done:.0%}"
        with ExitStack() as stack:
            if capture is not None:
                stack.enter_context(capture.global_and_fixture_disabled())
            sys.stderr.write(f"numalab:{part} {text}\n")
            sys.stderr.flush()

    return show
