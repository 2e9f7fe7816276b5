"""Plug-ins of other users: random owners, modes and links of a lab folder and all in it.

A plug-in may only run when nobody but root and the user can change it, or put another in its
place: it, its folder, the lab folder and those above are theirs and not writable by anybody else.
"""

import os
import random
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fuzz.commands import Box
from support.example_results import copy_example

CASES, FEW = 2000, 6
RAN = b"the plug-in ran"
PLUGIN = f"print({RAN.decode()!r})\n"
ROOT, USER, OTHER = 0, 54_321, 54_322
COMMANDS = [["topology", "list"], ["measures"], ["topology", "check", "machine.toml"],
            ["trace", "nothing.dat"], ["report", "results"], ["plan", "nothing"]]  # fmt: skip


def missing() -> str:
    """Return what is missing for files of other users."""
    return "" if os.geteuid() == 0 else "files of other users take root"


@dataclass(frozen=True)
class Attempt:
    """The files that decide whether a plug-in may run, and who runs the command."""

    user: int
    lab: Path
    file: Path

    def foreign(self) -> str:
        """Return the path that another user can change, empty where there is none.

        The lab folder may be a sticky one, as the folders above it may. root's group has no other
        member; the other users here have no entries, and no groups of their own.
        """
        for path in _chain(self.file):
            status = path.stat()
            if status.st_uid not in (ROOT, self.user):
                return f"{path} is of user {status.st_uid}"
            private = (status.st_uid, status.st_gid) == (ROOT, ROOT) and not os.listxattr(path)
            writable = stat.S_IMODE(status.st_mode) & (0o002 if private else 0o022)
            above = path in (self.lab, *self.lab.parents)
            if writable and not (above and status.st_mode & stat.S_ISVTX):
                return f"{path} has mode {stat.S_IMODE(status.st_mode):o}"
        return ""

    def safe(self) -> bool:
        """Tell whether it must run: it can be read, and no link or sticky folder is in doubt."""
        chain = _chain(self.file)
        plain = self.file.resolve() == self.file and not self.lab.stat().st_mode & stat.S_ISVTX
        return plain and not self.foreign() and all(self._reads(path) for path in chain)

    def _reads(self, path: Path) -> bool:
        status = path.stat()
        wanted = 0o5 if path.is_dir() else 0o4
        shift = 6 if status.st_uid == self.user else 0
        return self.user == ROOT or (status.st_mode >> shift) & wanted == wanted


def _chain(file: Path) -> list[Path]:
    """Return a file and the folders above it, by its name and where links lead."""
    resolved = file.resolve()
    folders = {*file.parents, *resolved.parents, *file.parent.resolve().parents}
    return [resolved, *sorted(folders)]


def case(seed: int, scratch: Path) -> str:
    """Make a lab folder of several users, and run a command in it."""
    rng = random.Random(seed)
    scratch.chmod(0o755)
    box = Box(scratch)
    user = rng.choice([ROOT, USER])
    for path in (box.cache, box.tmp, scratch / "home"):
        os.chown(path, user, user)
    attempt = _lab(rng, box, user)
    env = {} if rng.random() < 0.6 else {"NUMALAB_PATH": str(attempt.lab)}
    cwd = attempt.lab if not env or rng.random() < 0.3 else scratch / "home"
    if rng.random() < 0.2 and not env:
        env, cwd = {"NUMALAB_PATH": "."}, attempt.lab
    own = user == ROOT or attempt._reads(cwd)
    line = rng.choice(COMMANDS)
    ended = box.run(*line, cwd=cwd if own else scratch / "home", env=env, user=user)
    box.check(ended)
    ran, foreign = RAN in ended.out, attempt.foreign()
    who = "root" if user == ROOT else "user"
    assert not (ran and foreign), f"a foreign plug-in ran as {who}: {foreign}\n{ended}"
    needs = line in COMMANDS[:2] and own
    assert ran or not (needs and attempt.safe()), f"an own plug-in did not run\n{ended}"
    return f"as {who}: {'foreign' if foreign else 'own'}, {'ran' if ran else 'did not run'}"


def _lab(rng: random.Random, box: Box, user: int) -> Attempt:
    """Make a lab folder in which nearly all is the user's; one to three things are not."""
    lab = box.work / "shared" / "lab"
    plugins = lab / "plugins"
    elsewhere = box.work / "elsewhere" / "code"
    elsewhere.mkdir(parents=True)
    (lab / "topologies").mkdir(parents=True)
    copy_example(lab / "results")
    (lab / "machine.toml").write_text('summary = "x"\nnodes = 1\ncpus = 1\nmemory_mib = 512\n')
    file = plugins / "mine.py"
    target = file
    links = rng.choice(["none"] * 4 + ["folder", "file", "both"])
    if links in ("folder", "both"):
        plugins.symlink_to(elsewhere)
    else:
        plugins.mkdir()
    if links in ("file", "both"):
        target = elsewhere.parent / "target.py"
        file.symlink_to(target)
    target.write_text(PLUGIN)
    paths = [box.work, lab.parent, lab, plugins, target, elsewhere, elsewhere.parent]
    for path in dict.fromkeys(path.resolve() for path in paths):
        owner = user if rng.random() < 0.8 else ROOT
        os.chown(path, owner, rng.choice([owner, OTHER]))
        path.chmod(0o644 if path.is_file() else 0o755)
    for path in rng.sample(paths, rng.choice([0, 0, 1, 1, 2])):
        _odd(rng, path, user)
    return Attempt(user, lab, file)


def _odd(rng: random.Random, path: Path, user: int) -> None:
    """Give a file or folder to another user, or let others write to it."""
    match rng.randrange(4):
        case 0 | 1:
            other = rng.choice([OTHER, ROOT if user == USER else USER])
            os.chown(path, other, rng.choice([user, other]))
        case 2:
            modes = [0o775, 0o757, 0o777, 0o1777, 0o2775, 0o1775, 0o4755, 0o700, 0o711, 0o666]
            path.chmod(rng.choice(modes) | (0 if path.is_file() else 0o111))
        case _:
            # acl(5): an entry of another user; the mask is then what stat(2) shows of the group.
            entries = [(0x01, 7, -1), (0x02, 7, OTHER), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
            packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
            with suppress(OSError):
                os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + packed)
