"""Source packages from a mirror in a folder, signed like Debian's: what apt refuses, and when."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.errors import HostError
from numalab.source.debian_packages import Mirror
from numalab.source.source_package import fetch_source_package, unpack_source
from support.signed_mirror import publish_suite, sha256, signing_keys
from unit.source.test_debian_source import quiet, write_package

pytestmark = pytest.mark.skipif(
    shutil.which("gpg") is None or shutil.which("apt-get") is None, reason="gpg or apt is missing"
)
DSC, TARBALL = "small_1.2.dsc", "small_1.2.tar.xz"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with signing_keys(tmp_path_factory.mktemp("gnupg")) as home:
        yield home


@pytest.fixture
def mirror(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "mirror"
    (root / "pool").mkdir(parents=True)
    write_package(root / "pool")
    publish(root, keys)
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    here = Mirror(f"file:{root}", "old", keys / "mirror.gpg")
    monkeypatch.setattr("numalab.source.debian_packages.host_mirror", lambda: here)
    return root


def publish(root: Path, keys: Path, *, key: str | None = "mirror") -> None:
    """Write the suite `old` with its list of sources, signed by a key or by none."""
    files = [root / "pool" / name for name in (DSC, TARBALL)]
    sums = "".join(f" {sha256(path)} {path.stat().st_size} {path.name}\n" for path in files)
    listed = (
        "Package: small\nFormat: 3.0 (native)\nBinary: small\nArchitecture: all\nVersion: 1.2\n"
        f"Directory: pool\nChecksums-Sha256:\n{sums}\n"
    )
    publish_suite(root, "old", {"main/source/Sources": listed}, keys, key=key)


def flip_a_bit(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(data)


def nothing_was_kept() -> bool:
    return not list(Path(os.environ["NUMALAB_CACHE"]).glob("packages/*/*"))


def test_a_signed_source_package_is_fetched_and_unpacked(mirror: Path, tmp_path: Path) -> None:
    fetched = fetch_source_package("small/old", quiet)
    assert (unpack_source(fetched, tmp_path / "tree") / "Makefile").read_text() == "all:\n"


@pytest.mark.parametrize("name", [DSC, TARBALL])
@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_file_of_a_source_package_that_was_changed_is_refused(
    mirror: Path, name: str, place: int
) -> None:
    flip_a_bit(mirror / "pool" / name, place)
    with pytest.raises(HostError, match="cannot download the source of small"):
        fetch_source_package("small/old", quiet)
    assert nothing_was_kept()


def test_a_list_of_sources_that_was_changed_is_refused(mirror: Path) -> None:
    flip_a_bit(mirror / "dists/old/main/source/Sources", 10)
    with pytest.raises(HostError, match="cannot fetch the list of packages of old"):
        fetch_source_package("small/old", quiet)
    assert nothing_was_kept()


@pytest.mark.parametrize("key", ["stranger", None])
def test_a_suite_without_a_signature_of_the_keyring_is_refused(
    mirror: Path, keys: Path, key: str | None
) -> None:
    publish(mirror, keys, key=key)
    with pytest.raises(HostError, match="cannot fetch the list of packages of old"):
        fetch_source_package("small/old", quiet)
    assert nothing_was_kept()


@pytest.mark.parametrize("key", ["stranger", None])
@pytest.mark.usefixtures("mirror")
def test_settings_of_the_hosts_apt_make_no_difference(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    (tmp_path / "apt.conf").write_text(
        'APT::Get::AllowUnauthenticated "true";\nAcquire::AllowInsecureRepositories "true";\n'
        'Acquire::AllowDowngradeToInsecureRepositories "true";\n'
        f'Dir::Etc::TrustedParts "{keys}";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    publish(tmp_path / "mirror", keys, key=key)
    with pytest.raises(HostError, match="cannot fetch the list of packages of old"):
        fetch_source_package("small/old", quiet)
    assert nothing_was_kept()


@pytest.mark.parametrize("name", [DSC, TARBALL])
def test_a_file_that_changes_in_the_cache_is_refused(
    mirror: Path, tmp_path: Path, name: str
) -> None:
    """Even one that can still be unpacked: xz ignores zeros at the end (xz-file-format, 2.2)."""
    fetched = fetch_source_package("small/old", quiet)
    file = next(path for path in fetched.files if path.name == name)
    file.write_bytes(file.read_bytes() + b"\0" * 4)
    with pytest.raises(HostError, match=r"files of small=1\.2 changed after they were fetched"):
        unpack_source(fetch_source_package("small/old", quiet), tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
