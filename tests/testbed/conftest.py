"""The test bed: a virtual host of several nodes, up once for all tests that want the same one."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from numalab.emulator.emulator_artifact import ensure_emulator
from numalab.emulator.emulator_specs import find_emulator
from numalab.errors import HostError
from numalab.image.image_artifact import ensure_image
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.places import cache_dir
from numalab.topology.load import load_topology
from testbed.bed import Bed, Parts, render_argv, running
from testbed.disks import guests_disk, project_disk, python_disk
from testbed.kernel import host_kernel

HOSTS = Path(__file__).parent / "hosts"
# Not Debian 12's own: QEMU before 8.1 translates code while another CPU patches it.
EMULATOR = "qemu-10.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave limits to the bed, which counts CPU time: on a busy host all takes long in there."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(0))
    # What a bed is like before any guest comes first, while it has not had one.
    items.sort(key=lambda item: item.path.name != "test_pinned_guest.py")


def make_parts(folder: Path) -> Parts:
    """Return what every host of the bed is made of, built unless it is cached.

    numalab as it is now goes into `folder`. Raises HostError for what this host lacks.
    """
    cache = cache_dir("testbed")
    emulator = ensure_emulator(find_emulator(EMULATOR))
    guest = ensure_image(load_recipe("base"))
    more = (
        python_disk(cache),
        project_disk(folder),
        guests_disk(cache, ensure_kernel(find_kernel("debian-6.12")).bzimage, guest.path.parent),
    )
    root = ensure_image(load_recipe("host")).path
    return Parts(emulator.program, host_kernel(cache), root, more)


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """What every host of the bed is made of."""
    try:
        return make_parts(tmp_path_factory.mktemp("project"))
    except HostError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def boot_host(parts: Parts) -> Iterator[Callable[..., Bed]]:
    """Give a function that boots a host of the folder `hosts`; it is up until the tests end."""
    with ExitStack() as stack:
        up: dict[tuple[str, ...], Bed] = {}

        def boot(name: str, *words: str) -> Bed:
            if (name, *words) not in up:
                topology = load_topology(HOSTS / f"{name}.toml")
                # Not pytest's own folder: a socket's name has room for 107 characters.
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bed-")))
                argv = render_argv(topology, parts, folder, words)
                up[name, *words] = stack.enter_context(running(argv, folder))
            return up[name, *words]

        yield boot


@pytest.fixture(scope="session")
def bed(boot_host: Callable[..., Bed]) -> Bed:
    """Four nodes in a ring, three CPUs each."""
    return boot_host("ring-4x3")
