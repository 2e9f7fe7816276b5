"""Unified diffs: parse one, and apply it to text without fuzz. Pure.

Patches of `git format-patch`, b4 and quilt: new, deleted and renamed files, and changed modes;
binary patches, copies, symbolic links, submodules and diffs of merges are refused. Format:
"Detailed Unified" in the GNU diffutils manual; git-diff(1), "Generating patch text with -p".
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")
_COMBINED = ("diff --cc ", "diff --combined ", "@@@ -")
_NO_NEWLINE = "\\ No newline at end of file"
_NEARBY = 400  # lines up and down to search for the place of a failing hunk
_SHOWN = 200  # lines of a failing hunk
_MAX_EFFORT = 20_000_000  # compared lines; a hostile patch needs quadratic time
_MAX_NAME, _MAX_PART, _MAX_DEPTH = 2000, 255, 64  # bytes of a name and of a part of it; parts
_KINDS = {0o120000: "a symbolic link", 0o160000: "a submodule"}
_ESCAPE = r'\\(?:[abtnvfr"\\]|[0-3][0-7]{2})'
_QUOTED = rf'"((?:[^"\\]|{_ESCAPE})*)"'
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


class PatchError(Exception):
    """The text is no readable patch; the message names the line."""


class HunkFailed(Exception):
    """A hunk does not fit the file; the message shows the file's lines."""


@dataclass(frozen=True)
class Hunk:
    """One hunk: its first line (from 1) in the old file; its lines with their first character.

    `header` is the line (from 0) of its "@@" in the patch.
    """

    start: int
    lines: tuple[str, ...]
    newline_at_end: bool = True
    header: int = field(default=0, compare=False)

    @property
    def old(self) -> tuple[str, ...]:
        """The lines of the old file."""
        return tuple(line[1:] for line in self.lines if line[0] != "+")

    @property
    def new(self) -> tuple[str, ...]:
        """The lines of the new file."""
        return tuple(line[1:] for line in self.lines if line[0] != "-")


@dataclass(frozen=True)
class FilePatch:
    """The changes of one file; `old` is None for a new file, `new` for a deleted one."""

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...] = ()


@dataclass
class _Effort:
    """The number of lines that may still be compared to find the hunks of a patch."""

    left: int = _MAX_EFFORT

    def spend(self, lines: int) -> None:
        self.left -= lines
        if self.left < 0:
            raise HunkFailed("its hunks are too many, too large and too far from their lines")


@dataclass
class _Open:
    """The file that is being parsed."""

    old: str | None = None
    new: str | None = None
    hunks: list[Hunk] = field(default_factory=list)


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Parse a patch with mail headers and signature. Raises PatchError."""
    lines = text.split("\n")
    files: list[_Open] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            files.append(_git_names(line, at))
        elif line.startswith("--- ") and lines[at + 1 : at + 2] and lines[at + 1][:4] == "+++ ":
            old, new = _name(line, at), _name(lines[at + 1], at + 1)
            if not files or files[-1].hunks or not _git_header(lines, at):
                files.append(_Open())
            files[-1].old, files[-1].new = old, new
            at += 1
        elif files and line.startswith("@@ -"):
            hunk, at = _parse_hunk(lines, at)
            files[-1].hunks.append(hunk)
            continue
        elif line.startswith(_COMBINED):
            raise PatchError(f"line {at + 1}: the combined diff of a merge cannot be applied")
        elif files and not files[-1].hunks:
            _extended_header(files[-1], line, at)
        at += 1
    if not files:
        raise PatchError("holds no diff")
    return tuple(FilePatch(file.old, file.new, tuple(file.hunks)) for file in files)


def apply_patch(
    files: tuple[FilePatch, ...],
    read: Callable[[str], str | None],
    on_place: Callable[[Hunk, int, int], None] = lambda _hunk, _old, _new: None,
) -> Mapping[str, str | None]:
    """Apply a parsed patch; `read` returns a file's text, None for no file.

    Returns the new text of each touched file, None for a deleted one. `on_place` gets the correct
    line numbers of each hunk's header. Raises HunkFailed.
    """
    result: dict[str, str | None] = {}
    effort = _Effort()

    def now(path: str) -> str | None:
        return result[path] if path in result else read(path)

    for file in files:
        old_path, new_path = file.old, file.new
        before = now(old_path) if old_path is not None else ""
        if before is None:
            raise HunkFailed(f"{old_path} does not exist")
        if new_path is not None and new_path != old_path and now(new_path) is not None:
            raise HunkFailed(f"{new_path} exists already")
        after = _apply_hunks(file, before, on_place, effort)
        if old_path is not None and old_path != new_path:
            if new_path is None and after:
                raise HunkFailed(f"{old_path} has lines that the patch does not delete")
            result[old_path] = None
        if new_path is not None:
            result[new_path] = after
    return result


def renew_offsets(text: str, read: Callable[[str], str | None]) -> str:
    """Return a patch with the line numbers at which its hunks fit the files of `read`.

    Raises PatchError, HunkFailed.
    """
    lines = text.split("\n")

    def renew(hunk: Hunk, old: int, new: int) -> None:
        starts = iter((f"-{old}", f"+{new}"))
        header = lines[hunk.header]
        lines[hunk.header] = re.sub(r"(?<= )[-+]\d+", lambda _: next(starts), header, count=2)

    apply_patch(parse_patch(text), read, renew)
    return "\n".join(lines)


def _apply_hunks(
    file: FilePatch, text: str, on_place: Callable[[Hunk, int, int], None], effort: _Effort
) -> str:
    lines = text.split("\n")
    ends_with_newline = lines[-1] == ""
    if ends_with_newline:
        lines.pop()
    shift = grown = 0
    for number, hunk in enumerate(file.hunks, 1):
        wanted = max(hunk.start - 1, 0) + shift + (1 if not hunk.old and hunk.start else 0)
        effort.spend(len(lines) // 100)  # the lines after the hunk move
        place = _find(lines, hunk.old, wanted, effort)
        if place is None:
            raise HunkFailed(_explain(file, number, lines, wanted, effort))
        # Where a side has no line, diff counts the line before (GNU diffutils, Detailed Unified).
        on_place(hunk, place - grown + bool(hunk.old), place + bool(hunk.new))
        grown += len(hunk.new) - len(hunk.old)
        lines[place : place + len(hunk.old)] = hunk.new
        if place + len(hunk.new) == len(lines):
            ends_with_newline = hunk.newline_at_end
        shift += place - wanted + len(hunk.new) - len(hunk.old)
    return "\n".join(lines) + ("\n" if ends_with_newline and lines else "")


def _find(lines: list[str], old: tuple[str, ...], wanted: int, effort: _Effort) -> int | None:
    """Return the line of `old` that is nearest to `wanted`."""
    if not old:
        return min(wanted, len(lines))
    last = len(lines) - len(old)
    for distance in range(max(wanted, last - wanted, 0) + 1):
        for place in (wanted - distance, wanted + distance):
            effort.spend(1)
            if 0 <= place <= last and lines[place] == old[0]:
                effort.spend(len(old))
                if tuple(lines[place : place + len(old)]) == old:
                    return place
    return None


def _explain(file: FilePatch, number: int, lines: list[str], wanted: int, effort: _Effort) -> str:
    """Show the lines of the hunk and those of the file where the hunk fits best."""
    hunk = file.hunks[number - 1]
    old = hunk.old[:_SHOWN]

    def alike(place: int) -> int:
        return sum(a == b for a, b in zip(old, lines[place : place + len(old)], strict=False))

    first, last = max(wanted - _NEARBY, 0), min(wanted + _NEARBY, max(len(lines) - 1, 0))
    place = max(range(first, last + 1), key=lambda p: (alike(p), -abs(p - wanted)), default=0)
    text = [f"hunk {number} of {len(file.hunks)} does not fit {file.old}"]
    if hunk.new and _find(lines, hunk.new, wanted, effort) is not None:
        text[0] += "; it seems to be applied already"
    elif _find(_without_cr(lines), tuple(_without_cr(hunk.old)), wanted, effort) is not None:
        of_patch = _without_cr(hunk.old) != [*hunk.old]
        whose = "its lines end" if of_patch else "lines of the file end"
        text[0] += f" only because {whose} in CR LF"
    text += ["the patch wants:", *(f"    {line}" for line in old)]
    text.append(f"the file has, from line {place + 1} (> differs):")
    for index, line in enumerate(lines[place : place + len(old)]):
        text.append(f"  {'>' if line != old[index] else ' '} {line}")
    return "\n".join(text)


def _without_cr(lines: Iterable[str]) -> list[str]:
    return [line.removesuffix("\r") for line in lines]


def _parse_hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    header = _HUNK.fullmatch(lines[at])
    if header is None:
        raise PatchError(f"line {at + 1}: {lines[at][:60]!r} is not a hunk header")
    old = int(header[2] if header[2] is not None else 1)
    new = int(header[4] if header[4] is not None else 1)
    hunk = Hunk(int(header[1]), (), header=at)
    body: list[str] = []
    begin, at = at + 1, at + 1
    while old > 0 or new > 0:
        line = lines[at] if at < len(lines) else None
        if line is None or (line and line[0] not in " +-\\"):
            raise PatchError(f"line {at + 1}: the hunk that begins in line {begin} is cut short")
        line = line or " "  # mailers strip the blank of an empty context line
        old -= line[0] in " -"
        new -= line[0] in " +"
        if line[0] != "\\":
            body.append(line)
        at += 1
    if old < 0 or new < 0 or not body:
        raise PatchError(f"the hunk in line {begin} has other lines than its header counts")
    if at < len(lines) and lines[at] == _NO_NEWLINE:
        # Behind the last line: an added or context line means that the new text ends so.
        hunk = replace(hunk, newline_at_end=bool(body) and body[-1][0] == "-")
        at += 1
    return replace(hunk, lines=tuple(body)), at


def _git_header(lines: list[str], at: int) -> bool:
    """Tell whether the `---` line at `at` belongs to a `diff --git` line above it."""
    for line in reversed(lines[max(at - 8, 0) : at]):
        if line.startswith("diff --git "):
            return True
        if not re.match(r"(index|old mode|new mode|new file|deleted|similarity|rename) ?", line):
            return False
    return False


def _git_names(line: str, at: int) -> _Open:
    names = line.removeprefix("diff --git ")
    middle = len(names) // 2
    old, new = names[:middle], names[middle + 1 :]
    # Equal names may hold " b/". The names of a rename are repeated after "rename from".
    if (old[:2], new[:2]) != ("a/", "b/") or old[2:] != new[2:]:
        if quoted := re.match(_QUOTED, names):
            old, new = quoted[0], names[quoted.end() + 1 :]
        elif names.endswith('"'):
            old, _, new = names.partition(' "')
            new = f'"{new}'
        else:
            old, _, new = names.rpartition(" b/")
            new = f"b/{new}"
        old, new = _unquote(old, at), _unquote(new, at)
    if (old[:2], new[:2]) != ("a/", "b/") or not min(len(old), len(new)) > 2:
        raise PatchError(
            f"line {at + 1}: cannot read the names in {line[:80]!r}; they begin with a/ and b/, "
            "as git writes them unless diff.noprefix or diff.mnemonicPrefix is set"
        )
    return _Open(_name_below(old, at), _name_below(new, at))


def _extended_header(file: _Open, line: str, at: int) -> None:
    if mode := re.match(r"(?:(?:new file|deleted file|old|new) mode|index \S+\.\.\S+) (\d+)", line):
        _check_mode(file, mode[1], at)
    if line.startswith("new file mode "):
        file.old = None
    elif line.startswith("deleted file mode "):
        file.new = None
    elif line.startswith("rename from "):
        file.old = _safe(_unquote(line.removeprefix("rename from "), at), at)
    elif line.startswith("rename to "):
        file.new = _safe(_unquote(line.removeprefix("rename to "), at), at)
    elif line.startswith(("GIT binary patch", "Binary files ")):
        raise PatchError(f"line {at + 1}: binary patches cannot be applied")
    elif line.startswith("copy from "):
        raise PatchError(f"line {at + 1}: patches that copy a file cannot be applied")


def _check_mode(file: _Open, mode: str, at: int) -> None:
    kind = int(mode, 8) & 0o170000 if re.fullmatch("[0-7]{6}", mode) else 0
    if kind != 0o100000:
        what = _KINDS.get(kind, f"a file of mode {mode[:20]}")
        raise PatchError(f"line {at + 1}: {file.new or file.old} is {what}: only files can change")


def _name(line: str, at: int) -> str | None:
    text = line[4:]
    path = _unquote(text, at) if text.startswith('"') else text.partition("\t")[0].rstrip()
    return None if path == "/dev/null" else _name_below(path, at)


def _name_below(path: str, at: int) -> str:
    """Return a name without the folder that -p1 removes."""
    head, slash, rest = path.partition("/")
    if not slash or not head:
        raise PatchError(f"line {at + 1}: {path!r} has no leading a/ or b/ (only -p1 works)")
    return _safe(rest, at)


def _unquote(text: str, at: int) -> str:
    """Return a name without the quotes of C that git may use (core.quotePath in git-config(1))."""
    if not text.startswith('"'):
        return text
    quoted = re.match(_QUOTED, text[: 8 * _MAX_NAME])
    if quoted is None:
        raise PatchError(f"line {at + 1}: cannot read the name in {text[:80]!r}")
    data = bytearray()
    for escape in re.finditer(rf"{_ESCAPE}|.", quoted[1], re.DOTALL):
        if len(escape[0]) == 1:
            data += escape[0].encode("utf-8", "surrogateescape")
        else:
            code = escape[0][1:]
            data.append(_ESCAPES[code] if code in _ESCAPES else int(code, 8))
    return data.decode("utf-8", "surrogateescape")


def _safe(path: str, at: int) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise PatchError(f"line {at + 1}: {path!r} leads out of the source tree")
    if not path.isprintable():
        raise PatchError(f"line {at + 1}: the name {path!a} is no printable UTF-8")
    if {"", "."} & set(parts) or ".git" in path.lower().split("/"):
        raise PatchError(f"line {at + 1}: {path!r} is no name of a source file")
    longest = max(len(part.encode()) for part in parts)
    if len(path.encode()) > _MAX_NAME or longest > _MAX_PART or len(parts) > _MAX_DEPTH:
        raise PatchError(f"line {at + 1}: the name {path[:80]!r}... is too long")
    return path
