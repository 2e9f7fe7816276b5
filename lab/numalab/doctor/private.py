"""Removes private names and paths from a report. Pure, except `names_here`."""

import os
import platform
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Every Linux has these folders; all other absolute paths are removed.
_COMMON = ("/dev", "/proc", "/sys", "/usr")
# A path, and what follows the scheme of a URL: it may have a password.
_PATH = re.compile(r"(?<!qemu:)(?<![\w./])/[^\s'\",;:()<>]+(?::[^\s'\",;()<>]+@[^\s'\",;()<>]*)?")
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_MAC = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)
_SHORTEST = 2  # a name of one letter would remove that letter everywhere


@dataclass(frozen=True)
class PrivateNames:
    """Names to remove from a report, the longest first."""

    homes: tuple[str, ...]
    users: tuple[str, ...]
    hosts: tuple[str, ...]


def private_names(homes: Iterable[str], users: Iterable[str], hosts: Iterable[str]) -> PrivateNames:
    """Return the names to remove; `root` and `localhost` are not private."""

    def kept(names: Iterable[str]) -> tuple[str, ...]:
        own = {name for name in names if len(name) >= _SHORTEST} - {"root", "localhost"}
        return tuple(sorted(own, key=lambda name: (-len(name), name)))

    whole = list(hosts)
    short = [name.partition(".")[0] for name in whole]
    domains = [name.partition(".")[2] for name in whole]
    return PrivateNames(kept(homes), kept(users), kept([*whole, *short, *domains]))


def names_here() -> PrivateNames:
    """Return the names of this host and of the user, also of the one who called sudo.

    The folders of numalab count as homes: their paths may have spaces.
    """
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    folders = ("HOME", "NUMALAB_CACHE", "NUMALAB_HOME", "XDG_CACHE_HOME")
    homes = {os.environ.get(name, "") for name in folders} | {str(Path.cwd())}
    with suppress(RuntimeError):  # a user id without an entry in passwd(5)
        homes.add(str(Path.home()))
    entries = []
    with suppress(KeyError):
        entries.append(pwd.getpwuid(os.getuid()))
    for user in users:
        with suppress(KeyError):
            entries.append(pwd.getpwnam(user))
    users |= {entry.pw_name for entry in entries}
    homes |= {entry.pw_dir for entry in entries}
    return private_names(homes - {"/"}, users, [platform.node()])


def without_private(value: object, names: PrivateNames) -> object:
    """Return JSON values with `clean` applied to every string, keys too."""
    if isinstance(value, str):
        return clean(value, names)
    if isinstance(value, Mapping):
        return {
            clean(str(key), names): without_private(entry, names) for key, entry in value.items()
        }
    if isinstance(value, Sequence):
        return [without_private(entry, names) for entry in value]
    return value


def clean(text: str, names: PrivateNames) -> str:
    """Replace homes, paths, names of users and hosts, UUIDs and hardware addresses."""
    for home in names.homes:
        text = re.sub(rf"{re.escape(home)}(?![\w.-])[^\s'\",;:()<>]*", "<path>", text)
    text = _PATH.sub(_path, text)
    text = _MAC.sub("<address>", _UUID.sub("<uuid>", text))
    for kind, words in (("<host>", names.hosts), ("<user>", names.users)):
        for word in words:
            pattern = rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])"
            text = re.sub(pattern, kind, text, flags=re.IGNORECASE)
    return text


def _path(match: re.Match[str]) -> str:
    path = match[0]
    common = any(path == folder or path.startswith(f"{folder}/") for folder in _COMMON)
    return path if common else "<path>"
