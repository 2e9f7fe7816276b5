"""The commands of the CI jobs in the documentation, run as CI would run them."""

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


@pytest.mark.parametrize("title", ["GitHub Actions", "GitLab CI"])
def test_a_documented_job_runs(
    title: str, tmp_path: Path, kernel: BuiltKernel, image: BuiltImage
) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")  # in place of the checkout
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    commands = re.findall(r"- (?:run: )?(\.venv/bin/numalab .*)", section)
    assert [command.split()[1] for command in commands] == ["run"]
    summary = tmp_path / "summary.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    env = {**os.environ, **(github if "GitHub" in title else {})}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", f"{command} --output {tmp_path}/results"],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=550,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "::error" not in done.stderr
    suites = ET.parse(tmp_path / "numalab-ci" / "junit.xml").getroot()
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == ("8", "0", "0")
    assert (tmp_path / "numalab-ci" / "group-construction" / "index.html").stat().st_size > 1000
    assert summary.exists() == ("GitHub" in title)


def test_the_documented_job_of_numa_tests_runs(
    tmp_path: Path, kernel: BuiltKernel, image: BuiltImage
) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## A NUMA test in CI\n")[2]
    tests = tmp_path / "tests" / "numa"  # of somebody's own repository
    tests.mkdir(parents=True)
    for name in ("test_fill.py", "fill.c"):
        shutil.copy(EXAMPLES / name, tests)
    (script,) = re.findall(r"script: \[(.*)\]", section)
    (report,) = re.findall(r"junit: ([\w./-]+)", section)
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "CI_PROJECT_DIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
        timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    (suite,) = ET.parse(tmp_path / report).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "0", "0")
