"""A Debian mirror in a folder, signed by keys of its own."""

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def signing_keys(home: Path) -> Iterator[Path]:
    """Make the keys `mirror` and `stranger` in a GnuPG folder; `NAME.gpg` is a keyring of one."""
    home.chmod(0o700)
    for name in ("mirror", "stranger"):
        _gpg(home, "--passphrase", "", "--quick-gen-key", name, "ed25519", "sign", "never")
        _gpg(home, "--output", str(home / f"{name}.gpg"), "--export", name)
    yield home
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)


def publish_suite(
    root: Path, suite: str, lists: Mapping[str, str], keys: Path, *, key: str | None = "mirror"
) -> None:
    """Write a suite with its lists of packages, signed by a key or not at all.

    The format is https://wiki.debian.org/DebianRepository/Format.
    """
    folder = root / "dists" / suite
    sums = ""
    for name, text in lists.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        sums += f" {sha256(folder / name)} {len(text)} {name}\n"
    release, signed = folder / "Release", folder / "InRelease"
    signed.unlink(missing_ok=True)
    release.write_text(
        f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nArchitectures: all amd64\n"
        f"Components: main\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n{sums}"
    )
    if key is not None:
        _gpg(keys, "--local-user", key, "--output", str(signed), "--clear-sign", str(release))
        release.unlink()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _gpg(home: Path, *words: str) -> None:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--yes", *words]
    subprocess.run(command, check=True, capture_output=True)
