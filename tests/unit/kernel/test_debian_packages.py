"""Packages from a mirror: a small signed one in a folder, which apt reads as it reads Debian's."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.errors import HostError, UserError
from numalab.kernel.kernel_build import built_kernel, ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.source.debian_packages import (
    Mirror,
    NotFetched,
    fetch_packages,
    fetched_packages,
    own_mirror,
    parse_targets,
    render_sources,
    split_package,
)
from support.signed_mirror import publish_suite, sha256, signing_keys

pytestmark = pytest.mark.skipif(
    shutil.which("gpg") is None or shutil.which("apt-get") is None, reason="gpg or apt is missing"
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with signing_keys(tmp_path_factory.mktemp("gnupg")) as home:
        yield home


@pytest.fixture
def mirror(project: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror with the suites `old` and `new`; the host's apt is configured for `new`."""
    root = project.parent / "mirror"
    tarball = project.parent / "usr-src/linux-source-9.9.tar.xz"
    source = package(root, "linux-source-9.9", "9.9.1-1", {"usr/src/" + tarball.name: tarball})
    tarball.unlink()  # the package is not installed
    meta = package(root, "linux-source", "9.9.1-1", {}, depends="linux-base, linux-source-9.9")
    other = package(root, "linux-image-9.9", "9.9.1-1", {}, depends="linux-modules-9.9 | x")
    publish(root, "old", [source, meta, other], keys)
    publish(root, "new", [], keys)
    here = Mirror(f"file:{root}", "new", keys / "mirror.gpg")
    monkeypatch.setattr("numalab.source.debian_packages.host_mirror", lambda: here)
    return root


def package(
    root: Path, name: str, version: str, files: dict[str, Path], *, depends: str = ""
) -> Path:
    tree = root / "trees" / name
    (tree / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
    control += "Maintainer: x\nDescription: x\n"
    (tree / "DEBIAN/control").write_text(control + (f"Depends: {depends}\n" if depends else ""))
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True)
        shutil.copy(content, tree / path)
    deb = root / "pool" / f"{name}_{version}_all.deb"
    deb.parent.mkdir(exist_ok=True)
    subprocess.run(
        ["dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, deb],
        check=True,
        capture_output=True,
    )
    return deb


def publish(root: Path, suite: str, debs: list[Path], keys: Path) -> None:
    listed = ""
    for deb in debs:
        control = (root / "trees" / deb.name.partition("_")[0] / "DEBIAN/control").read_text()
        listed += f"{control}Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\n"
        listed += f"SHA256: {sha256(deb)}\n\n"
    publish_suite(root, suite, {"main/binary-amd64/Packages": listed}, keys)


def tell(_message: str, _fraction: float | None) -> None:
    pass


def test_a_package_of_another_suite_is_fetched_and_built(mirror: Path) -> None:
    spec = KernelSpec("old", "", "linux-source-9.9/old", (), ("guest",))
    assert built_kernel(spec) is None
    steps: list[str] = []
    built = ensure_kernel(spec, on_progress=lambda text, _: steps.append(text))
    assert built.source_version == "9.9.1"
    assert steps[:2] == ["fetching the lists of old", "downloading linux-source-9.9"]
    fetched = fetched_packages("linux-source-9.9/old")
    assert fetched.versions == ("linux-source-9.9=9.9.1-1",)
    assert [path.name for path in fetched.files] == ["linux-source-9.9.tar.xz"]
    shutil.rmtree(mirror)  # it is not asked again
    assert ensure_kernel(spec) == built


def test_an_installed_and_a_fetched_package_are_the_same_source(mirror: Path) -> None:
    fetched = fetch_packages("linux-source-9.9/old", tell).files[0]
    first = ensure_kernel(KernelSpec("a", "", "linux-source-9.9/old", (), ("guest",)))
    shutil.copy(fetched, mirror.parent / "usr-src")
    again = built_kernel(KernelSpec("a", "", "linux-source-9.9", (), ("guest",)))
    assert again == first


def test_a_metapackage_brings_the_real_one(mirror: Path) -> None:
    fetched = fetch_packages("linux-source/old", tell)
    assert fetched.versions == ("linux-source=9.9.1-1", "linux-source-9.9=9.9.1-1")
    assert fetched.files[-1].name == "linux-source-9.9.tar.xz"


def test_what_the_mirror_lacks_is_named(mirror: Path) -> None:
    with pytest.raises(UserError, match=r"old has no package 'linux-source-8'; did you mean"):
        fetch_packages("linux-source-8/old", tell)
    with pytest.raises(UserError, match=r"old has no package 'linux-modules-9\.9'"):
        fetch_packages("linux-image-9.9/old", tell)
    with pytest.raises(UserError, match="the suite of this host has no package"):
        fetch_packages("linux-source-9.9", tell)
    with pytest.raises(UserError, match="the mirror has no suite called 'nosuite'"):
        fetch_packages("linux-source-9.9/nosuite", tell)
    with pytest.raises(NotFetched):
        fetched_packages("linux-source-9.9/old")
    with pytest.raises(UserError, match="'LINUX' is not PACKAGE or PACKAGE/SUITE"):
        split_package("LINUX")


def test_a_suite_that_is_not_signed_by_the_keyring_is_refused(mirror: Path) -> None:
    release = mirror / "dists/old/InRelease"
    release.write_text(release.read_text().replace("Codename: old", "Codename: odd"))
    with pytest.raises(HostError, match=r"old\n  \| .*(BADSIG|signature)"):
        fetch_packages("linux-source-9.9/old", tell)
    assert not list(Path(os.environ["NUMALAB_CACHE"]).glob("packages/*/*"))


def test_a_package_that_was_changed_is_refused(mirror: Path) -> None:
    deb = mirror / "pool/linux-source-9.9_9.9.1-1_all.deb"
    deb.write_bytes(deb.read_bytes() + b"\n")
    with pytest.raises(HostError, match=r"cannot download linux-source-9\.9"):
        fetch_packages("linux-source-9.9/old", tell)
    assert not list(Path(os.environ["NUMALAB_CACHE"]).glob("packages/*/*"))


def test_a_package_that_lost_a_file_is_fetched_again(mirror: Path) -> None:
    fetch_packages("linux-source-9.9/old", tell).files[0].unlink()
    with pytest.raises(NotFetched, match="are missing"):
        fetched_packages("linux-source-9.9/old")
    assert fetch_packages("linux-source-9.9/old", tell).files[0].is_file()


def test_a_kernel_source_that_changes_in_the_cache_is_not_built(mirror: Path) -> None:
    spec = KernelSpec("old", "", "linux-source/old", (), ("guest",))
    fetched = fetch_packages(spec.source, tell)
    meta, tarball = fetched.files
    ensure_kernel(spec)
    for file in (meta, tarball):
        data = file.read_bytes()
        file.write_bytes(data + b"\0" * 4)  # which ar and xz ignore
        with pytest.raises(HostError, match=r"linux-source-9\.9=9\.9\.1-1 changed after they were"):
            ensure_kernel(spec)
        file.write_bytes(data)
    ensure_kernel(spec)


@pytest.mark.parametrize(
    ("suites", "codename", "suite"),
    [
        ("bookworm bookworm-updates bookworm-security sid", "bookworm", "bookworm"),
        ("sid bookworm bookworm-security", "bookworm", "bookworm"),
        ("sid bookworm-backports bookworm-proposed-updates", "bookworm", "bookworm"),
        ("stable-updates stable sid", "bookworm", "stable"),
        ("buster/updates buster", "", "buster"),
        ("testing sid", "", "testing"),
    ],
)
def test_the_suite_of_the_host_is_that_of_its_release(
    suites: str, codename: str, suite: str
) -> None:
    targets = [(f"http://debian/{name}", name) for name in suites.split()]
    mirror = own_mirror(targets, codename)
    assert mirror is not None and mirror.suite == suite
    if suite in suites.split():
        assert mirror.uri == f"http://debian/{suite}"
    assert (mirror.security is not None) == (f"{suite}-security" in suites)


def test_the_host_is_asked_for_its_own_suite() -> None:
    lines = [
        "Extras|http://elsewhere/x|nodistro|main|amd64",
        "Debian|http://mirror/debian/|bookworm-updates|main|amd64",
        "Debian|http://mirror/debian/|bookworm|contrib|amd64",
        "$(ORIGIN)|http://mirror/debian/|bookworm|main|amd64",
        "Debian|http://mirror/debian-security/|bookworm-security|main|amd64",
        "rubbish",
    ]
    mirror = own_mirror(parse_targets("\n".join(lines)))
    assert mirror is not None
    assert (mirror.uri, mirror.suite) == ("http://mirror/debian/", "bookworm")
    assert mirror.security == "http://mirror/debian-security/"
    assert own_mirror(parse_targets("\n".join(lines[:1]))) is None
    own, other = render_sources(mirror, "bookworm"), render_sources(mirror, "sid")
    assert own.count("Types: deb") == 2
    assert "Suites: bookworm-security\n" in own
    assert "security" not in other
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n" in other
