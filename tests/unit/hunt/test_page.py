"""The page of a hunt: the outcome first, and every text of a guest escaped."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.cli.hunt.hunt_output import hunt_text
from numalab.hunt.calls.findings import quantity_of
from numalab.hunt.compare.outcomes import suspicion
from numalab.hunt.finding import Finding
from numalab.hunt.loads.load_text import render_load
from numalab.hunt.outcome import ConfirmedViolation, Hunt
from numalab.hunt.result.page import NOTHING_JUDGED, outcome, write_result
from numalab.reach.reach_map import SCHEDULER
from support.hunt_sample import FACTS, sample_case, sample_direction, sample_page
from support.report_sample import HOSTILE


def test_the_page_has_the_outcome_the_finding_and_the_suspicions() -> None:
    page = sample_page("ran elsewhere")
    assert "1 violation found (affinity); 4 machines, 40 loads." in page
    assert 'src="data:image/svg+xml;base64,' in page
    assert '<a href="affinity-a.toml">' in page
    assert "<td>confirmed: mean 4.5 in 1 sample; reference kernel: mean 0 in 1 sample</td>" in page
    assert "not confirmed: mean 7 in 1 sample; reference kernel: mean 7 in 1 sample" in page
    assert "Changed lines that never ran" in page
    assert "never to elsewhere" in page
    closest = '<td class="num">930 ms</td><td class="num">1000</td><td class="num">800</td>'
    assert closest in page
    (load,) = re.findall('<pre class="scroll" tabindex="0">\n(.*?)</pre>', page, re.DOTALL)
    text = render_load(sample_case().loads[0])
    assert load == text.replace(";", ";\n") + "\n" and ";" in text


def test_the_suspicion_that_was_tried_longest_comes_first(tmp_path: Path) -> None:
    short, long = (Finding(name, 0, 7.0, 6.0, "moved") for name in ("ping-pong", "wandering"))
    hunt = Hunt(machines=1, loads=1)
    hunt.suspicions += [
        suspicion(short, [short], [short], confirmed=False),
        suspicion(long, [long] * 9, [long] * 9, confirmed=False),
    ]
    write_result(tmp_path, FACTS, hunt, [], None)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.index("wandering") < page.index("ping-pong")


def test_a_finding_of_a_comparison_shows_what_was_counted(tmp_path: Path) -> None:
    """Not the number that is compared, which is an inverse."""
    fewer = quantity_of("pick:return-cpu").finding(0, 4, "less")
    case = sample_case()
    hunt = Hunt(machines=1, loads=1)
    limited = replace(fewer, most=238.1, differential=False)
    hunt.violations.append(ConfirmedViolation(case, case, limited, (2,), 1.0, 1.0, 1, 2, 3))
    write_result(tmp_path, FACTS, hunt, [tmp_path / "a.toml"], None)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "less-runs-of-pick:return-cpu: runs of a line of pick(): 4" in page
    assert '<th scope="row">value</th><td>4</td>' in page
    assert '<th scope="row">limit</th><td>none: compared with the reference kernel</td>' in page


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text: str) -> None:
    body = sample_page(text).partition("</style>")[2]
    assert "<script" not in body
    assert "<img src=x" not in body
    assert 'onmouseover="' not in body


def test_a_hunt_without_a_machine_judged_nothing() -> None:
    assert outcome(Hunt(), None) == NOTHING_JUDGED
    assert hunt_text(Hunt(), [], 1, None).splitlines() == [
        "0 machines, 0 loads, 1 boot, 0 suspicions, 0 of them confirmed", NOTHING_JUDGED
    ]  # fmt: skip


def test_a_hunt_without_series_has_no_coverage(tmp_path: Path) -> None:
    page = write_result(tmp_path, FACTS, Hunt(machines=2, loads=3), [], None)
    assert page.name == "index.html"
    assert "Nothing found: 2 machines, 3 loads." in page.read_text(encoding="utf-8")
    assert not (tmp_path / "coverage.json").exists()


def test_a_series_that_did_not_run_is_not_reached(tmp_path: Path) -> None:
    guide = sample_direction(sample_case(), count=0)
    hunt = Hunt(machines=1, loads=3)
    unreached = "Not reached: no changed line ran on 1 machine, 3 loads."
    assert outcome(hunt, guide.coverage) == unreached
    assert outcome(hunt, None, is_survey=True).startswith("Survey of 1 machine, 3 loads:")
    write_result(tmp_path, FACTS, hunt, [], guide)
    assert '"not reached"' in (tmp_path / "coverage.json").read_text(encoding="utf-8")


def test_a_hunt_without_series_lists_branches_but_no_source(tmp_path: Path) -> None:
    guide = sample_direction(sample_case(), series=SCHEDULER)
    write_result(tmp_path, FACTS, Hunt(machines=1, loads=3), [], guide)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Frequent branches that always went the same way" in page
    assert "Branch outcomes by file" in page
    assert 'class="patch"' not in page
