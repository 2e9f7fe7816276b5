"""The recipe of a container: it repeats nothing of the Makefile, and its steps work.

The steps run in a root of their own with the programs of this host, as a user who is root in there
only. Nothing is installed: `apt-get` simulates, and `make setup` finds its work done.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "docs/examples/Containerfile"
UNABLE = 77  # exit code where this host lets nobody make such a root
NEW_ROOT = r"""
exec 3>&1 >&2
new={new} checkout={checkout}
{{ mount -t tmpfs -o mode=755 none $new && mkdir $new/usr && mount --rbind /usr $new/usr; }} ||
  exit {unable}
set -e
cd $new
mkdir dev etc proc tmp var context
for name in bin lib lib64 sbin; do test ! -e /$name || cp -dR /$name .; done
for name in dev etc proc var; do mount --rbind /$name $name; done
mount --bind {context} context
mkdir -p .$checkout
mount --rbind $checkout .$checkout
cp usr/bin/apt-get tmp
printf '#!/bin/sh\ntest "$1" = update || exec /tmp/apt-get --simulate "$@"\n' >tmp/simulated
chmod 755 tmp/simulated
mount --bind tmp/simulated usr/bin/apt-get
exec chroot . sh -ec "$STEPS" >&3
"""


def steps(recipe: str) -> list[tuple[str, str]]:
    """Return instruction and text of each line of a recipe."""
    lines = [line for line in recipe.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(" ", 1)[1]) for line in lines]


def shell_lines(recipe: str) -> Iterator[str]:
    """Yield the recipe as lines of a shell script, and the use of what it makes."""
    for kind, text in steps(recipe):
        match kind:
            case "FROM":
                assert text == "debian:12"
            case "RUN":
                yield f"sh -c {shlex.quote(text)}"
            case "WORKDIR":
                yield f"mkdir -p {text}; cd {text}"
            case "COPY":
                source, target = text.split()
                yield f"mkdir -p {target}; cp -a /context/{source}/. {target}"
                yield f"ln -sT {ROOT}/.venv {target}/.venv"
            case "ENV":
                yield from (f'export "{variable}"' for variable in text.split())
            case _:
                raise AssertionError(f"the recipe has {kind}")
    yield "test -n $NUMALAB_CACHE"
    yield "numalab topology list"


def make_context(folder: Path) -> None:
    """Make the folder that COPY reads: the checkout without what .dockerignore names."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    folder.mkdir()
    for path in ROOT.iterdir():
        if any(fnmatch(path.name, pattern) for pattern in ignored):
            continue
        if path.is_dir():
            (folder / path.name).symlink_to(path)
        else:
            shutil.copy(path, folder)
            os.utime(folder / path.name, (0, 0))  # the virtual environment is newer


def build(tmp_path: Path, recipe: str) -> "subprocess.CompletedProcess[str]":
    """Run the steps of a recipe; skips where this host has no root for them."""
    new, context = tmp_path / "root", tmp_path / "context"
    new.mkdir()
    make_context(context)
    script = NEW_ROOT.format(new=new, context=context, checkout=ROOT, unable=UNABLE)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "STEPS": "\n".join(shell_lines(recipe))}
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == UNABLE or "unshare failed" in done.stderr:
        pytest.skip(f"hardware: this host lets nobody make a root of their own: {done.stderr}")
    return done


def packages() -> set[str]:
    """Return the packages that `make setup` installs."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", "")
    (words,) = re.findall(r"^PACKAGES := (.*)$", text, re.MULTILINE)
    return set(words.split())


def test_the_recipe_names_only_the_program_that_runs_the_makefile() -> None:
    """`make setup` installs the rest, so that only the Makefile has a list of packages."""
    words = " ".join(text for kind, text in steps(RECIPE.read_text()) if kind == "RUN")
    assert len(packages()) > 20
    assert set(re.findall(r"[\w.+-]+", words)) & packages() == {"make"}


def test_the_page_builds_the_recipe_without_privileges() -> None:
    page = " ".join((ROOT / "docs/how-to/run-in-ci.md").read_text().split())
    assert f"--file {RECIPE.relative_to(ROOT)} ." in page
    assert not re.search(r"--(privileged|device|cap-add|security-opt)", page)


def test_the_steps_of_the_recipe_work(tmp_path: Path) -> None:
    done = build(tmp_path, RECIPE.read_text())
    assert done.returncode == 0, done.stderr
    assert "ring-4" in done.stdout


@pytest.mark.parametrize(
    ("text", "wrong", "message"),
    [
        ("--yes", "--sure", "option --sure"),
        ("recommends make\n", "recommends numalab-make\n", "numalab-make"),
        ("make setup", "make set-up", "set-up"),
        ("COPY . .", "COPY . elsewhere", "setup"),
        ("WORKDIR /numalab", "WORKDIR /lab", "not found"),
        ("PATH=/numalab/", "PATH=/lab/", "not found"),
    ],
)
def test_a_recipe_with_a_wrong_step_fails(
    tmp_path: Path, text: str, wrong: str, message: str
) -> None:
    recipe = RECIPE.read_text()
    assert recipe.count(text) == 1
    done = build(tmp_path, recipe.replace(text, wrong))
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
