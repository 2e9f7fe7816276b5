"""`make setup` runs pip: no code is installed or run that a lock file has no hash of."""

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MARKER = "import pathlib; pathlib.Path({marker!r}).touch()\n"


@dataclass(frozen=True)
class Setup:
    """A folder with a virtual environment in which the pip commands of `make setup` run."""

    folder: Path
    packages: Path  # the only registry
    marker: Path  # written by code that must not run

    def run(self, lock: str, *, only: str) -> "subprocess.CompletedProcess[str]":
        """Run the pip command that names `only`, with `lock` in place of every lock file."""
        for name in ("requirements-build.lock", "requirements-dev.lock"):
            (self.folder / name).write_text(lock)
        (command,) = (line for line in pip_commands() if only in line)
        env = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
        env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.packages)}
        return subprocess.run(
            command.lstrip("@"), shell=True, cwd=self.folder, env=env, capture_output=True,
            text=True, check=False, timeout=300,
        )  # fmt: skip


def pip_commands() -> list[str]:
    """The pip commands of `make setup` for a virtual environment that is not ready."""
    shown = subprocess.run(
        ["make", "--dry-run", "--always-make", "setup"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "MAKEFLAGS": ""},
    )  # fmt: skip
    return [line for line in shown.stdout.splitlines() if " -m pip " in line]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """A registry whose newest hatchling and setuptools write a marker as soon as they run."""
    made = Setup(tmp_path / "project", tmp_path / "packages", tmp_path / "marker")
    made.packages.mkdir()
    code = MARKER.format(marker=str(made.marker))
    write_wheel(made.packages, "hatchling", {"hatchling/build.py": code})
    write_wheel(made.packages, "setuptools", {"setuptools/build_meta.py": code})
    (made.folder / "lab/numalab").mkdir(parents=True)
    (made.folder / "lab/numalab/__init__.py").touch()
    for name in ("pyproject.toml", "README.md", "numalab.cdx.json"):
        (made.folder / name).write_text((ROOT / name).read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]:
        (made.folder / name).mkdir()
    venv.create(made.folder / ".venv", with_pip=False)
    (site,) = (made.folder / ".venv").glob("lib/python*/site-packages")
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "libraries.pth").write_text(f"{libraries}\n")
    return made


def write_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    info = f"{name}-9999.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 9999\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    wheel = folder / f"{name}-9999-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def write_sdist(folder: Path, name: str, code: str) -> Path:
    """A source distribution that setuptools builds, running `code` first."""
    stem = f"{name.replace('-', '_')}-9999"
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n'
        'build-backend = "setuptools.build_meta"\n',
        "setup.py": f"{code}from setuptools import setup\nsetup(name={name!r}, version='9999')\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 9999\n",
    }
    sdist = folder / f"{stem}.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{stem}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return sdist


def locked(name: str, file: Path) -> str:
    return f"{name}==9999 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def test_numalab_is_built_by_the_pinned_packages(setup: Setup) -> None:
    done = setup.run("", only="--editable")
    assert not setup.marker.exists()
    assert done.returncode == 0, done.stderr


def test_libvirt_python_is_built_by_the_pinned_packages(setup: Setup) -> None:
    sdist = write_sdist(setup.packages, "libvirt-python", "")
    done = setup.run(locked("libvirt-python", sdist), only="requirements-dev.lock")
    assert not setup.marker.exists()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lock", ["requirements-build.lock", "requirements-dev.lock"])
def test_another_source_distribution_is_refused(setup: Setup, lock: str) -> None:
    code = MARKER.format(marker=str(setup.marker))
    sdist = write_sdist(setup.packages, "surprise", code)
    done = setup.run(locked("surprise", sdist), only=lock)
    assert not setup.marker.exists()
    assert done.returncode != 0


@pytest.mark.parametrize("lock", ["requirements-build.lock", "requirements-dev.lock"])
def test_a_package_with_another_hash_is_refused(setup: Setup, lock: str) -> None:
    wheel = write_wheel(setup.packages, "surprise", {"surprise.py": "pass\n"})
    right = locked("surprise", wheel)
    digest = right.strip()[-1]
    done = setup.run(f"{right.strip()[:-1]}{'0' if digest != '0' else '1'}\n", only=lock)
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert done.returncode != 0
    assert setup.run(right, only=lock).returncode == 0


def test_a_package_without_a_hash_is_refused(setup: Setup) -> None:
    write_wheel(setup.packages, "surprise", {"surprise.py": "pass\n"})
    done = setup.run("surprise==9999\n", only="requirements-dev.lock")
    assert "Hashes are required" in done.stderr


def test_every_pip_command_is_tested_here() -> None:
    assert len(pip_commands()) == 3
    for command in pip_commands():
        assert re.search(r"requirements-(build|dev)\.lock|--editable", command), command
