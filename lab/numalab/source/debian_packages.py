"""Debian packages of any suite, without a change of the host's apt.

apt gets folders and a list of sources of its own in the cache. The mirror is that of the host's
apt, and apt checks the suite's signature with Debian's keyring. A fetched package stays until it is
removed from the cache: the same package gives the same kernel.
"""

import hashlib
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from numalab.artifact.digest import hash_file
from numalab.artifact.kinds import entry_lock
from numalab.document import read_record
from numalab.errors import HostError, UserError
from numalab.files import replacing, write_json, write_text
from numalab.locks import locked
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run
from numalab.progress import Progress
from numalab.scratch import scratch_folder

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_PACKAGE = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?:/([a-z0-9][a-z0-9-]*))?")
# The packages of a kernel or its source. Debian's metapackages depend on the real ones.
_PARTS = re.compile(r"linux-(?:image|binary|modules|source|base-[0-9])-?[a-z0-9+.-]*")
_MOST_PARTS = 8
# What is added to a suite in a suite of its own.
_ADDED = re.compile(r"[-/](?:updates|backports(?:-sloppy)?|proposed-updates)$")


@dataclass(frozen=True)
class Mirror:
    """The Debian mirror of the host's apt: address, suite and keyring."""

    uri: str
    suite: str
    keyring: Path = KEYRING
    security: str | None = None  # the address of security fixes


@dataclass(frozen=True)
class Fetched:
    """Package files in the cache, in the order in which they were fetched."""

    files: tuple[Path, ...]
    versions: tuple[str, ...]  # "package=version"
    digest: str


@dataclass(frozen=True)
class _Record:
    files: tuple[str, ...]
    versions: tuple[str, ...]
    digest: str


class NotFetched(HostError):
    """A package that is not in the cache; the first build fetches it."""


def split_package(text: str) -> tuple[str, str | None]:
    """Split apt's `package/suite`; the suite is optional. Raises UserError."""
    names = _PACKAGE.fullmatch(text)
    if names is None:
        raise UserError(f"{text!r} is not PACKAGE or PACKAGE/SUITE, as apt writes it")
    return names[1], names[2]


def read_fetched(record: Path, what: str, command: str) -> Fetched:
    """Return the files beside their record in the cache. Raises NotFetched."""
    content = read_record(record, _Record)
    if content is None:
        hint = f"{command} fetches it from the mirror that apt uses"
        raise NotFetched(f"{what} is not in the cache", hint=hint)
    try:
        files = tuple(record.with_name(name) for name in content.files)
        whole = all(file.is_file() for file in files)
    except (OSError, ValueError):  # not a name, or one that is too long
        whole = False
    if not whole:
        raise NotFetched(f"files of {what} are missing", hint=f"rm -r {record.parent}")
    with suppress(OSError):
        os.utime(record.parent)  # the time of last use, for `numalab cache prune`
    return Fetched(files, content.versions, content.digest)


def fetch_once(
    fetched: Callable[[], Fetched],
    record: Path,
    download: Callable[[Path], tuple[list[Path], list[str]]],
) -> Fetched:
    """Return the result of `fetched`, or `download` into the record's folder, whole or not at all.

    `download` returns the files and their versions.
    """
    folder = record.parent
    with locked(entry_lock(folder)):
        with suppress(NotFetched):
            return fetched()
        with replacing(folder) as new:
            new.mkdir()
            files, versions = download(new)
            digest = _digest_of_files(map(hash_file, files))
            names = tuple(path.name for path in files)
            write_json(new / record.name, asdict(_Record(names, tuple(versions), digest)))
    return fetched()


def check_unchanged(fetched: Fetched, hashes: Mapping[Path, str] | None = None) -> None:
    """Raise HostError if a file in the cache differs from the one that apt verified.

    `hashes` are SHA-256 of files that need not be read again.
    """
    try:
        digest = _digest_of_files(
            (hashes or {}).get(path) or hash_file(path) for path in fetched.files
        )
    except OSError:
        digest = ""
    if digest != fetched.digest:
        raise HostError(
            f"the files of {', '.join(fetched.versions)} changed after they were fetched",
            hint=f"rm -r {fetched.files[0].parent}",
        )


def _digest_of_files(hashes: Iterable[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def fetched_packages(text: str) -> Fetched:
    """Return the fetched files of `package/suite`. Raises NotFetched."""
    return read_fetched(_record(text), f"the package {text}", "numalab kernel build NAME")


def fetch_packages(text: str, tell: Progress) -> Fetched:
    """Fetch `package/suite` (by default the host's suite) unless the cache has it.

    The kernel packages that a metapackage depends on are fetched as well. Raises UserError for a
    package or suite that the mirror lacks, HostError without apt, a mirror or a valid signature.
    """
    package, suite = split_package(text)

    def download(folder: Path) -> tuple[list[Path], list[str]]:
        files = _download(update_lists(suite, tell), package, suite, folder, tell)
        versions = [_field(path, "${Package}=${Version}") for path in files]
        return [_source_tarball(path) or path for path in files], versions

    return fetch_once(lambda: fetched_packages(text), _record(text), download)


def parse_targets(text: str) -> list[tuple[str, str]]:
    """Parse lines of `origin|uri|suite|component|architecture` (apt-get indextargets).

    Returns address and suite of Debian's own `main` for amd64, in apt's order.
    """
    rows = [line.split("|") for line in text.splitlines()]
    # apt prints the name of a field where it has not fetched the Release file yet.
    return [
        (row[1], row[2])
        for row in rows
        if len(row) == 5 and row[0] in ("Debian", "$(ORIGIN)") and row[3:] == ["main", "amd64"]
    ]


def host_targets() -> list[tuple[str, str]]:
    """Return the targets of this host's apt, as `parse_targets` does. Raises HostError."""
    wanted = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ARCHITECTURE)"
    words = ["indextargets", "--format", wanted, "Created-By: Packages"]
    return parse_targets(run([find_program("apt-get", "apt"), *words], check=False).stdout)


def own_mirror(targets: list[tuple[str, str]], codename: str = "") -> Mirror | None:
    """Return the host's Debian suite with its security fixes, None without one.

    It is the one of the host's `codename` (os-release(5)), else the first in apt's order.
    """
    plain = [
        (uri, suite, _ADDED.sub("", suite))
        for uri, suite in targets
        if "-security" not in suite and "debian" in uri
    ]
    if not plain:
        return None
    # `bookworm` itself comes before `bookworm-updates`, which may be on another mirror.
    uri, _, suite = min(plain, key=lambda names: (names[2] != codename, names[1] != names[2]))
    security = {name: address for address, name in reversed(targets)}
    return Mirror(uri, suite, security=security.get(f"{suite}-security"))


def host_mirror() -> Mirror:
    """Return the Debian mirror of this host's apt. Raises HostError."""
    targets = host_targets()
    check_keyring()
    mirror = own_mirror(targets, _codename())
    if mirror is None:
        raise HostError(
            "this host's apt has no Debian mirror to fetch kernel packages from",
            hint="name a tarball, a git tree or a package file as the source",
        )
    return mirror


def _codename() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def check_keyring() -> None:
    """Raise HostError where Debian's keyring is missing."""
    if not KEYRING.is_file():
        raise HostError(
            "Debian's keyring is missing, which verifies all packages",
            hint="apt-get install debian-archive-keyring",
        )


def render_sources(mirror: Mirror, suite: str, kind: str = "deb") -> str:
    """Render apt's list of sources (deb822, sources.list(5)) for one suite of a mirror.

    `kind` is deb for packages, deb-src for their sources.
    """
    blocks = [(mirror.uri, suite)]
    if suite == mirror.suite and mirror.security is not None:
        blocks.append((mirror.security, f"{suite}-security"))
    return "\n".join(
        f"Types: {kind}\nURIs: {uri}\nSuites: {name}\nComponents: main\n"
        f"Signed-By: {mirror.keyring}\n"
        for uri, name in blocks
    )


# Without the host's hooks and extra indexes.
_CONFIGURATION = """\
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear Acquire::IndexTargets;
Acquire::IndexTargets::deb::Packages
{
 MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
 flatMetaKey "Packages";
 ShortDescription "Packages";
 Description "$(RELEASE)/$(COMPONENT) $(ARCHITECTURE) Packages";
};
Acquire::IndexTargets::deb-src::Sources
{
 MetaKey "$(COMPONENT)/source/Sources";
 flatMetaKey "Sources";
 ShortDescription "Sources";
 Description "$(RELEASE)/$(COMPONENT) Sources";
};
Acquire::Languages "none";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
APT::Get::AllowUnauthenticated "false";
APT::Update::Error-Mode "any";
APT::Architecture "amd64";
APT::Architectures "amd64";
"""


def update_lists(suite: str | None, tell: Progress, kind: str = "deb") -> list[str]:
    """Fetch the suite's list of packages (`deb`) or sources (`deb-src`).

    Returns the options for apt to use it. Raises UserError for an unknown suite, HostError.
    """
    mirror = host_mirror()
    suite = suite or mirror.suite
    place = suite if kind == "deb" else f"{suite}-{kind}"
    folder = cache_dir("apt", place)
    for inner in ("lists/partial", "archives/partial"):
        cache_dir("apt", place, *inner.split("/"))
    write_text(folder / "debian.sources", render_sources(mirror, suite, kind))
    write_text(folder / "apt.conf", _CONFIGURATION)
    options = {
        "Dir::State::Status": "/dev/null",  # installed packages do not matter
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        "Dir::Cache::Archives": folder / "archives",
        "Dir::Etc::SourceList": folder / "debian.sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
    }
    if os.geteuid() == 0:
        options["APT::Sandbox::User"] = "root"  # the cache is this user's alone
    apt = ["-c", str(folder / "apt.conf"), *(f"-o{name}={to}" for name, to in options.items())]
    tell(f"fetching the lists of {suite}", None)
    try:
        run([find_program("apt-get", "apt"), *apt, "--quiet", "update"], env={"LC_ALL": "C"})
    except CommandFailed as failed:
        text = failed.completed.stderr
        if f"{suite} Release' does not have a Release file" in text:
            raise UserError(f"the mirror has no suite called {suite!r}") from None
        raise apt_failed(f"cannot fetch the list of packages of {suite}", text) from None
    return apt


def _download(
    apt: list[str], package: str, suite: str | None, folder: Path, tell: Progress
) -> list[Path]:
    """Download a package and the kernel packages it depends on into `folder`."""
    files: list[Path] = []
    wanted = [package]
    for name in wanted:
        if len(files) == _MOST_PARTS:
            break
        tell(f"downloading {name}", None)
        try:
            run(
                [find_program("apt-get", "apt"), *apt, "--quiet", "download", name],
                cwd=folder,
                env={"LC_ALL": "C"},
            )
        except CommandFailed as failed:
            text = failed.completed.stderr
            if "Unable to locate package" in text or "no candidate" in text.lower():
                raise _no_package(apt, name, suite) from None
            raise apt_failed(f"cannot download {name}", text) from None
        [file] = [path for path in folder.glob("*.deb") if path not in files]
        files.append(file)
        parts = _needed_parts(_field(file, "${Depends}"))
        wanted += [part for part in parts if part not in wanted]
    return files


def _needed_parts(depends: str) -> list[str]:
    """Return the kernel packages among a package's dependencies, alternatives left out."""
    first = (words.split("|")[0].split("(")[0].strip() for words in depends.split(","))
    return [name for name in first if _PARTS.fullmatch(name)]


def _no_package(apt: list[str], name: str, suite: str | None) -> UserError:
    stem = re.sub(r"-[0-9].*", "", name)
    done = run([find_program("apt-cache", "apt"), *apt, "pkgnames", stem], check=False)
    packages = done.stdout.split()
    names = sorted(name for name in packages if not name.endswith(("-dbg", "-unsigned")))
    return UserError(
        f"{suite or 'the suite of this host'} has no package {name!r}", choices=names[:30]
    )


def apt_failed(what: str, stderr: str) -> HostError:
    """Return the error of a failed apt, with the lines of its errors."""
    lines = [line for line in stderr.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    return HostError("\n  | ".join([what, *lines[-5:]]))


def _source_tarball(file: Path) -> Path | None:
    """Replace a source package by its tarball, and return that; None for other packages.

    An installed package and a fetched one are then the same source.
    """
    with scratch_folder(file.parent, ".tarball.") as scratch:
        run([find_program("dpkg-deb", "dpkg"), "--extract", file, scratch])
        tarballs = sorted((scratch / "usr/src").glob("linux-source-*.tar.*"))
        if not tarballs:
            return None
        tarball = tarballs[0].replace(file.with_name(tarballs[0].name))
    file.unlink()
    return tarball


def _field(file: Path, wanted: str) -> str:
    shown = run([find_program("dpkg-deb", "dpkg"), "--show", f"--showformat={wanted}", file])
    return shown.stdout.strip()


def _record(text: str) -> Path:
    package, suite = split_package(text)
    return cache_dir("packages") / (f"{package}_{suite}" if suite else package) / "packages.json"
