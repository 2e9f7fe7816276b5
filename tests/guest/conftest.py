"""What every test with a real guest shares: a kernel, an image, and a way to boot them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from numalab.errors import HostError
from numalab.guest.run import Outcome, run_guest
from numalab.guest.watch import Limits
from numalab.image.image_artifact import BuiltImage, ensure_image
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_build import BuiltKernel, ensure_kernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.machine.model import Job, Machine, Mode
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from support.guest_types import LIMITS, Boot, MakeMachine

KERNEL = "debian-6.12"
IMAGE = "base"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything below this folder: it boots a real guest."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.guest)


@pytest.fixture(scope="session")
def kernel() -> BuiltKernel:
    """The kernel that guests boot, built unless it is cached."""
    try:
        return ensure_kernel(find_kernel(KERNEL))
    except HostError as error:
        _missing(error)


@pytest.fixture(scope="session")
def image() -> BuiltImage:
    """The root file system of the guests, built unless it is cached."""
    return _built(IMAGE)


@pytest.fixture(scope="session")
def bench_image() -> BuiltImage:
    """The root file system with the benchmarks that `base` has not."""
    return _built("bench")


def _built(name: str) -> BuiltImage:
    try:
        return ensure_image(load_recipe(name))
    except HostError as error:
        _missing(error)


def _missing(error: HostError) -> NoReturn:
    """A missing tool fails in CI, where everything has to be there, and skips elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(str(error))
    pytest.skip(str(error))


@pytest.fixture
def make_machine(kernel: BuiltKernel, image: BuiltImage) -> MakeMachine:
    def make(topology: str = "ring-2", mode: Mode = "icount", seed: int = 7) -> Machine:
        model = load_topology(topology)
        return Machine(model, kernel.bzimage, image.path, mode, seed, "test")

    return make


@pytest.fixture
def own_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A budget of the test's own: what else runs on this host must not decide it."""
    folder = tmp_path / "host"
    folder.mkdir()
    monkeypatch.setattr("numalab.host.budget.cache_dir", lambda *_: folder)
    return folder


@pytest.fixture
def boot(make_machine: MakeMachine, tmp_path: Path) -> Boot:
    count = 0

    def run(
        *argv: str,
        machine: Machine | None = None,
        events: tuple[str, ...] = (),
        files: Mapping[str, bytes] | None = None,
        limits: Limits = LIMITS,
    ) -> tuple[Outcome, RunDir]:
        nonlocal count
        count += 1
        run_dir = RunDir(tmp_path / f"run-{count}")
        job = Job(argv, events=events, files=files or {})
        return run_guest(machine or make_machine(), job, run_dir, limits=limits), run_dir

    return run
