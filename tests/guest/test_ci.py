"""The commands of the page about CI, run as CI would run them."""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/run-in-ci.md"
EXAMPLES = ROOT / "docs" / "examples"
PATH = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"


@pytest.mark.parametrize("system", ["GitHub", "GitLab"])
def test_the_documented_study_runs(
    system: str, tmp_path: Path, kernel: BuiltKernel, image: BuiltImage
) -> None:
    (command,) = re.findall(r"\$ (numalab run .*)", PAGE.read_text(encoding="utf-8"))
    summary = tmp_path / "summary.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    env = {**os.environ, "PATH": PATH, **(github if system == "GitHub" else {})}
    done = subprocess.run(
        ["bash", "-c", command.replace("/tmp/", f"{tmp_path}/")],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "::error" not in done.stderr
    suites = ET.parse(tmp_path / "artifacts" / "junit.xml").getroot()
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == ("8", "0", "0")
    assert (tmp_path / "artifacts/group-construction/index.html").stat().st_size > 1000
    assert summary.exists() == (system == "GitHub")


def test_the_documented_job_of_numa_tests_runs(
    tmp_path: Path, kernel: BuiltKernel, image: BuiltImage
) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## A NUMA test\n")[2]
    tests = tmp_path / "tests" / "numa"  # of somebody's own repository
    tests.mkdir(parents=True)
    for name in ("test_fill.py", "fill.c"):
        shutil.copy(EXAMPLES / name, tests)
    (script,) = re.findall(r"script: \[(.*)\]", section)
    (report,) = re.findall(r"junit: ([\w./-]+)", section)
    env = {**os.environ, "PATH": PATH, "CI_PROJECT_DIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
        timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    (suite,) = ET.parse(tmp_path / report).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "0", "0")
