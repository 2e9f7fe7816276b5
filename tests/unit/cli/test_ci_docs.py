"""The CI jobs in the documentation are valid by the schemas of GitHub and GitLab."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.places import project_dir
from numalab.study.plan import plan_study

PAGE = project_dir() / "docs/how-to/run-in-ci.md"
JOBS = [
    ("github-workflows", "A pull request on a kernel tree: GitHub Actions"),
    ("gitlab-ci", "A merge request on a kernel tree: GitLab CI"),
    ("gitlab-ci", "A NUMA test"),
]
STUDY = """
question = "?"
topologies = ["ring-4"]
seeds = [1]
[variants.before]
kernel = "debian-6.12-undo-group-construction"
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
"""


def job(title: str) -> str:
    section = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return str(block)


def lint(path: Path, schema: str) -> "subprocess.CompletedProcess[str]":
    words = ["check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("schema", "title"), JOBS)
def test_a_job_is_valid_by_its_schema(tmp_path: Path, schema: str, title: str) -> None:
    path = tmp_path / "job.yml"
    path.write_text(job(title))
    done = lint(path, schema)
    assert done.returncode == 0, done.stdout
    path.write_text(job(title).replace("script", "scribe").replace("runs-on", "run-on"))
    assert lint(path, schema).returncode == 1


def test_the_claims_on_the_page_are_valid(tmp_path: Path) -> None:
    (claims,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "tried.toml"
    path.write_text(STUDY + claims)
    assert len(plan_study(path).study.claims) == claims.count("[[claims]]") > 0
