import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.errors import BuildError, HostError, UserError
from numalab.image import package_tarball as debian
from numalab.image.package_tarball import (
    choose_mode,
    installed_packages,
    missing_package,
    one_line_sources,
    pack_packages,
    render_mmdebstrap,
)
from numalab.image.recipe import Recipe, with_packages
from numalab.source.debian_packages import parse_targets
from support.signed_mirror import publish_suite, signing_keys

RECIPE = Recipe(
    name="tiny",
    file=Path("images/tiny.toml"),
    summary="",
    suite="bookworm",
    variant="essential",
    packages=("dash", "numactl"),
    exclude=("/usr/share/doc/*",),
    limit_mib=64,
)

TARGETS = """\
Debian|http://mirror.example/debian/|bookworm-updates|main|amd64
Debian|http://mirror.example/debian/|bookworm|main|amd64
Debian|http://mirror.example/debian/|bookworm|contrib|amd64
Debian|http://mirror.example/debian/|bookworm|main|i386
Debian|http://mirror.example/debian-security/|bookworm-security|main|amd64
Debian|http://mirror.example/debian/|trixie|main|amd64
Somebody|http://other.example/|bookworm|main|amd64
"""


def test_mmdebstrap_gets_the_recipe_and_the_mirrors() -> None:
    argv = render_mmdebstrap(RECIPE, Path("/x/out.tar"), "unshare", ("deb u s main",))
    assert argv == (
        "--mode=unshare",
        "--variant=essential",
        "--format=tar",
        "--include=dash,numactl",
        '--aptopt=APT::Install-Recommends "false"',
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "bookworm",
        "/x/out.tar",
        "deb u s main",
    )


def test_post_steps_run_in_the_tree_whatever_they_hold() -> None:
    recipe = replace(RECIPE, post=("rm -r '/a b'; echo $HOME",))
    argv = render_mmdebstrap(recipe, Path("/x/out.tar"), "unshare", ())
    hook = next(word for word in argv if word.startswith("--customize-hook="))
    words = shlex.split(hook.removeprefix("--customize-hook="))
    assert words == ["chroot", "$1", "sh", "-ec", "rm -r '/a b'; echo $HOME"]


def test_mirrors_are_debians_main_of_the_suite_updates_and_security() -> None:
    deb = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert one_line_sources(parse_targets(TARGETS), "bookworm") == (
        f"{deb} http://mirror.example/debian/ bookworm main",
        f"{deb} http://mirror.example/debian/ bookworm-updates main",
        f"{deb} http://mirror.example/debian-security/ bookworm-security main",
    )


def test_apt_may_not_have_fetched_its_lists_yet() -> None:
    text = TARGETS.replace("Debian|", "$(ORIGIN)|")
    assert len(one_line_sources(parse_targets(text), "bookworm")) == 3


@pytest.mark.parametrize("text", ["", "nonsense\n", TARGETS.replace("|bookworm|", "|sid|")])
def test_without_the_suite_itself_there_are_no_mirrors(text: str) -> None:
    assert one_line_sources(parse_targets(text), "bookworm") == ()


def test_the_package_that_apt_did_not_find() -> None:
    assert missing_package("Reading...\nE: Unable to locate package no-such\n") == "no-such"
    assert missing_package("E: Package 'gone' has no installation candidate\n") == "gone"
    assert missing_package("E: Could not resolve 'mirror.example'\n") is None


def test_installed_packages_are_those_that_dpkg_calls_installed() -> None:
    status = (
        "Package: b\nStatus: install ok installed\nVersion: 1:2-3\nDescription: x\n more: y\n\n"
        "Package: a\nStatus: install ok installed\nVersion: 1\n\n"
        "Package: c\nStatus: deinstall ok config-files\nVersion: 9\n\n"
    )
    assert installed_packages(status) == ("a=1", "b=1:2-3")


def test_root_needs_user_namespace_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert choose_mode(lambda: ("no namespaces", "fix it")) == "root"


def test_without_root_and_namespaces_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HostError, match=r"no namespaces\n  hint: fix it"):
        choose_mode(lambda: ("no namespaces", "fix it"))


def fake_mmdebstrap(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "mmdebstrap"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(debian, "choose_mode", lambda: "unshare")
    monkeypatch.setattr(debian, "host_mirrors", lambda suite: ())


def test_an_unknown_package_is_the_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mmdebstrap(tmp_path, "echo 'E: Unable to locate package dsah' >&2; exit 25", monkeypatch)
    (tmp_path / "apt-cache").write_text("#!/bin/sh\necho bash dash zsh numactl\n", encoding="utf-8")
    (tmp_path / "apt-cache").chmod(0o755)
    message = r"bookworm has no package 'dsah'; did you mean dash\?"
    with pytest.raises(UserError, match=message) as caught:
        pack_packages(RECIPE, tmp_path / "t.tar", tmp_path / "log", lambda what, done: None)
    assert (caught.value.file, caught.value.key) == (RECIPE.file, "packages")
    with pytest.raises(UserError, match=f"--package: {message}"):
        pack_packages(
            with_packages(RECIPE, ["dsah"]), tmp_path / "t.tar", tmp_path / "log", lambda *_: None
        )


def test_any_other_failure_ends_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mmdebstrap(tmp_path, "echo 'E: Could not resolve mirror.example'; exit 1", monkeypatch)
    log = tmp_path / "log"
    with pytest.raises(BuildError, match="Could not resolve") as caught:
        pack_packages(RECIPE, tmp_path / "t.tar", log, lambda what, done: None)
    assert caught.value.log == log
    assert "Could not resolve" in log.read_text()


def test_progress_follows_mmdebstraps_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mmdebstrap(
        tmp_path,
        "echo 'I: downloading packages with apt...'; echo 'I: creating tarball...'",
        monkeypatch,
    )
    arguments: list[tuple[str, float | None]] = []
    pack_packages(RECIPE, tmp_path / "t", tmp_path / "log", lambda *step: arguments.append(step))
    assert arguments == [("downloading packages", 0.15), ("creating tarball", 0.88)]


def test_a_post_step_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = """E: setup failed: E: command failed: chroot "$1" sh -ec 'rm /no/file'"""
    fake_mmdebstrap(tmp_path, f"cat <<'END'\n{said}\nEND\nexit 25", monkeypatch)
    with pytest.raises(BuildError, match="image tiny: a step of post failed: rm /no/file\n"):
        pack_packages(RECIPE, tmp_path / "t.tar", tmp_path / "log", lambda what, done: None)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that apt can read after it has given up root."""
    with tempfile.TemporaryDirectory(prefix="numalab-mirror-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("key", ["mirror", "stranger"])
def test_a_mirror_must_be_signed_by_debians_keyring(
    public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """A key that the host's apt trusts for another repository is refused."""
    with signing_keys(tmp_path) as keys:
        publish_suite(public, "bookworm", {"main/binary-amd64/Packages": ""}, keys, key=key)
    for name in ("mirror", "stranger"):
        (public / "trusted").mkdir(exist_ok=True)
        shutil.copy(keys / f"{name}.gpg", public / "trusted")
    (public / "apt.conf").write_text(f'Dir::Etc::TrustedParts "{public}/trusted";\n')
    monkeypatch.setenv("APT_CONFIG", str(public / "apt.conf"))
    monkeypatch.setattr(debian, "KEYRING", public / "trusted/mirror.gpg")
    monkeypatch.setattr(debian, "host_targets", lambda: [(f"file:{public}", "bookworm")])
    with pytest.raises(BuildError) as failed:  # the mirror has no package at all
        pack_packages(RECIPE, tmp_path / "out.tar", tmp_path / "log", lambda *_: None)
    assert ("NO_PUBKEY" in str(failed.value)) == (key == "stranger")


def test_without_debians_keyring_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numalab.source.debian_packages.KEYRING", tmp_path / "none.gpg")
    with pytest.raises(HostError, match=r"Debian's keyring is missing") as failed:
        pack_packages(RECIPE, tmp_path / "out.tar", tmp_path / "log", lambda *_: None)
    assert failed.value.hint == "apt-get install debian-archive-keyring"
