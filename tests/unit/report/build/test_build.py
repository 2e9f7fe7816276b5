"""A report is made from stored results alone; damaged ones give one message."""

import json
import re
import shutil
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from numalab.errors import UserError
from numalab.places import project_dir
from numalab.report.build.publish import links
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.json import render_document
from numalab.report.formats.markdown import render_markdown
from numalab.report.formats.terminal import render_terminal
from numalab.report.formatting import differences_title
from numalab.report.page.cell_page import MOST_BYTES, render_html
from numalab.results.layout import Results
from numalab.results.manifest import RunStatus

EXAMPLES = sorted(path.parent for path in project_dir().glob("reports/examples/*/changelog.txt"))
EXAMPLE = project_dir() / "reports" / "examples" / "group-construction"


@pytest.fixture
def copied(tmp_path: Path) -> Results:
    shutil.copytree(EXAMPLE, tmp_path / "results")
    return Results(tmp_path / "results")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_what_their_runs_give(path: Path, request: pytest.FixtureRequest) -> None:
    """The committed changelogs, and a document, are those of the committed runs, and pages are made
    of the same."""
    example = Results(path)
    study = gather(example)
    if request.config.getoption("--regenerate"):
        example.changelog.write_text(render_changelog(study), encoding="utf-8")
        if path == EXAMPLE:
            example.document.write_text(render_document(study), encoding="utf-8")
    assert render_changelog(study) == example.changelog.read_text(encoding="utf-8")
    document = render_document(study)
    if path == EXAMPLE:
        assert document == example.document.read_text(encoding="utf-8")
    for report in study.reports:
        page = unescape(render_html(report))
        assert len(page.encode()) < MOST_BYTES
        assert all(claim.text in page for claim in report.claims)
        assert all(timeline.run in page for timeline in report.timelines)
    assert len(set(links(study, example))) == len(study.reports)


def test_variants_of_one_kernel_differ_in_their_tunables() -> None:
    study = gather(Results(EXAMPLE.with_name("less-busy-nodes-half")))
    (report,) = study
    before, tuned = (variant for variant in report.variants if variant.name != "without")
    assert "numa_balancing/scan_delay_ms=100" in before.tunables
    assert tuned.tunables == ("kernel/numa_balancing=0",)
    changelog = " ".join(render_changelog(study).split())
    assert "(1 patch) + kernel/numa_balancing=0 Workload:" in changelog


def test_the_readme_shows_the_example() -> None:
    table = Results(EXAMPLE).changelog.read_text(encoding="utf-8").split("\n\n")
    (whole,) = (part for part in table if part.startswith("Measure (unit)"))
    readme = (project_dir() / "README.md").read_text(encoding="utf-8").split("```\n")
    (shown,) = (part for part in readme if part.startswith("Measure (unit)"))
    first, last = shown.rstrip("\n").split("\n...\n")
    assert whole.startswith(f"{first}\n")
    assert whole.endswith(f"\n{last}")


def test_the_example_shows_the_bug_and_its_absence_in_every_seed() -> None:
    (report,) = gather(Results(EXAMPLE))
    assert all(claim.holds for claim in report.claims)
    values = {
        (run.variant, name): value for run in report.runs for name, value in run.measures.items()
    }
    assert values["before", "task_time_share_node3"] == 0
    assert (values["after", "task_busy_share_min"] or 0) > 80
    assert len(report.runs) == 6


def test_the_old_groups_are_those_of_the_post() -> None:
    """(3,0,1) (1,2,3) on every CPU before; (0,1,2) (2,3,0) on nodes 1 and 3 after."""
    (report,) = gather(Results(EXAMPLE))
    nodes = {cpu: node.id for node in report.topology.nodes for cpu in node.cpus}
    for domains in report.sched_domains:
        assert domains.errors == ()
        for cpu in domains.cpus:
            groups = {
                frozenset(nodes[member] for member in group.span)
                for group in cpu.domains[-1].groups
            }
            even = {frozenset({3, 0, 1}), frozenset({1, 2, 3})}
            odd = {frozenset({0, 1, 2}), frozenset({2, 3, 0})}
            own = odd if domains.variant == "after" and nodes[cpu.cpu] in (1, 3) else even
            assert groups == own, (domains.variant, cpu.cpu)


def test_why_something_cannot_be_seen_is_said_once(copied: Results) -> None:
    texts = ["less user time", "less system time"]
    plan = json.loads(copied.plan.read_text())
    plan["study"] = "of-times"  # no study of the lab, so that these claims are judged
    plan["file"]["claims"] = [
        {"text": text, "from": "before", "to": "after", "measure": measure, "direction": "lower"}
        for text, measure in zip(texts, ("user_time", "system_time"), strict=True)
    ]
    copied.plan.write_text(json.dumps(plan))
    (report,) = gather(copied)
    assert [claim.verdict for claim in report.claims] == ["cannot be seen"] * 2
    assert report.verdict.count("icount counts instructions") == 1
    assert all(text in report.verdict for text in texts)


def test_a_change_of_the_key_measures_since_the_runs_is_said(copied: Results) -> None:
    """They are a family of the correction: fewer of them make smaller p values."""
    plan = json.loads(copied.plan.read_text())
    plan["file"]["key_measures"].append("elapsed_time")
    copied.plan.write_text(json.dumps(plan))
    said = "as in the study's file today, not before the runs: key_measures"
    assert said in gather(copied).reports[0].remarks


def test_what_all_guests_share_is_in_every_form(copied: Results) -> None:
    """Common tunables, kernel parameters and memory; nothing where a study sets nothing."""
    forms = (render_changelog, render_markdown, _terminal, lambda of: render_html(of.reports[0]))
    plain = gather(copied)
    assert not any(re.search(r"(?i)\bsettings\b[:<| ]", form(plain)) for form in forms)
    plan = json.loads(copied.plan.read_text())
    plan["study"] = "of-another-lab"
    plan["file"]["machine"]["cmdline"] = ["nohz=off"]
    plan["file"]["workloads"][0]["guest"] = {"cmdline": ["nosmt"]}
    copied.plan.write_text(json.dumps(plan))
    for path in (copied.path / "runs").glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        of_cpus = {f"/sys/kernel/debug/sched/domains/cpu{n}/domain0/flags": 4 for n in (0, 1, 10)}
        own = {"/proc/sys/kernel/own": 1, **of_cpus} if "_after_" in path.parent.name else {}
        manifest["tunables"] = {"/proc/sys/kernel/numa_balancing": 0, **own}
        path.write_text(json.dumps(manifest | {"pages": "2M"}))
    study = gather(copied)
    line = "kernel/numa_balancing=0; command line nohz=off nosmt; pages 2M"
    assert study.reports[0].settings.line == line
    tunables = study.reports[0].variants[1].tunables
    assert tunables == ("kernel/own=1", "domains/cpu0-1,10/domain0/flags=4")
    for form in forms:
        text = unescape(" ".join(form(study).replace("\\", "").split()))
        assert line in text
    (cell,) = json.loads(render_document(study))["cells"]
    assert cell["settings"]["cmdline"] == ["nohz=off", "nosmt"]


def _terminal(study: StudyResults) -> str:
    console = Console(width=100, file=StringIO())
    console.print(render_terminal(study.reports[0]))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_remarks_of_another_persons_plan_are_escaped(copied: Results) -> None:
    plan = json.loads(copied.plan.read_text())
    plan["remarks"] = [{"kind": "left out", "cell": "\x1b]0;X\x07\u202e", "why": "\x1b[31m"}]
    copied.plan.write_text(json.dumps(plan))
    study = gather(copied)
    text = render_changelog(study)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert r"\x1b]0;X\x07\u202e" in text


def test_a_variant_without_runs_is_said(copied: Results) -> None:
    for path in (copied.path / "runs").glob("*_after_*"):
        shutil.rmtree(path)
    (report,) = gather(copied)
    assert "3 runs gave no result" in report.verdict
    assert [claim.holds for claim in report.claims] == [True, False]


def three_variants(copied: Results) -> None:
    """Add runs of a third variant, `now`, like those of `after`."""
    plan = json.loads(copied.plan.read_text())
    plan["file"]["variants"]["now"] = plan["file"]["variants"]["after"]
    for run in [run for run in plan["runs"] if run["variant"] == "after"]:
        name = run["id"].replace("_after_", "_now_")
        plan["runs"].append(run | {"id": name, "variant": "now"})
        shutil.copytree(copied.path / "runs" / run["id"], copied.path / "runs" / name)
        change(copied, name, "variant", "now")
        change(copied, name, "run", name)
    copied.plan.write_text(json.dumps(plan))


def test_without_its_baseline_a_cell_compares_no_others(copied: Results) -> None:
    three_variants(copied)
    assert differences_title(gather(copied)).startswith("differences: ")
    for path in (copied.path / "runs").glob("*_before_*"):
        shutil.rmtree(path)
    study = gather(copied)
    (report,) = study.reports
    assert [variant.name for variant in report.variants] == ["before", "after", "now"]
    assert {row.outcome_of(i) for row in report.comparisons for i in (1, 2)} == {"not comparable"}
    assert report.verdict.endswith("; before, the baseline, has no finished run.")
    assert differences_title(study).startswith("too few runs to compare")
    text = render_changelog(study)
    assert "Before:   no finished run\n" in text
    assert "Runs:     6 of 9 runs finished; 0 of before; 3 of after (seeds 1, 2, 3); " in text
    assert "before, the baseline, has no finished run" in render_html(report)


def test_a_cell_without_its_baseline_counts_and_has_the_kernel_of_other_cells(
    copied: Results,
) -> None:
    three_variants(copied)
    plan = json.loads(copied.plan.read_text())
    for run in list(plan["runs"]):
        name = run["id"].replace("bound-hogs", "more")
        plan["runs"].append(run | {"id": name, "workload": "more"})
        if run["variant"] == "before":
            shutil.move(copied.path / "runs" / run["id"], copied.path / "runs" / name)
        else:
            shutil.copytree(copied.path / "runs" / run["id"], copied.path / "runs" / name)
        change(copied, name, "workload", {"label": "more"})
        change(copied, name, "run", name)
    copied.plan.write_text(json.dumps(plan))
    study = gather(copied)
    lost, whole = study.reports
    assert lost.variants == whole.variants
    assert differences_title(study).startswith("1 of 2 cells differ: ")
    assert "no finished run\n" not in render_changelog(study)


def test_without_its_baseline_a_cell_of_two_variants_says_so(copied: Results) -> None:
    for path in (copied.path / "runs").glob("*_before_*"):
        shutil.rmtree(path)
    (report,) = gather(copied)
    assert [variant.name for variant in report.variants] == ["after"]
    assert report.verdict.endswith("; before, the baseline, has no finished run.")
    assert f"{report.cell}: before, the baseline, has no finished run" in report.remarks


def damage(path: Path, text: str | None) -> None:
    path.unlink() if text is None else path.write_text(text)


@pytest.mark.parametrize("name", ["manifest.json", "measures.json", "timeline.parquet"])
@pytest.mark.parametrize("text", [None, "", "{", "{}", "[1]", "null", '{"run": 7}'])
def test_damaged_results_are_one_message(copied: Results, name: str, text: str | None) -> None:
    run = sorted((copied.path / "runs").iterdir())[0]
    damage(run / name, text)
    if (name, text) == ("manifest.json", None):
        (report,) = gather(copied)
        assert [run.status for run in report.unfinished] == [RunStatus.FAILED]
        return
    if (name, text) == ("timeline.parquet", None):  # a long recording has none: from the events
        assert len(gather(copied).reports) == 1
        return
    with pytest.raises(UserError, match=str(copied.path)):
        gather(copied)


def test_results_of_another_format(copied: Results) -> None:
    plan = json.loads(copied.plan.read_text())
    copied.plan.write_text(json.dumps({**plan, "format": 99}))
    with pytest.raises(UserError, match="format 99, this one reads 5"):
        gather(copied)


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="these are no results"):
        gather(Results(tmp_path))


@pytest.mark.parametrize(
    ("stored", "path"),
    [("ci/mine.toml", "ci/mine.toml"), ("mine.toml", ""), ("pyproject.toml", "pyproject.toml")],
)
def test_the_file_of_the_study_is_told_if_it_is_in_the_project(
    copied: Results, stored: str, path: str
) -> None:
    """Of a study elsewhere, only the file's name is stored."""
    plan = json.loads(copied.plan.read_text())
    copied.plan.write_text(json.dumps(plan | {"path": stored}))
    assert gather(copied).path == path


def change(copied: Results, runs: str, key: str, value: Any) -> None:
    for path in copied.path.glob(f"runs/{runs}/manifest.json"):
        manifest = json.loads(path.read_text("utf-8"))
        old = manifest.get(key)
        manifest[key] = old | value if isinstance(old, dict) else value
        path.write_text(json.dumps(manifest), "utf-8")


def test_runs_of_different_inputs_are_no_repetitions(copied: Results) -> None:
    change(copied, "*_after_2", "kernel", {"release": "6.1.1"})
    now = r'\{"release": "6\.1\.1"\}, \{"release": "6\.12[^"]*"\}'
    why = rf"after_2 differs from .*after_1 in kernel \({now}\): no repetition"
    with pytest.raises(UserError, match=why):
        gather(copied)


@pytest.mark.parametrize(
    ("what", "values"),
    [("unit", " from '%' to 'apples'"), ("definition", ""), ("direction", "")],
)
def test_a_measure_of_two_meanings_is_left_out_and_no_claim_uses_it(
    copied: Results, what: str, values: str
) -> None:
    name = gather(copied).reports[0].claims[0].measure
    (path,) = copied.path.glob("runs/*_after_2/measures.json")
    measures = json.loads(path.read_text())
    (measure,) = (entry for entry in measures if entry["name"] == name)
    measure[what] = {"unit": "apples", "definition": "Another.", "direction": "higher"}[what]
    path.write_text(json.dumps(measures))
    (report,) = gather(copied).reports
    assert len(report.measures) == len(measures) - 1
    assert name not in {info.name for info in report.measures}
    assert report.claims[0].measured == "nothing (3 runs, 3 without a value)"
    (remark,) = (remark for remark in report.remarks if remark.startswith(name))
    assert remark == f"{name} is left out: its {what} changed{values}"


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("icount_shift", 9, "time of an instruction"),
        ("quantum_ns", 1, ""),  # which the other variant did not store
        ("pages", "2M", "pages"),
        ("mode", "tcg", "mode"),
        ("image", {"digest": "f" * 64}, "image"),
        ("tunables", {"kernel.numa_balancing": 0}, ""),
    ],
)
def test_runs_that_differ_in_more_than_the_variant_are_not_compared(
    copied: Results, key: str, value: Any, name: str
) -> None:
    change(copied, "*_after_*", key, value)
    if not name:
        assert gather(copied).reports
        return
    why = rf"after_1 differs from .*_before_1 in {name} \(.*, .*\): not comparable"
    with pytest.raises(UserError, match=why):
        gather(copied)


def test_runs_of_several_qemus_are_told(copied: Results) -> None:
    change(copied, "*_after_*", "versions", {"qemu": "99.0"})
    assert gather(copied).reports[0].remarks[-1].endswith(" and 99.0")


def test_a_report_says_that_hosts_of_several_kinds_gave_the_time(copied: Results) -> None:
    """In mode icount the host does not matter."""
    files = sorted(copied.path.glob("runs/*/manifest.json"))
    for mode in ("icount", "tcg"):
        for place, file in enumerate(files):
            host = {"kernel": "6.1", "processor": f"P{place % 2}", "cpus": 8, "memory_mib": 1024}
            file.write_text(json.dumps(json.loads(file.read_text()) | {"host": host, "mode": mode}))
        said = "the runs had hosts of several kinds: P0, 8 CPUs, 6.1; P1, 8 CPUs, 6.1"
        (report,) = gather(copied).reports
        assert (said in report.remarks) is (mode == "tcg")
