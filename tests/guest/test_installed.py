"""A wheel in an environment of its own, run from an empty folder."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `numalab` of a wheel; what it depends on is taken from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *offline, "-w", folder, ROOT], check=True, timeout=300)
    (wheel,) = folder.glob("numalab-*.whl")
    environment = folder / "env"
    venv.create(environment, with_pip=False)
    python = environment / "bin/python"
    (site,) = environment.glob("lib/python*/site-packages")
    subprocess.run(
        [*pip, f"--python={python}", "install", "--no-deps", wheel], check=True, timeout=300
    )
    # The libraries as they are here: what is tried is the wheel, not the registry.
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    return environment / "bin/numalab"


def say(numalab: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMALAB")}
    return subprocess.run(
        [numalab, *words],
        cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=550,
    )  # fmt: skip


def test_what_the_wheel_brings_is_there(installed: Path, tmp_path: Path) -> None:
    where = say(installed, tmp_path, "topology", "list", "--json")
    assert where.returncode == 0, where.stderr
    assert '"mesh-8"' in where.stdout
    planned = say(installed, tmp_path, "plan", "group-construction", "--json")
    assert planned.returncode == 0, planned.stderr
    assert "ring-4_bound-hogs_before_1" in planned.stdout


def test_the_wheel_holds_its_bill_of_materials(installed: Path) -> None:
    (sbom,) = installed.parents[1].glob("lib/python*/site-packages/*.dist-info/sboms/*")
    assert sbom.read_bytes() == (ROOT / sbom.name).read_bytes()


@pytest.mark.guest
def test_a_study_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    done = say(
        installed, tmp_path, "run", "group-construction", "--mode", "icount", "--preset", "quick"
    )
    assert done.returncode == 0, done.stderr
    (results,) = (tmp_path / "reports/group-construction").iterdir()
    assert (results / "index.html").exists()
    assert "hogs keep every allowed CPU busy" in done.stdout
