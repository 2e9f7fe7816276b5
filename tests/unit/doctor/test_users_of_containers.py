"""Users as containers and CI runners have them: no name, no subordinate ids, no home, few rights.

The real command runs as such a user.
"""

import json
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.other_user import NO_ENTRY, NO_RIGHTS, as_user, may_change_user, own_folder

NUMALAB = Path(sys.executable).with_name("numalab")
NOBODY = pwd.getpwnam("nobody").pw_uid
IDS = "nobody:100000:65536"
GIVE_IDS = "--add-subuids 100000-165535 --add-subgids 100000-165535"
CONNECT = """
import sys
from numalab.errors import LabError
from numalab.qemu.hypervisor import connect
try:
    connect(sys.argv[1])
except LabError as error:
    print(error, error.hint, sep="\\n")
"""

pytestmark = pytest.mark.skipif(not may_change_user(), reason=NO_RIGHTS)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user id without an entry in /etc/passwd."""
    with own_folder(NO_ENTRY) as path:
        yield path


def doctor(
    uid: int, cache: Path, mounts: str = "true", **env: str
) -> tuple[dict[str, dict[str, object]], "subprocess.CompletedProcess[str]"]:
    """Run `numalab doctor --json`; return its checks by name, and the process."""
    env = {"NUMALAB_CACHE": str(cache), **env}
    done = as_user(uid, NUMALAB, "doctor", "--json", env=env, mounts=mounts)
    assert "Traceback" not in done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)}, done


@pytest.mark.parametrize(
    ("uid", "subuid", "reason", "hint"),
    [
        (NO_ENTRY, f"{NO_ENTRY}:100000:65536", f"user id {NO_ENTRY} has no entry in /etc/passwd",
         f"useradd --uid {NO_ENTRY} numalab-{NO_ENTRY} && usermod {GIVE_IDS} numalab-{NO_ENTRY}"),
        (NOBODY, "root:100000:65536", "nobody has no line in /etc/subuid",
         f"usermod {GIVE_IDS} nobody"),
    ],
)  # fmt: skip
def test_doctor_and_the_build_of_an_image_agree_about_a_user(
    uid: int, subuid: str, reason: str, hint: str
) -> None:
    """USER is what sudo or a container left; it may be wrong."""
    mounts = _file("/etc/subuid", subuid)
    with own_folder(uid) as folder:
        checks, done = doctor(uid, folder / "cache", mounts, USER="root")
        env = {"NUMALAB_CACHE": str(folder / "cache"), "USER": "root"}
        build = as_user(uid, NUMALAB, "image", "build", "base", env=env, mounts=mounts)
    check = checks["user namespaces"]
    assert (check["ok"], done.returncode, build.returncode) == (False, 3, 3)
    assert check["found"] == f"cannot build an image without root: {reason}"
    assert check["hint"] == f"as root: {hint}"
    assert build.stderr.endswith(f"numalab: {check['found']}\n  hint: {check['hint']}\n")


def test_a_user_with_subordinate_ids_may_build_images() -> None:
    mounts = f"{_file('/etc/subuid', IDS)}; {_file('/etc/subgid', IDS)}"
    with own_folder(NOBODY) as folder:
        checks, _ = doctor(NOBODY, folder / "cache", mounts)
    assert checks["user namespaces"]["ok"], checks["user namespaces"]
    assert checks["user namespaces"]["found"] == "images are built without root, in mode unshare"


def test_a_program_without_its_rights_is_the_reason_of_both() -> None:
    """In a container with no-new-privileges, newuidmap cannot become root."""
    mounts = f"{_file('/etc/subuid', IDS)}; {_file('/etc/subgid', IDS)}"
    with own_folder(NOBODY) as folder:
        env = {"NUMALAB_CACHE": str(folder / "cache")}
        doctor_, build = (
            as_user(NOBODY, "setpriv", "--no-new-privs", NUMALAB, *words, env=env, mounts=mounts)
            for words in (["doctor", "--json"], ["image", "build", "base"])
        )
    (check,) = (
        check for check in json.loads(doctor_.stdout)
        if check["name"] == "user namespaces"
    )  # fmt: skip
    assert not check["ok"]
    assert build.returncode == 3
    assert build.stderr.endswith(f"numalab: {check['found']}\n  hint: {check['hint']}\n")


def test_libvirt_opens_without_a_home_that_can_be_written(folder: Path) -> None:
    """As in a container started with --user: the home is /, and XDG_RUNTIME_DIR is missing."""
    for env in ({"HOME": "/"}, {"HOME": "/nowhere"}, {"HOME": "/", "XDG_RUNTIME_DIR": "/run"}, {}):
        checks, _ = doctor(NO_ENTRY, folder / "cache", **env)
        assert checks["libvirt"]["ok"], (env, checks["libvirt"])


def test_a_read_only_home_and_checkout_are_enough(folder: Path) -> None:
    root = Path(__file__).parents[3]
    home, cache = folder / "home", folder / "cache"
    home.mkdir()
    os.chown(home, NO_ENTRY, NO_ENTRY)
    mounts = "; ".join(
        f"mount --bind {path} {path} && mount -o remount,ro,bind {path}" for path in (home, root)
    )
    env = {"NUMALAB_CACHE": str(cache), "HOME": str(home)}
    tried = as_user(NO_ENTRY, "touch", home / "file", env=env, mounts=mounts)
    assert "Read-only file system" in tried.stderr
    for words in (["topology", "list"], ["plan", "group-construction"], ["cache", "list"]):
        done = as_user(NO_ENTRY, NUMALAB, *words, env=env, mounts=mounts)
        assert (done.returncode, "numalab:" in done.stderr) == (0, False), done.stderr
    assert doctor(NO_ENTRY, cache, mounts, HOME=str(home))[0]["libvirt"]["ok"]
    refused = as_user(NO_ENTRY, NUMALAB, "cache", "list", env={"HOME": str(home)}, mounts=mounts)
    assert refused.returncode == 3
    assert "hint: set NUMALAB_CACHE to a folder of your own" in refused.stderr


def test_processes_of_others_may_be_hidden(folder: Path) -> None:
    """With hidepid=2 and without /dev/shm."""
    mounts = "mount -t proc -o hidepid=2 none /proc; mount -t tmpfs -o mode=555 none /dev/shm"
    hidden = as_user(NO_ENTRY, "test", "-e", "/proc/1/stat", env={}, mounts=mounts)
    assert hidden.returncode == 1
    checks, _ = doctor(NO_ENTRY, folder / "cache", mounts)
    assert checks["libvirt"]["ok"], checks["libvirt"]


def test_a_socket_of_libvirts_daemon_without_rights_names_the_group(folder: Path) -> None:
    path = folder / "libvirt-sock"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(path))
        path.chmod(0o600)
        daemon.listen()
        env = {"NUMALAB_CACHE": str(folder / "cache")}
        words = ("-c", CONNECT, f"qemu:///system?socket={path}")
        done = as_user(NO_ENTRY, sys.executable, *words, env=env)
    reason, hint = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert reason.endswith("Permission denied"), done
    assert "leave out --connect" in hint
    assert "--groups libvirt" in hint


def _file(path: str, text: str) -> str:
    """Return a script that replaces a file of this host in the mount namespace."""
    made = '"$(mktemp)"'
    return f"f={made}; echo '{text}' > $f; chmod 644 $f; mount --bind $f {path}; rm $f"
