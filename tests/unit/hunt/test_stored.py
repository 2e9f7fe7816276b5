"""The tables of docs/results/ about hunts are what the hunts printed."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from numalab.hunt.case_file import read_case
from numalab.topology.predict.prediction import predict

ROOT = Path(__file__).parents[3]
STORED = ROOT / "hunts/stored"
TEXT = "\n".join(
    (ROOT / f"docs/results/{page}.md").read_text(encoding="utf-8")
    for page in ("hunts", "hunt-measurements")
)
SAID = " ".join(TEXT.split())
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith(("| `mutation-", "| `undo-fix-"))
]
PRINTED = [row for row in ROWS if (STORED / f"hunted-{row[0].strip('`')}.txt").exists()]


@pytest.mark.parametrize("row", PRINTED, ids=lambda row: row[0])
def test_each_row_is_what_a_hunt_printed(row: list[str]) -> None:
    kernel, _, met, smallest, boots, cpu = row
    printed = (STORED / f"hunted-{kernel.strip('`')}.txt").read_text(encoding="utf-8")
    assert f"CPU time of the whole hunt {cpu}," in printed
    confirmed = re.search(r"confirmed after (\S+) min", printed)
    assert (f"{float(confirmed[1]):.1f} min" if confirmed else "") == met
    assert not boots or f" {boots} boots\n" in printed
    if file := re.search(r"hunts/(?:stored/)?[a-z-]+\.toml", smallest):
        case, table, _ = read_case(ROOT / file[0])
        tasks = sum(load.tasks for load in case.loads)
        size = f"{len(case.machine.nodes)} nodes, {case.machine.cpu_count} CPUs, {tasks} task"
        assert smallest.startswith(size)
        assert size in printed
        assert f"debian-6.12-{kernel.strip('`')}" in table.violated_by


def test_looks_at_the_unmodified_kernel_are_those_that_are_stored() -> None:
    stored = json.loads((STORED / "debian-6.12-as-rival.json").read_text(encoding="utf-8"))
    assert (
        f"booted {stored['boots']} times beside these hunts, with {stored['loads']} loads on"
        f" {stored['machines']} machines"
    ) in SAID
    for name, counts in stored["properties"].items():
        bad = counts["violated"] + counts["violated_weak"]
        if bad:
            assert re.search(rf"`{name}`,? {bad} of {counts['looks']}\b", SAID), name


def test_what_the_campaign_went_over_is_what_is_stored() -> None:
    stored = json.loads((STORED / "campaign-debian-6.12.json").read_text(encoding="utf-8"))
    assert (
        f"{stored['machines']} cases on {stored['different_machines']} different machines,"
        f" {stored['loads']} loads"
    ) in SAID
    assert f"Another {len(stored['unconfirmed'])} violated their limit in fewer than six" in SAID
    for row in stored["unconfirmed"]:
        assert f"of `{row['prop']}`" in SAID
    assert [row["property"] for row in stored["found"]] == [
        "work-conservation",
        "ping-pong",
        "fairness",
    ]
    for row in stored["found"]:
        case, table, _ = read_case(ROOT / row["file"])
        assert table.sentence == row["sentence"]
        assert (len(case.machine.nodes), case.machine.cpu_count) == (row["nodes"], row["cpus"])
        assert row["file"] in SAID


@pytest.mark.parametrize(
    ("file", "cpu", "spans"),
    [
        ("idle-far-cpu", 5, [(0, 2, 3, 4, 5, 6), (0, 1, 2, 3, 4, 6)]),
        ("idle-far-cpu-7.3", 5, [(0, 2, 3, 4, 5, 6), (0, 1, 2, 3, 4, 6)]),
        ("idle-far-cpu-ring", 2, [(1, 2, 3), (0, 1, 3)]),
        ("pulled-both-ways-line", 3, [tuple(range(9)), tuple(range(6, 12))]),
        ("pulled-both-ways-line", 6, [tuple(range(3, 12)), tuple(range(6))]),
        ("pulled-both-ways", 0, [tuple(range(9)), tuple(range(6, 12))]),
        ("kept-on-one-cpu", 2, [(0, 1, 2, 3), (0, 1, 4)]),
        ("kept-on-one-cpu-6.1", 5, [(0, 1, 2, 4, 5), (0, 1, 2, 3)]),
        ("idle-in-a-shared-group", 4, [(0, 4, 5), (0, 1), (0, 2, 3)]),
    ],
)
def test_the_groups_that_explain_a_finding(
    file: str, cpu: int, spans: list[tuple[int, ...]]
) -> None:
    case, _, _ = read_case(STORED / f"{file}.toml")
    groups = predict(case.machine).cpus[cpu].domains[-1].groups
    assert [group.span for group in groups] == spans


def test_what_findings_do_on_7_3_is_what_is_stored() -> None:
    """Changes of node of each of three looks: none but where two nodes pull, in one of them."""
    text = (STORED / "on-7.3.txt").read_text(encoding="utf-8")
    changes = {
        name: re.findall(rf"^hunted_hunt_{kernel}_\d+,([\d.]+),", part, re.MULTILINE)
        for part in text.split("## ")[1:]
        for kernel in ("k612", "k73")
        for name in [(part.split()[0], kernel)]
    }
    assert changes.pop(("pulled-both-ways", "k73")) == ["0.0", "0.0", "22.0"]
    assert changes.pop(("pulled-both-ways", "k612")) == ["25.0", "24.0", "24.0"]
    assert len(changes) == 6
    assert all(row == ["0.0"] * 3 for row in changes.values())


def test_what_was_confirmed_on_5_10_is_what_is_stored() -> None:
    stored = json.loads((STORED / "campaign-debian-5.10.json").read_text(encoding="utf-8"))
    assert [row["property"] for row in stored["found"]] == ["affinity"]
    assert [row["prop"] for row in stored["unconfirmed"]] == ["idle-cores"]
    survey = json.loads((STORED / "survey-debian-5.10-seed-100.json").read_text(encoding="utf-8"))
    assert all(stored[key] == survey[key] for key in ("machines", "loads", "closeness"))
    assert f"all {stored['machines']} cases booted, `affinity` was" in SAID
    assert f"came to {stored['closest']['work-conservation']:.0%}".replace("%", " %") in SAID
    for kernel in ("5.10", "6.1"):
        printed = (STORED / f"hunted-debian-{kernel}.txt").read_text(encoding="utf-8")
        assert re.search(r"confirmed after 2\.\d+ min: affinity", printed)
        assert ("found: work-conservation" in printed) == (kernel == "6.1")


def test_what_keeps_hogs_on_one_cpu_is_the_allowed_imbalance() -> None:
    """Of three looks at each kernel, in how many a hog got to the idle CPU."""
    text = (STORED / "kept-on-one-cpu-6.1-kernels.txt").read_text(encoding="utf-8")
    moved = {
        kernel: re.findall(rf"^hunted_hunt_{kernel}_\d+,(\d)$", text, re.MULTILINE).count("1")
        for kernel in ("k510", "k61", "k612", "k612even", "k73")
    }
    assert moved == {"k510": 3, "k61": 1, "k612": 1, "k612even": 3, "k73": 0}


def test_what_the_campaign_covered_is_what_is_stored() -> None:
    stored = json.loads((STORED / "campaign-debian-6.12.json").read_text(encoding="utf-8"))
    for text, name in (
        ("{} with cores of two CPUs", "machine: SMT"),
        ("{} with nodes without CPUs", "machine: nodes without CPUs"),
        ("{} with uneven nodes", "machine: uneven nodes"),
        ("{} with three hops or more", "machine: hazard diameter above 2"),
        (
            "{} on which 6.12 with `undo-group-construction` builds the same groups",
            "machine: hazard group construction",
        ),
        ("{} loads with hogs", "load: hog"),
        ("{} with memory users", "load: memory"),
        ("{} with a CPU that goes and comes back", "load: a CPU that goes and comes back"),
    ):
        assert text.format(stored["covered"][name]) in SAID, name


@pytest.mark.parametrize("kernel", ["debian-5.10", "debian-6.1", "debian-7.3"])
def test_what_surveys_of_other_kernels_showed_is_what_is_stored(kernel: str) -> None:
    file = STORED / f"survey-{kernel}-seed-100.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    above = {name: row["above"] for name, row in stored["closeness"].items() if row["above"]}
    sizes = [str(stored[key]) for key in ("machines", "different_machines", "loads")]
    shown = ", ".join(f"`{name}` {count}" for name, count in above.items())
    assert f"| `{kernel}` | {' | '.join(sizes)} | {shown} |" in TEXT
    assert (stored["kernel"], stored["seed"], stored["found"]) == (kernel, 100, [])
    assert ("affinity" in above) == (kernel != "debian-7.3")


def test_what_the_corpus_showed_on_other_kernels_is_what_is_stored() -> None:
    lines = (STORED / "replayed-on-other-kernels.txt").read_text(encoding="utf-8").splitlines()
    said = [line.partition(": ") for line in lines if " on debian-" in line and ": " in line]
    assert len(said) == 33
    assert [place for place, _, what in said if what.startswith("UNEXPECTED")] == [
        "beside-the-mask on debian-7.3",
        "idle-after-sleep on debian-6.1",
        "mask-forgotten on debian-5.10",
        "mask-forgotten on debian-6.1",
    ]


def test_what_two_emulators_showed_is_what_is_stored() -> None:
    stored = json.loads((STORED / "survey-seed-5.json").read_text(encoding="utf-8"))
    assert f"the {stored['machines']} of 8 machines" in TEXT
    for name in ("response", "idle-neighbours", "proportion", "fairness"):
        (row,) = (line for line in TEXT.splitlines() if re.match(rf"\| `{name}`, ", line))
        for emulator in ("qemu-7.2", "qemu-10.0"):
            values = stored["properties"][name][emulator]
            assert ", ".join(f"{values[key]:g}" for key in ("median", "p90", "most")) in row


def test_what_the_configuration_of_distributions_showed_is_what_is_stored() -> None:
    file = STORED / "hunted-debian-6.12-distribution.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert f"{stored['machines']} machines, {stored['loads']} loads: domains and groups" in SAID
    assert f"{len(stored['unconfirmed'])} values were suspected" in SAID
    assert not stored["found"]
    assert stored["closest"]["domains"] == stored["closest"]["kernel-log"] == 0


@pytest.mark.parametrize(
    "name", ["idle-far-cpu-ring", "pulled-both-ways-line", "uneven-beside-idle-nodes"]
)
def test_folders_of_findings_are_short_and_show_them(name: str) -> None:
    case, table, _ = read_case(STORED / f"{name}.toml")
    folder = STORED / name
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert table.sentence in " ".join(texts["affected.md"].split())
    assert "the reproducer shows it" in texts["affected.md"]
    assert re.search(r"^\| debian-6.12 \| [\d.]+ \| yes \|$", texts["affected.md"], re.MULTILINE)
    assert len(texts["reproducer.c"].splitlines()) <= 100
    mail = texts["mail.txt"].splitlines()
    assert len(mail) <= 60
    assert max(map(len, mail)) <= 72
    assert f"{sum(load.tasks for load in case.loads)} busy loops" in texts["mail.txt"]


def test_the_decisions_that_explain_findings_are_those_that_are_stored() -> None:
    ring = (STORED / "idle-far-cpu-ring/decisions.txt").read_text(encoding="utf-8")
    assert "   297 balanced dst 2 domain 0-3" in ring
    assert "balanced 297 times with the flag 0" in SAID
    assert "22 flag set by 3" in ring
    assert "22 flag set by 1" in ring
    setters = re.findall(r"flag set by (\d) in domain \S+ for group \S+, sgc (\d)", ring)
    assert all(setter == capacity for setter, capacity in setters)
    rows = [
        [float(value) for value in row.split()]
        for row in re.findall(r"^(?:6.12|with the change) +([\d. ]+)$", ring, re.MULTILINE)
    ]
    (before, after), (later_before, later_after) = rows[:2], rows[2:]
    least, most, mended = (f"{value:.0f}" for value in (min(before), max(before), max(after)))
    assert f"is {mended} ms a second or less instead of {least} to {most} with" in SAID
    least, mended = (f"{value:.0f}" for value in (min(later_before), max(later_after)))
    assert f"and {mended} or less instead of {least} or more with" in SAID


def test_outcomes_with_and_without_direction_are_those_that_are_stored() -> None:
    stored = json.loads((STORED / "direction.json").read_text(encoding="utf-8"))
    ends = {
        (run["kernel"], run["seed"], run["direction"]): run["outcomes_after_boot"][-1]
        for run in stored
    }
    swap = "debian-6.12-mutation-swap-affinity"
    both = [f"{ends[swap, 1, steered]} and {ends[swap, 2, steered]}" for steered in (True, False)]
    assert f"met {both[0]} of 90 outcomes, the undirected one {both[1]};" in SAID
    plain = [f"{ends['debian-6.12', 1, steered]:,}" for steered in (True, False)]
    assert f"ten boots, {plain[0]} and {plain[1]} of 7,714" in SAID


def test_there_are_rows() -> None:
    assert len(ROWS) == 8 + 10
    assert len(PRINTED) == 7 + 10


PLANTED = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in TEXT.partition("## Planted bugs\n")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `")
]


@pytest.mark.parametrize("row", PLANTED, ids=lambda row: row[0])
def test_a_planted_bug_has_the_outcomes_of_its_hunts(row: list[str]) -> None:
    name, _, outcome, missed = row
    texts = [
        path.read_text(encoding="utf-8")
        for path in STORED.iterdir()
        if re.fullmatch(rf"hunted-planted-{name}([-.].*)?txt", path.name)
    ]
    confirmed = [re.search(r"confirmed after (\S+) min: (\S+):", text) for text in texts]
    properties = {float(match[1]): match[2] for match in confirmed if match}
    if properties:
        minutes = min(properties)
        assert outcome == f"{minutes:g} min, `{properties[minutes]}"
    else:
        hunted = re.findall(r"^(\d+ machines, (\d+) loads), \d+ boots", "".join(texts), re.M)
        by_loads = {int(loads): text for text, loads in hunted}
        assert outcome == f"not found: {by_loads[max(by_loads)]}"
    assert missed == str(confirmed.count(None) or "")


def test_hunts_of_kernels_without_a_bug_found_nothing() -> None:
    part = TEXT.partition("## False positives\n")[2].partition("\n## ")[0]
    said = re.findall(r"^\| \d+ \| (.+) \|$", part, re.MULTILINE)
    stored = json.loads((STORED / "hunted-no-op.json").read_text(encoding="utf-8"))
    lengths = len(stored["suspicions"]), len(stored["found"])
    counted = stored["machines"], stored["loads"], stored["boots"], *lengths
    printed = [" | ".join(map(str, counted))]
    for path in STORED.glob("hunted-no-op-*.txt"):
        counts = re.search(
            r"^(\d+) machines?, (\d+) loads, (\d+) boots, (\d+) suspicions, (0) of them confirmed",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        assert counts is not None
        printed.append(" | ".join(counts.groups()))
    assert sorted(said) == sorted(printed)


LISTED = TEXT.partition("## What was found, and what was not\n")[2].partition("\n## ")[0]
PREFIXES = ("mutation-", "undo-fix-", "planted-", "planted-")


def _confirmed(name: str) -> list[bool]:
    """Return of each stored output of hunts of a bug whether it confirms something."""
    outputs = [
        path.read_text(encoding="utf-8")
        for path in STORED.iterdir()
        if re.match(rf"(hunted|differential)-{name}[-.]", path.name)
    ]
    return ["confirmed after" in text or '"minutes_until_confirmed"' in text for text in outputs]


def test_the_list_of_bugs_is_what_hunts_printed() -> None:
    """Each bug that was found has an output that confirms something, a missed one only others."""
    rows = [line.strip("|").split("|") for line in LISTED.splitlines() if "| `" in line]
    assert len(rows) == len(PREFIXES)
    count = {True: 0, False: 0}
    for prefix, (_, *columns) in zip(PREFIXES, rows, strict=True):
        for cell, expected in zip(columns, (True, False), strict=True):
            names = re.findall(r"`([\w-]+)`", cell)
            count[expected] += len(names)
            for name in names:
                outcomes = _confirmed(f"{prefix}{name}")
                assert outcomes and any(outcomes) is expected, name
    assert f"it found {count[True]} of {sum(count.values())} known bugs" in SAID


def test_the_table_of_missing_branch_outcomes_is_what_was_classified() -> None:
    """Each row sums one or two classes of the stored list, over all files and for five of them."""
    stored = pl.read_csv(STORED / "branch-coverage-rest.csv")
    table = TEXT.partition("**What the rest is**")[2].partition("\n\nSo of what loads could")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    counts = {row[0].strip(): [int(n.replace(",", "")) for n in row[1:]] for row in rows[2:-2]}
    classes = {
        "a load, or a system call, could": ["load"],
        "unclear": ["other"],
        "two CPUs meet within a few instructions": ["race"],
        "hardware, boot option or feature that guests lack": ["feature"],
        "the kernel checks itself, or the caller excludes it": ["invariant"],
        "no memory can be allocated": ["allocation"],
        "decided at boot, or by how domains are built": ["boot", "structure"],
    }
    assert list(counts) == ["produced", *classes]
    assert set(stored["class"]) == {name for names in classes.values() for name in names}
    files = ["fair.c", "topology.c", "core.c", "rt.c", "deadline.c"]
    for said, names in classes.items():
        some = stored.filter(pl.col("class").is_in(names))
        sums = [some.filter(pl.col("file") == file)["outcomes"].sum() for file in files]
        assert counts[said] == [some["outcomes"].sum(), *sums]
    for least, row in ((3, rows[-2]), (4, rows[-1])):
        share = [
            100 * column[0] / sum(column[:least]) for column in zip(*counts.values(), strict=True)
        ]
        assert [cell.strip() for cell in row[1:]] == [f"{value:.0f} %" for value in share]
