"""The packages of an image: a tarball of Debian packages, made by mmdebstrap without root."""

import os
import pwd
import re
import shlex
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path

from numalab.errors import BuildError, HostError, UserError
from numalab.image.recipe import Recipe, declared_in
from numalab.process import CommandFailed, find_program, run, run_logged
from numalab.progress import Progress
from numalab.source.debian_packages import KEYRING, check_keyring, host_targets

EPOCH = 1_704_067_200  # 2024-01-01T00:00:00Z, the time stamp of everything in an image
# Files that guests do not use, and that differ from host to host or from day to day.
HOST_FILES = (
    "./dev/*",
    "./etc/apt/*",
    "./etc/hostname",
    "./etc/machine-id",
    "./etc/resolv.conf",
    "./run/*",
    "./tmp/*",
    "./var/cache/*",
    "./var/lib/apt/*",
    "./var/log/*",
)
# mmdebstrap's message at the beginning of a step -> the fraction that is done.
_STEPS = {
    "running apt-get update": 0.02,
    "downloading packages": 0.15,
    "extracting archives": 0.45,
    "installing essential": 0.50,
    "installing remaining": 0.60,
    "cleaning package lists": 0.85,
    "creating tarball": 0.88,
}
_UNKNOWN_PACKAGE = re.compile(
    r"E: (?:Unable to locate package|Package '?)\s*([a-z0-9][a-z0-9+.-]*)"
)

_FAILED_STEP = re.compile(r'E: command failed: chroot "\$1" sh -ec (.+)')


def pack_packages(recipe: Recipe, target: Path, log: Path, on_progress: Progress) -> None:
    """Install the recipe's packages into a new tree and write it to `target` as a tarball.

    Packages come from the mirrors of this host's apt, else from mmdebstrap's default. Raises
    UserError for a package that the suite lacks, HostError where no tree can be made, and
    BuildError with the end of the log.
    """
    program = find_program("mmdebstrap", "mmdebstrap")
    check_keyring()

    def line(text: str) -> None:
        for words, done in _STEPS.items():
            if words in text:
                on_progress(words, done)

    argv = render_mmdebstrap(recipe, target, choose_mode(), host_mirrors(recipe.suite))
    environment = {"SOURCE_DATE_EPOCH": str(EPOCH)}
    try:
        run_logged([program, *argv], log, env=environment, on_line=line)
    except CommandFailed as failed:
        if missing := missing_package(log.read_text(errors="replace")):
            near = get_close_matches(missing, _package_names(), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            reason = f"{recipe.suite} has no package {missing!r}{hint}"
            file = declared_in(recipe, missing)
            key = "--package" if file is None else "packages"
            raise UserError(reason, file=file, key=key) from None
        step = _FAILED_STEP.search(failed.completed.stdout)
        what = f"a step of post failed: {shlex.split(step[1])[0]}" if step else "mmdebstrap failed"
        tail = failed.completed.stdout
        raise BuildError(f"image {recipe.name}: {what}", log=log, tail=tail) from None


def render_mmdebstrap(
    recipe: Recipe, target: Path, mode: str, mirrors: tuple[str, ...]
) -> tuple[str, ...]:
    """Render mmdebstrap's arguments. Pure."""
    return (
        f"--mode={mode}",
        f"--variant={recipe.variant}",
        "--format=tar",
        f"--include={','.join(recipe.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.exclude),
        *(f'--customize-hook=chroot "$1" sh -ec {shlex.quote(step)}' for step in recipe.post),
        recipe.suite,
        str(target),
        *mirrors,
    )


def missing_package(log: str) -> str | None:
    """Return the package that apt could not find, from its log; None for another failure."""
    match = _UNKNOWN_PACKAGE.search(log)
    return match[1] if match else None


def _package_names() -> list[str]:
    try:
        return run(["apt-cache", "pkgnames"], check=False).stdout.split()
    except HostError:
        return []


def user_namespace_failure() -> tuple[str, str] | None:
    """Return why user namespaces cannot be used, and a hint; None if they can.

    Raises HostError where a program for them is not installed.
    """
    if run(["unshare", "--user", "--map-root-user", "true"], check=False).returncode != 0:
        return (
            "this kernel or container lets only root make user namespaces",
            "as root: sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000;"
            " in a container, be root, or use the NUMALAB_CACHE of a user who has built the image",
        )
    if os.geteuid() == 0:
        return None
    find_program("newuidmap", "uidmap")
    if failure := _subordinate_ids_failure():
        return failure
    # The command that numalab runs later; it fails where set-user-id programs have no effect.
    trial = run([find_program("mmdebstrap", "mmdebstrap"), *_TRIAL], check=False)
    if trial.returncode != 0:
        reason = (trial.stderr.strip().splitlines() or ["newuidmap failed"])[-1]
        return reason, f"run {shlex.join(['mmdebstrap', *_TRIAL])}; in a container, be root"
    return None


_TRIAL = ("--unshare-helper", "true")


def _subordinate_ids_failure() -> tuple[str, str] | None:
    """Return why this user has no ids to map, and the command of root that gives some."""
    add = "--add-subuids 100000-165535 --add-subgids 100000-165535"
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:  # newuidmap(1) refuses such a user, whatever /etc/subuid has
        name = f"numalab-{uid}"
        hint = f"as root: useradd --uid {uid} {name} && usermod {add} {name}"
        return f"user id {uid} has no entry in /etc/passwd", hint
    for path in (Path("/etc/subuid"), Path("/etc/subgid")):
        if not _has_line(path, user):
            return f"{user} has no line in {path}", f"as root: usermod {add} {user}"
    return None


def choose_mode(
    namespace_failure: Callable[[], tuple[str, str] | None] = user_namespace_failure,
) -> str:
    """Return the mode of mmdebstrap: `unshare`, or `root` as root without user namespaces.

    Raises HostError where neither works.
    """
    if not (failure := namespace_failure()):
        return "unshare"
    if os.geteuid() == 0:
        return "root"
    raise HostError(f"cannot build an image without root: {failure[0]}", hint=failure[1])


def _has_line(path: Path, user: str) -> bool:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.split(":")[0] in (user, str(os.geteuid())) for line in lines)


def host_mirrors(suite: str) -> tuple[str, ...]:
    """Return the lines of sources of `suite` in the configuration of this host's apt.

    Empty where apt is missing or has another suite only; mmdebstrap then uses its default.
    """
    try:
        return one_line_sources(host_targets(), suite)
    except HostError:
        return ()


def one_line_sources(targets: Iterable[tuple[str, str]], suite: str) -> tuple[str, ...]:
    """Render apt's one-line sources of the suite, its updates and its security fixes.

    `targets` are (address, suite). Without the suite itself the result is empty. Only Debian's
    keyring is trusted: without `signed-by`, apt would accept the keys of other repositories too.
    """
    names = (suite, f"{suite}-updates", f"{suite}-security")
    sources = sorted({(names.index(name), uri) for uri, name in targets if name in names})
    if not sources or sources[0][0] != 0:
        return ()
    return tuple(f"deb [signed-by={KEYRING}] {uri} {names[rank]} main" for rank, uri in sources)


def installed_packages(status: str) -> tuple[str, ...]:
    """Parse dpkg's status file into `name=version`, sorted by name."""
    packages = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)", paragraph, re.M))
        if fields.get("Status", "").endswith(" installed"):
            packages.append(f"{fields['Package']}={fields.get('Version', '')}")
    return tuple(sorted(packages))
