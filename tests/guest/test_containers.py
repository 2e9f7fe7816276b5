"""Guests on a host like a CI runner, and like a container without privileges."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.image.image_artifact import BuiltImage, packages_digest
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_build import BuiltKernel
from support.control_groups import limited_memory
from support.other_user import NO_ENTRY, NO_RIGHTS, as_user, may_change_user, own_folder

ROOT = Path(__file__).parents[2]
NUMALAB = Path(sys.executable).with_name("numalab")
# No /dev/kvm and no /dev/shm; the processes of others are hidden; home and checkout are read-only.
CONTAINER = """
mount -t tmpfs -o mode=755,size=64k none /mnt
for device in null zero full random urandom; do
  touch /mnt/$device; mount --bind /dev/$device /mnt/$device
done
mount --move /mnt /dev
mount -t proc -o hidepid=2 none /proc
mount --bind {root} {root}; mount -o remount,ro,bind {root}
mount --bind {home} {home}; mount -o remount,ro,bind {home}
"""

pytestmark = pytest.mark.skipif(not may_change_user(), reason=NO_RIGHTS)


def test_a_container_without_privileges_boots_a_guest(
    kernel: BuiltKernel, image: BuiltImage
) -> None:
    """A user id without an entry in /etc/passwd, and a memory limit of a small runner."""
    with own_folder(NO_ENTRY) as folder:
        home, cache = folder / "home", folder / "cache"
        home.mkdir()
        for built, kind in ((kernel.bzimage.parent, "kernels"), (image.path.parent, "images")):
            shutil.copytree(built, cache / kind / built.name)
        digest = packages_digest(load_recipe("base"))
        (cache / "images/packages").mkdir()
        for packages in (image.path.parents[1] / "packages").glob(f"{digest[:32]}*.tar"):
            shutil.copy(packages, cache / "images/packages")
        for path in (cache, *cache.rglob("*")):
            os.chown(path, NO_ENTRY, NO_ENTRY)
        mounts = CONTAINER.strip().format(root=ROOT, home=home)
        env = {"NUMALAB_CACHE": str(cache), "HOME": str(home)}
        bare = as_user(NO_ENTRY, "ls", "/dev", env=env, mounts=mounts)
        try:
            with limited_memory(7 << 10) as group:
                done = as_user(
                    NO_ENTRY, NUMALAB, "boot", "ring-2", "--", "numactl", "-H",
                    env=env, mounts=mounts, before=group,
                )  # fmt: skip
        except OSError as error:
            pytest.skip(f"hardware: no control group of its own: {error}")
        left = sorted(path.name for path in home.iterdir())
    assert bare.stdout.split() == ["full", "null", "random", "urandom", "zero"], bare.stderr
    assert (done.returncode, left) == (0, []), done.stderr
    assert "available: 2 nodes (0-1)" in done.stdout


def test_a_guest_beyond_the_memory_of_its_group_is_explained(
    kernel: BuiltKernel, image: BuiltImage
) -> None:
    """The reason is in the message, not only the signal that ended QEMU.

    The kernel may end numalab too, if that allocates before QEMU's memory is free; then again.
    """
    script = "head -c 600000000 /dev/zero | tail | wc -c"
    words = ["boot", "ring-2", "--mode", "icount", "--", "sh", "-c", script]
    for _ in range(3):
        try:
            with limited_memory(450) as group:
                done = subprocess.run(
                    [*group, NUMALAB, *words],
                    capture_output=True, text=True, check=False, timeout=300,
                )  # fmt: skip
        except OSError as error:
            pytest.skip(f"hardware: no control group of its own: {error}")
        if done.returncode != -signal.SIGKILL:
            break
    assert done.returncode == 4, done.stderr
    assert "the host, or the cgroup of this process, ran out of memory" in done.stderr
