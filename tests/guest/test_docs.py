"""Every command that the documentation shows runs, and ends as it says."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Commands in docs/results are those of a day and a machine.
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "results"),
]
EXIT = re.compile(r"#\s*exits with (\d+)\s*$")


def shown() -> Iterator[tuple[str, str, str]]:
    """Yield page, folder and command of each line `$ command` in a fenced block.

    `$ cd FOLDER` holds until the page ends. A command is run once for each folder.
    """
    commands = set()
    for page in PAGES:
        fenced, folder = False, "."
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                fenced = not fenced
            elif fenced and line.startswith("$ cd "):
                folder = line.removeprefix("$ cd ")
            elif fenced and line.startswith("$ ") and (folder, line[2:]) not in commands:
                commands.add((folder, line[2:]))
                yield str(page.relative_to(ROOT)), folder, line[2:]


COMMANDS = [shown_command for shown_command in shown() if not shown_command[2].startswith("make ")]
TARGETS = [command for _, _, command in shown() if command.startswith("make ")]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that takes the place of /tmp, so that a page always starts anew."""
    return tmp_path_factory.mktemp("docs")


def test_the_readme_shows_commands() -> None:
    assert "make demo" in TARGETS
    assert "make test" in TARGETS


@pytest.mark.parametrize("command", TARGETS)
def test_a_target_that_is_shown_is_there(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command.split()[1]}:.*##", makefile, re.MULTILINE)


def test_no_command_hides_from_this_test() -> None:
    """A line of a fenced block that begins with our command is shown as `$ numalab ...`."""
    for page in PAGES:
        blocks = re.findall(
            r"^```.*?\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        for block in blocks:
            assert not re.search(r"^\s*(numalab|make) [a-z]", block, re.MULTILINE), page


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("page", "folder", "command"), COMMANDS)
def test_a_command_that_is_shown_runs(page: str, folder: str, command: str, scratch: Path) -> None:
    code = EXIT.search(command)
    line = f"cd {folder} && {command}".replace("/tmp/", f"{scratch}/")
    script = f'PATH="{ROOT / ".venv" / "bin"}:$PATH"; {line}'
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1100,
    )
    assert done.returncode == (int(code[1]) if code else 0), (
        f"{page}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    )
    assert "Traceback" not in done.stderr
