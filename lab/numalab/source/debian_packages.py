"""Debian packages from the suites around the host's own, without touching the host's apt.

apt gets folders and a list of sources of its own, all in the cache. The mirror is the one that the
host's apt is configured with, and apt checks the suite's signature with Debian's keyring. What has
been fetched stays until it is taken out of the cache: the same package gives the same kernel.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from numalab.artifact.digest import hash_file
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
# What a kernel or its source may be spread over. Debian's metapackages depend on the real ones.
_PARTS = re.compile(r"linux-(?:image|binary|modules|source|base-[0-9])-?[a-z0-9+.-]*")
_MOST_PARTS = 8


@dataclass(frozen=True)
class Mirror:
    """Where the host's apt gets Debian from: address, suite and the keyring it is signed with."""

    uri: str
    suite: str
    keyring: Path = KEYRING
    security: str | None = None  # the address of the suite's security fixes


@dataclass(frozen=True)
class Fetched:
    """Package files in the cache, in the order in which they were fetched."""

    files: tuple[Path, ...]
    versions: tuple[str, ...]  # "package=version" of each
    digest: str


@dataclass(frozen=True)
class _Record:
    files: tuple[str, ...]
    versions: tuple[str, ...]
    digest: str


class NotFetched(HostError):
    """A package that is not in the cache yet, and will be fetched by the first build."""


def split_package(text: str) -> tuple[str, str | None]:
    """Split apt's `package/suite`; the suite may be left out. Raises UserError."""
    found = _PACKAGE.fullmatch(text)
    if found is None:
        raise UserError(f"{text!r} is not PACKAGE or PACKAGE/SUITE, as apt writes it")
    return found[1], found[2]


def read_fetched(record: Path, what: str, command: str) -> Fetched:
    """Return the files that lie beside their record in the cache. Raises NotFetched."""
    facts = read_record(record, _Record)
    if facts is None:
        hint = f"{command} fetches it from the mirror that apt uses"
        raise NotFetched(f"{what} is not here", hint=hint)
    try:
        files = tuple(record.with_name(name) for name in facts.files)
        whole = all(file.is_file() for file in files)
    except (OSError, ValueError):  # not a name, or one that is too long
        whole = False
    if not whole:
        raise NotFetched(f"{what} is no longer whole", hint=f"rm -r {record.parent}")
    with suppress(OSError):
        os.utime(record.parent)  # when it was last used, for `numalab cache prune`
    return Fetched(files, facts.versions, facts.digest)


def fetch_once(
    fetched: Callable[[], Fetched],
    record: Path,
    download: Callable[[Path], tuple[list[Path], list[str]]],
) -> Fetched:
    """Return what is `fetched`, or `download` it into the record's folder, whole or not at all.

    `download` returns the files and their versions.
    """
    folder = record.parent
    with locked(folder.with_name(f"{folder.name}.lock")):
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
    """Raise HostError unless the files in the cache are those that apt has verified.

    `hashes` are the SHA-256 of files that need not be read again.
    """
    try:
        found = [(hashes or {}).get(path) or hash_file(path) for path in fetched.files]
    except OSError:
        found = []
    if _digest_of_files(found) != fetched.digest:
        raise HostError(
            f"the files of {', '.join(fetched.versions)} changed after they were fetched",
            hint=f"rm -r {fetched.files[0].parent}",
        )


def _digest_of_files(hashes: Iterable[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def fetched_packages(text: str) -> Fetched:
    """Return what was fetched for `package/suite`. Raises NotFetched."""
    return read_fetched(_record(text), f"the package {text}", "numalab kernel build NAME")


def fetch_packages(text: str, tell: Progress) -> Fetched:
    """Fetch `package/suite` (the host's own suite where none is said) unless the cache has it.

    A metapackage brings the kernel packages that it depends on. Raises UserError for a package or
    a suite that the mirror lacks, HostError without apt, a mirror or a signature that holds.
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
    """Return what this host's apt knows of Debian, as `parse_targets` does. Raises HostError."""
    wanted = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ARCHITECTURE)"
    words = ["indextargets", "--format", wanted, "Created-By: Packages"]
    return parse_targets(run([find_program("apt-get", "apt"), *words], check=False).stdout)


def own_mirror(targets: list[tuple[str, str]]) -> Mirror | None:
    """Return Debian's own suite with its security fixes, None where apt knows none.

    The shortest suite name is the suite itself: `bookworm`, and not `bookworm-updates`.
    """
    plain = [(uri, suite) for uri, suite in targets if "-security" not in suite and "debian" in uri]
    if not plain:
        return None
    uri, suite = min(plain, key=lambda each: len(each[1]))
    security = (each for each, name in targets if name == f"{suite}-security")
    return Mirror(uri, suite, security=next(security, None))


def host_mirror() -> Mirror:
    """Return the Debian mirror that this host's apt is configured with. Raises HostError."""
    targets = host_targets()
    check_keyring()
    mirror = own_mirror(targets)
    if mirror is None:
        raise HostError(
            "this host's apt knows no Debian mirror to fetch kernel packages from",
            hint="name a tarball, a git tree or a package file as the source",
        )
    return mirror


def check_keyring() -> None:
    """Raise HostError where Debian's keyring, which verifies every suite, is missing."""
    if not KEYRING.is_file():
        raise HostError(
            "Debian's keyring is not here, without which nothing fetched can be trusted",
            hint="apt-get install debian-archive-keyring",
        )


def render_sources(mirror: Mirror, suite: str, kind: str = "deb") -> str:
    """Render apt's list of sources (deb822, sources.list(5)) for one suite of a mirror.

    `kind` is deb for packages, deb-src for the sources that they are built from.
    """
    blocks = [(mirror.uri, suite)]
    if suite == mirror.suite and mirror.security is not None:
        blocks.append((mirror.security, f"{suite}-security"))
    return "\n".join(
        f"Types: {kind}\nURIs: {uri}\nSuites: {name}\nComponents: main\n"
        f"Signed-By: {mirror.keyring}\n"
        for uri, name in blocks
    )


# The host's hooks and extra indexes are for the host, not for a private list of one suite.
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

    Returns apt's options to use it. Raises UserError for a suite that the mirror lacks, HostError.
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
        "Dir::State::Status": "/dev/null",  # what is installed here does not matter
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
    tell(f"asking the mirror for {suite}", None)
    try:
        run([find_program("apt-get", "apt"), *apt, "--quiet", "update"], env={"LC_ALL": "C"})
    except CommandFailed as failed:
        text = failed.completed.stderr
        if f"{suite} Release' does not have a Release file" in text:
            raise UserError(f"the mirror has no suite called {suite!r}") from None
        raise apt_failed(f"cannot fetch the list of packages of {suite}", text) from None
    return apt


def _download(
    apt: list[str],
    package: str,
    suite: str | None,
    folder: Path,
    tell: Progress,
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
        wanted += [each for each in _needed_parts(_field(file, "${Depends}")) if each not in wanted]
    return files


def _needed_parts(depends: str) -> list[str]:
    """Return the kernel packages among a package's dependencies, alternatives left out."""
    first = (each.split("|")[0].split("(")[0].strip() for each in depends.split(","))
    return [name for name in first if _PARTS.fullmatch(name)]


def _no_package(apt: list[str], name: str, suite: str | None) -> UserError:
    stem = re.sub(r"-[0-9].*", "", name)
    there = run([find_program("apt-cache", "apt"), *apt, "pkgnames", stem], check=False).stdout
    names = sorted(one for one in there.split() if not one.endswith(("-dbg", "-unsigned")))
    return UserError(
        f"{suite or 'the suite of this host'} has no package {name!r}", choices=names[:30]
    )


def apt_failed(what: str, stderr: str) -> HostError:
    """Say what apt could not do, with the lines in which it says why."""
    said = [line for line in stderr.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    return HostError("\n  | ".join([what, *said[-5:]]))


def _source_tarball(file: Path) -> Path | None:
    """Take the tarball out of a source package, in whose place it stays; None for other packages.

    So a package that is installed and one that was fetched are the same source.
    """
    with scratch_folder(file.parent, ".tarball.") as scratch:
        run([find_program("dpkg-deb", "dpkg"), "--extract", file, scratch])
        found = sorted((scratch / "usr/src").glob("linux-source-*.tar.*"))
        if not found:
            return None
        tarball = found[0].replace(file.with_name(found[0].name))
    file.unlink()
    return tarball


def _field(file: Path, wanted: str) -> str:
    shown = run([find_program("dpkg-deb", "dpkg"), "--show", f"--showformat={wanted}", file])
    return shown.stdout.strip()


def _record(text: str) -> Path:
    package, suite = split_package(text)
    return cache_dir("packages") / (f"{package}_{suite}" if suite else package) / "packages.json"
