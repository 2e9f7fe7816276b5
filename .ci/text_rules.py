"""Checks the rules of our text that a program can check; `make check` runs it.

    python .ci/text_rules.py

Rules: identifiers in Python are nouns of the domain, text lines of Markdown have at most 100
columns, README and the guides are short, and commit messages of the branch have the usual form.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("lab", "tests", ".ci", "docs")
# Fillers that say nothing about a value.
FILLERS = frozenset(("found", "each", "told", "there", "others", "known", "seen", "given", "one"))
MAX_COLUMNS = 100
MAX_README_LINES = 110
GUIDES = ("tutorial.md", "how-to/*.md", "reference/*.md", "explanation/*.md")
MAX_GUIDE_WORDS = 30_000
MAX_HOW_TO_LINES = 80
MAX_SUBJECT = 72
MAX_BODY = 75
_SUBJECT = re.compile(r"[a-z0-9][a-z0-9_./, -]*: \S.*[^.]")
_FENCE = re.compile(r"\s*(```|~~~)")


def check_identifiers(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and message of each name that is a filler.

    A field that is a key of a stored file keeps its name, with `# key of FILE` on its line.
    """
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        for name in _new_names(node):
            number = getattr(node, "lineno", 1)
            if name.strip("_") in FILLERS and "# key of " not in lines[number - 1]:
                yield number, f"{name!r} is a filler, not a noun of the domain"


def _new_names(node: ast.AST) -> list[str]:
    """Return the identifiers that a node of the syntax tree introduces."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case (
            ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.ExceptHandler(name=str(name))
            | ast.alias(asname=str(name))
        ):
            return [name]
        case _:
            return []


def check_columns(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and message of each line of text that is too long.

    Tables, code blocks, and lines that a long link makes too long cannot be wrapped.
    """
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and len(line) > MAX_COLUMNS and _can_wrap(line):
            yield number, f"{len(line)} columns, at most {MAX_COLUMNS}"


def _can_wrap(line: str) -> bool:
    return " " in line[:MAX_COLUMNS].strip() and not line.lstrip().startswith(("|", "<"))


def check_lengths(docs: Path, readme: Path) -> Iterator[str]:
    """Yield a message for each limit on the length of README and guides that is exceeded."""
    lines = len(readme.read_text(encoding="utf-8").splitlines())
    if lines > MAX_README_LINES:
        yield f"{readme.name}: {lines} lines, at most {MAX_README_LINES}"
    for page in sorted(docs.glob("how-to/*.md")):
        lines = len(page.read_text(encoding="utf-8").splitlines())
        if lines > MAX_HOW_TO_LINES:
            yield f"docs/how-to/{page.name}: {lines} lines, at most {MAX_HOW_TO_LINES}"
    pages = [page for pattern in GUIDES for page in docs.glob(pattern)]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    if words > MAX_GUIDE_WORDS:
        yield f"docs: {words} words in {', '.join(GUIDES)}, at most {MAX_GUIDE_WORDS}"


def check_message(message: str) -> Iterator[str]:
    """Yield each defect of a commit message."""
    subject, *rest = message.strip().splitlines() or [""]
    if len(subject) > MAX_SUBJECT:
        yield f"the subject has {len(subject)} characters, at most {MAX_SUBJECT}"
    if not _SUBJECT.fullmatch(subject):
        yield "the subject is not `area: imperative summary`, without a full stop"
    if not rest or rest[0] or not any(rest):
        yield "no blank line and body after the subject: say why"
    for line in rest:
        # Output, addresses and trailers are quoted as they are.
        if len(line) > MAX_BODY and " " in line.strip() and not line.startswith((" ", "\t")):
            yield f"a line of the body has {len(line)} characters, at most {MAX_BODY}"


def branch_messages() -> Iterator[tuple[str, str]]:
    """Yield name and message of each commit that the branch has and its upstream lacks.

    A branch without an upstream is compared with `main`. Merges have no message of ours.
    """
    for base in ("@{upstream}", "origin/main", "main"):
        log = _git("log", "--no-merges", "--format=%h%x00%B%x01", f"{base}..HEAD")
        if log is not None:
            for entry in log.split("\x01"):
                name, _, message = entry.strip().partition("\x00")
                if name:
                    yield name, message
            return


def _git(*arguments: str) -> str | None:
    result = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return result.stdout if result.returncode == 0 else None


def _tracked(*patterns: str) -> Iterator[Path]:
    """Yield the files of the repository; every file below it when there is no git."""
    names = _git("ls-files", "--cached", "--others", "--exclude-standard", *patterns)
    for name in sorted((names or "").splitlines()):
        if (path := ROOT / name).is_file():
            yield path


def problems() -> Iterator[str]:
    """Yield every violation as `file:line: message`."""
    for path in _tracked(*(f"{folder}/**.py" for folder in CODE)):
        for line, message in check_identifiers(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(ROOT)}:{line}: {message}"
    for path in _tracked("*.md", ":!tests/data/golden"):  # reports, as they are rendered
        for line, message in check_columns(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(ROOT)}:{line}: {message}"
    yield from check_lengths(ROOT / "docs", ROOT / "README.md")
    for name, message in branch_messages():
        for defect in check_message(message):
            yield f"commit {name}: {defect}"


if __name__ == "__main__":
    violations = list(problems())
    print("\n".join(violations))
    sys.exit(bool(violations))
