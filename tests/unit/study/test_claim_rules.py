"""Claims that contradict themselves, and published changes that cannot be read, are refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from numalab.cli.study.plan import change_text, command
from numalab.errors import UserError
from numalab.places import project_dir
from numalab.results.plan import ClaimsLeftOutRemark
from numalab.statistics.scale import change_of
from numalab.study.claim_rules import info_of
from numalab.study.plan import plan_study
from numalab.study.published import PublishedChange
from numalab.workload.workload_table import MetricTable
from support.one_command import invoke

STUDIES = sorted(project_dir().glob("studies/**/*.toml"))
HEAD = """question = "q?"
topologies = ["ring-4"]
seeds = [1, 2]
[variants]
old = { kernel = "debian-6.12" }
new = { kernel = "debian-6.12-undo-group-construction" }
[[workloads]]
name = "bound-hogs"
[[claims]]
text = "t"
measure = "elapsed_time"
"""
COMPARED = 'from = "old"\nto = "new"\n'


def plan(folder: Path, claim: str, measure: str = "elapsed_time") -> None:
    file = folder / "s.toml"
    file.write_text(HEAD.replace("elapsed_time", measure) + claim, encoding="utf-8")
    plan_study(file)


@pytest.mark.parametrize(
    ("published", "unit"),
    [
        ("4680192 1/s to 4700000 1/s", "1/s"),
        ("4.68e6 to 4.70e6", "1/s"),
        ("4680192 -> 4700000", "1/s"),
        ("5 s → 4 s (-20%)", "s"),
        ("10 to 8 s (20.00%)", "s"),
        ("50 % to 60 % (+10%)", "%"),
        ("performance drop to 1/2 (-50%)", "s"),
        ("with more threads, 10 to 8 s", "s"),
        ("less time (10 to 8 s)", "s"),
    ],
)
def test_a_change_that_is_read(published: str, unit: str) -> None:
    change = PublishedChange(published)
    assert change.shifts("ratio") is not None
    assert not list(change.problems(unit))


@pytest.mark.parametrize(
    ("published", "change"),
    [
        ("29876 +- 1823 to 30742 +- 1206", 100 * (30742 / 29876 - 1)),
        ("8 ± 2 us to 10 ± 1 us", 25),
        ("8us ±2us to 10us ±1us (+25% ± 3%)", 25),
        ("-50% (+-5%)", -50),
        ("+20.88% (+- 2.50 %)", 20.88),
        ("+5% ± 2%", 5),
    ],
)
def test_deviations_are_no_changes(published: str, change: float) -> None:
    read = PublishedChange(published)
    shifts = read.shifts("ratio")
    assert shifts is not None
    assert [change_of(shift, "ratio") for shift in shifts] == pytest.approx([change, change])
    assert not list(read.problems("us" if "us" in published else "1/s"))


@pytest.mark.parametrize(
    "published",
    [
        "node pairs 2-hops apart on an 8 nodes machine",
        "from 0 to half of the time",
        "better on ext4",
    ],
)
def test_words_may_have_a_number_of_things(published: str) -> None:
    change = PublishedChange(published)
    assert change.shifts("ratio") is None
    assert not list(change.problems("s"))


@pytest.mark.parametrize(
    ("published", "reason"),
    [
        ("4680k to 4700k", "'k' in '4680k to 4700k' is not the unit of the measure, s"),
        ("100 to 90 ms", "'ms' in '100 to 90 ms' is not the unit"),
        ("1% to 2%", "'%' in '1% to 2%' is not the unit"),
        ("from 6.11 to 6.12: +1%", "1% is not the change of '6.11 to 6.12'"),
        ("by 1 %", "has a number that is not read"),
        ("x1.01", "has a number"),
        ("+1.0-2.0%", "has a number"),
        ("+1% to 2%", "has a number"),
        ("-5 to -10 %", "has a number"),
        ("3 times faster", "has a number"),
        ("10 us less", "has a number"),
        ("−5%", "has a number"),
        ("5 ±2%", "has a number"),
        ("at least -5%", "has a number"),
        ("up to -40%", "has a number"),
        ("1:40 to 1:34", "has a number"),
        ("0,9 to 1,15", "has a number"),
        ("with 4 to 8 threads it is faster", "has a number"),
        ("5.6 to 5.7 is faster", "has a number"),
        ("10 to 8 moves", "'moves' in '10 to 8 moves' is not the unit"),
        ("10 to 8 moves a second", "has a number"),
    ],
)
def test_a_number_that_is_no_change_is_refused(tmp_path: Path, published: str, reason: str) -> None:
    claim = f'{COMPARED}direction = "same"\nmechanism = "task_migrations"\n'
    with pytest.raises(UserError) as caught:
        plan(tmp_path, f'{claim}published = "{published}"')
    assert "s.toml: claims[0].published: " in str(caught.value)
    assert reason in str(caught.value) and "`63 to 43 us`" in str(caught.value)


@pytest.mark.parametrize(
    ("claim", "key"),
    [
        (f'{COMPARED}direction = "lower"\npublished = "5 to 10"', "direction"),
        (f'{COMPARED}direction = "lower"\npublished = "+20%"', "direction"),
        (f'{COMPARED}direction = "higher"\npublished = "9 to 5"', "direction"),
        (f'{COMPARED}direction = "higher"\npublished = "-5% to +7%"', "direction"),
        (f'{COMPARED}direction = "higher"\nat_most = -5', "direction"),
        (f'{COMPARED}direction = "lower"\nabove = 0', "direction"),
        (
            f'{COMPARED}direction = "same"\nmechanism = "task_migrations"\npublished = "+300%"',
            "direction",
        ),
        ('variant = "new"\nabove = 10\nbelow = 5', "below"),
        ('variant = "new"\nat_least = 10\nat_most = 5', "at_most"),
        ('variant = "new"\nabove = 5\nat_most = 5', "at_most"),
    ],
)
def test_a_contradiction_is_refused(tmp_path: Path, claim: str, key: str) -> None:
    with pytest.raises(UserError, match=rf"s\.toml: claims\[0\]\.{key}: "):
        plan(tmp_path, claim)


def test_a_percentage_is_no_change_in_the_unit_of_the_measure(tmp_path: Path) -> None:
    """On the scale linear -30% was a shift of -30 s; of a measure in % it is one in points."""
    claim = f'{COMPARED}direction = "lower"\nscale = "linear"\npublished = "-30%"'
    with pytest.raises(UserError, match=r"claims\[0\]\.published: on the scale linear .* in s,"):
        plan(tmp_path, claim)
    plan(tmp_path, claim, "task_busy_share_min")


@pytest.mark.parametrize(
    "claim",
    [
        f'{COMPARED}direction = "lower"\npublished = "48 to 47 s"\nat_most = -1',
        f'{COMPARED}direction = "higher"\npublished = "+0% to +2%"\nabove = 0\nbelow = 5',
        f'{COMPARED}direction = "same"\nmechanism = "task_migrations"\npublished = "100 to 103 s"',
        f'{COMPARED}direction = "lower"\nscale = "linear"\npublished = "9 to 6 s (-33%)"',
        'variant = "new"\nat_least = 5\nat_most = 5',
    ],
)
def test_what_is_no_contradiction(tmp_path: Path, claim: str) -> None:
    plan(tmp_path, claim)


@pytest.mark.parametrize(
    ("value", "text"), [(99.4, "+99%"), (99.95, "+100%"), (-1000.0, "-1,000%"), (0.123, "+0.12%")]
)
def test_a_change_is_printed_with_two_digits_or_whole(value: float, text: str) -> None:
    assert change_text(value, "%") == text


@pytest.mark.parametrize(
    ("measure", "hint"), [("throughput_7", "throughput"), ("hog_cpu_time", "hog_cpu_time_LABEL")]
)
def test_a_number_has_a_label_if_its_pattern_has_one(
    tmp_path: Path, measure: str, hint: str
) -> None:
    """Of another name no run ever had a value."""
    bounds = 'variant = "new"\nabove = 0'
    for good in ("throughput", "hog_cpu_time_7"):
        plan(tmp_path, bounds, good)
    with pytest.raises(UserError) as caught:
        plan(tmp_path, bounds, measure)
    message = f"s.toml: claims[0].measure: no measure is called {measure!r}; did you mean {hint}?"
    assert message in str(caught.value)


def test_a_measure_has_the_unit_of_its_metric_or_its_definition() -> None:
    plan = plan_study(project_dir() / "studies/group-construction-work.toml")
    for bound in plan.workloads.values():
        units = [info_of(name, bound).unit for name in ("throughput", "elapsed_time")]
        assert units == ["1/s", "s"]


def test_a_measure_is_of_the_metric_with_the_longest_name() -> None:
    """`latency` prints a number for each label, so that its measures are `latency_LABEL`."""
    plan = plan_study(project_dir() / "studies/group-construction-work.toml")
    bound = next(iter(plan.workloads.values()))
    keys = {"direction": "none", "kind": "timing"}
    pattern = r"(?P<label>\w+) (?P<value>\d+)"
    metrics = tuple(
        MetricTable.model_validate({"name": name, "unit": unit, "pattern": pattern, **keys})
        for name, unit in (("latency", "us"), ("latency_samples", "n"), ("late", "s"))
    )
    workload = replace(bound, metrics=metrics)
    units = [info_of(f"latency_{label}", workload).unit for label in ("p", "samples_p")]
    assert units == ["us", "n"]


def test_identifiers_are_not_compared(tmp_path: Path) -> None:
    """The CPUs of hogs took a place among the comparisons that share a level."""
    plan(tmp_path, 'variant = "new"\nbelow = 8', "hog_last_cpu_0")
    for change in ('direction = "lower"', "at_most = -5"):
        with pytest.raises(UserError) as caught:
            plan(tmp_path, f"{COMPARED}{change}", "hog_last_cpu_0")
        assert caught.value.key == "claims[0].measure"
        assert "hog_last_cpu_0 is an identifier, and names are never compared" in str(caught.value)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_claims_of_our_studies_are_read(path: Path) -> None:
    plan_study(path)


CLAIM = f'{COMPARED}direction = "lower"\nexpect = ["reproduced"]\n'
ONE_SIDE = '[presets.quick]\nvariants = ["old"]\n'


def test_a_claim_without_runs_is_an_error(tmp_path: Path) -> None:
    """What it expects could not fail."""
    file = tmp_path / "s.toml"
    lines = (HEAD + CLAIM).splitlines()
    file.write_text("\n".join([lines[0], 'exclude = [{ variants = ["new"] }]', *lines[1:]]))
    with pytest.raises(UserError) as caught:
        plan_study(file)
    why = "no cell has runs of old and new, so nothing judges this claim: t"
    assert str(caught.value) == f"{file}: claims[0]: {why}"
    file.write_text(f'{HEAD}{CLAIM}topology = "mesh-4"\n')  # which this study has not
    with pytest.raises(UserError, match=why):
        plan_study(file)


@pytest.mark.parametrize(
    "preset",
    [
        ONE_SIDE,
        '[presets.quick]\nexclude = [{ variants = ["new"] }]\n',
        '[presets.quick]\ninclude = [{ variants = ["old"] }]\n',
    ],
)
def test_a_preset_says_which_claims_it_leaves_out(tmp_path: Path, preset: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(f"{HEAD}{CLAIM}{preset}")
    assert plan_study(file).remarks == ()
    (remark,) = plan_study(file, "quick").remarks
    assert str(remark) == "a claim is not judged, as it has no runs: t"
    done = invoke(command, file, "--preset", "quick")
    assert str(remark) in done.stdout
    assert str(remark) in invoke(command, file, "--preset", "quick", "--json").stdout


def test_a_claim_may_be_about_the_machine_of_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    other = '[presets.other]\ntopologies = ["mesh-4"]\n'
    file.write_text(f'{HEAD}{CLAIM}topology = "mesh-4"\n{other}')
    assert len(plan_study(file).remarks) == 1
    assert plan_study(file, "other").remarks == ()


def test_a_primary_claim_counts_in_each_of_its_cells(tmp_path: Path) -> None:
    """A family of 8 needs more seeds than one of 6."""
    file = tmp_path / "s.toml"
    machines = 'topologies = ["ring-4", "mesh-4", "mesh-8", "ring-8"]'
    uses = "".join(
        f'[[workloads]]\nname = "bound-hogs"\nlabel = "{label}"\n' for label in ("a", "b")
    )
    text = HEAD.replace('topologies = ["ring-4"]', machines)
    text = text.replace('[[workloads]]\nname = "bound-hogs"\n', uses) + CLAIM + "primary = true\n"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        plan_study(file)
    assert str(caught.value) == (
        f"{file}: claims: 8 primary claims, counted in each cell, and at most 6 are possible;"
        " give a primary claim its topology and its workload"
    )
    file.write_text(f'{text}workload = "a"\n')
    assert plan_study(file).remarks == ()


def test_many_claims_that_a_preset_leaves_out_are_counted() -> None:
    texts = tuple(f"claim {number}" for number in range(5))
    said = "5 claims are not judged, as they have no runs: claim 0; claim 1; claim 2; and 2 more"
    assert str(ClaimsLeftOutRemark(claims=texts)) == said
