"""Results and cases of a stranger name inputs of the reader's lab, and never a path."""

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.files import read_json, write_json
from numalab.hunt.case_file import find_cases
from numalab.places import shipped_dir
from numalab.results.layout import Results
from numalab.results.manifest import Manifest
from numalab.results.plan import StoredPlan
from numalab.results.reader import load_plan, load_runs
from numalab.study.model import find_study, load_study, study_table
from numalab.study.plan import plan_study
from numalab.study.stored import judged_anew, plan_stored, stored_study, stored_topology
from numalab.topology.load import (
    list_topologies,
    load_topology,
    read_topology_table,
    topology_to_dict,
)
from support import forked
from support.fake_executor import MATRIX, ready, tasks

FILE = Path("manifest.json")
EXAMPLES = shipped_dir() / "reports" / "examples"


def stored(folder: Path, **changes: object) -> StoredPlan:
    """Return the stored plan of a study of this lab, with other tables."""
    study = ready(folder, MATRIX)
    table = study_table(study.plan.study) | changes
    return StoredPlan(
        study="tried", digest="0", path="/proc/kmsg", preset="", file=table, runs=study.plan.runs
    )


def tarball(path: Path) -> Path:
    """Make a kernel source whose Makefile would run a command."""
    with tarfile.open(path, "w:gz") as tar:
        data = f"X := $(shell touch {path.with_name('ran')})\n".encode()
        info = tarfile.TarInfo("linux-6.12/Makefile")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return path


def test_names_of_the_lab_are_planned(tmp_path: Path) -> None:
    plan = plan_stored(stored(tmp_path), Results(tmp_path))
    assert plan.name == "tried"
    assert set(plan.kernels) == {"debian-6.12", "debian-6.12-undo-group-construction"}


@pytest.mark.parametrize(
    "name",
    [
        "{tmp}/linux.tar.gz",
        "linux.tar.gz",
        "./linux.tar.gz",
        "git:.",
        "git:{tmp}@HEAD",
        "deb:linux-image-amd64",
        "linux-source-6.12/bookworm",
        "/proc/kmsg",
        "~/linux",
        "no-such-kernel",
    ],
)
def test_a_kernel_that_the_lab_does_not_name_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tarball(tmp_path / "linux.tar.gz")
    monkeypatch.chdir(tmp_path)
    variants = {key: {"kernel": name.format(tmp=tmp_path)} for key in ("before", "after")}
    with pytest.raises(UserError, match=r"variants.before.kernel: .* is not in your lab"):
        plan_stored(stored(tmp_path, variants=variants), Results(tmp_path))


@pytest.mark.parametrize("name", ["{tmp}/fifo.toml", "/proc/kmsg", "fifo.toml", "../x", "nowhere"])
@pytest.mark.parametrize("key", ["topologies", "image", "include", "claims"])
def test_no_name_is_followed_as_a_path(
    tmp_path: Path, name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO that nobody writes to would block for ever."""
    os.mkfifo(tmp_path / "fifo.toml")
    monkeypatch.chdir(tmp_path)
    text = name.format(tmp=tmp_path)
    claim = {"text": "x", "measure": "task_migrations", "variant": "after", "at_most": 1}
    changes: dict[str, dict[str, object]] = {
        "topologies": {"topologies": ["ring-4", "ring-2", text]},
        "image": {"image": text},
        "include": {"include": [{"topologies": [text, "ring-4", "ring-2"]}]},
        "claims": {"claims": [claim | {"topology": text}]},
    }
    with pytest.raises(UserError, match=r"is not in your lab|no topology"):
        plan_stored(stored(tmp_path, **changes[key]), Results(tmp_path))


def example(**changes: object) -> StoredPlan:
    """Return the plan of stored runs, with other tables."""
    plan = load_plan(Results(EXAMPLES / "group-construction"))
    return plan.model_copy(update={"file": plan.file | changes})


MACHINE = load_plan(Results(EXAMPLES / "group-construction")).file["machine"]
CLAIM = {"text": "x", "measure": "task_migrations", "variant": "after", "at_most": 1}


@pytest.mark.parametrize(
    ("changes", "anew"),
    [
        ({}, ()),
        ({"question": "?", "primary_claims": None}, ()),
        ({"claims": [CLAIM]}, ("claims",)),
        ({"claims": [CLAIM | {"no": "key"}], "question": "?"}, ("claims",)),
        ({"key_measures": ["elapsed"]}, ("key_measures",)),
        ({"primary_claims": 9, "key_measures": ["x"]}, ("primary_claims", "key_measures")),
    ],
)
def test_stored_runs_are_judged_by_the_claims_of_the_lab(
    changes: dict[str, object], anew: tuple[str, ...]
) -> None:
    lab = load_study(find_study("group-construction"))
    study = stored_study(example(**changes), Results(EXAMPLES / "group-construction"))
    assert (study.question, study.claims) == (lab.question, lab.claims)
    assert judged_anew(example(**changes), study) == anew


def test_claims_of_today_that_cannot_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = find_study("group-construction").read_text(encoding="utf-8")
    claim = 'text = "x"\nmeasure = "elapsed_time"\nfrom = "before"\nto = "after"\n'
    figures = 'direction = "lower"\npublished = "at least -5%"\n'
    file = tmp_path / "studies/group-construction.toml"
    file.parent.mkdir()
    file.write_text(f"{text}\n[[claims]]\n{claim}{figures}", encoding="utf-8")
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"toml: claims\[2\]\.published: .* is not read"):
        stored_study(example(), Results(EXAMPLES / "group-construction"))


@pytest.mark.parametrize(
    "changes", [{"seeds": [7]}, {"mode": "tcg"}, {"machine": MACHINE | {"slow_motion": 2}}]
)
def test_runs_of_another_study_keep_their_claims(changes: dict[str, object]) -> None:
    plan = example(claims=[CLAIM], **changes)
    study = stored_study(plan, Results(EXAMPLES / "group-construction"))
    assert [claim.text for claim in study.claims] == ["x"]
    assert not judged_anew(plan.model_copy(update={"file": study_table(study)}), study)


def test_options_of_the_run_make_no_other_study() -> None:
    plan = example(claims=[CLAIM], machine=MACHINE | {"pages": "2M", "emulator": "qemu-10.0"})
    study = stored_study(plan, Results(EXAMPLES / "group-construction"))
    assert study.machine.pages == "2M"
    assert study.claims == load_study(find_study("group-construction")).claims


def test_the_users_own_study_may_name_paths(tmp_path: Path) -> None:
    """Results of a kernel that is a path are verified with the study that names it."""
    source = tarball(tmp_path / "linux.tar.gz")
    own = tmp_path / "own.toml"
    own.write_text(MATRIX.replace('"debian-6.12"', f'"{source}"'))
    plan = plan_stored(stored(tmp_path), Results(tmp_path), own)
    assert str(source) in plan.kernels
    own.write_text(MATRIX.replace("[variants.after]", "[variants.other]"))
    with pytest.raises(UserError, match=r"own.toml: .* is no run of this study"):
        plan_stored(stored(tmp_path), Results(tmp_path), own)


def test_a_case_names_kernels_of_the_lab(tmp_path: Path) -> None:
    path = find_cases()[0]
    plan_study(path)
    kernel = next(iter(load_study(path).variants.values())).kernel
    copy = tmp_path / "case.toml"
    copy.write_text(path.read_text().replace(f'"{kernel}"', f'"{tarball(tmp_path / "a.tar.gz")}"'))
    with pytest.raises(UserError, match="is not in your lab"):
        plan_study(copy)


@pytest.mark.parametrize("claims", [5, None, [5], [None], {"statistic": 5}])
def test_claims_that_are_none_are_one_message(tmp_path: Path, claims: object) -> None:
    with pytest.raises(UserError, match=r"plan\.json: claims"):
        stored_study(stored(tmp_path, claims=claims), Results(tmp_path))


@pytest.mark.parametrize("name", list_topologies())
def test_a_machine_is_read_back_from_results(name: str) -> None:
    topology = load_topology(name)
    again = read_topology_table(topology_to_dict(topology), FILE)
    assert topology_to_dict(again) == topology_to_dict(topology)
    assert again.packaging == topology.packaging


def test_the_machine_of_the_lab_is_used_where_it_is_the_same(tmp_path: Path) -> None:
    study = ready(tmp_path, MATRIX)
    manifest = tasks(study)[0].manifest
    assert stored_topology(study.plan.study, manifest, FILE).shape is not None
    other = topology_to_dict(load_topology("ring-4")) | {"summary": "another"}
    changed = stored_topology(study.plan.study, manifest.but(machine=other), FILE)
    assert (changed.summary, changed.shape) == ("another", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("distances", [[10, 20], [20, 10]]),
        ("distances", [[10]]),
        ("links", [[0, 9]]),
        ("links", [[0, 1, 2]]),
        ("nodes", []),
        ("nodes", [{"id": 0, "cpus": "0-4000", "memory_mib": 1}]),
        ("cpu_shape", {"sockets": 3, "dies": 1, "cores": 1, "threads": 1}),
        ("name", 3),
        ("more", 1),
    ],
)
def test_a_damaged_machine_is_one_message(key: str, value: object) -> None:
    table = topology_to_dict(load_topology("ring-4")) | {key: value}
    with pytest.raises(UserError, match=r"^manifest.json"):
        read_topology_table(table, FILE)


def test_the_memory_model_of_a_run_has_the_nodes_of_its_machine() -> None:
    results = Results(EXAMPLES / "what-balancing-gains")
    _, runs = load_runs(results)
    table = runs[0].manifest.model_dump(mode="json")
    table["memory"]["latency_ns"] = [[1]]
    with pytest.raises(ValueError, match="memory"):
        Manifest.model_validate(table)


def numalab(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return forked.numalab(*words)


def test_an_imported_archive_builds_and_follows_nothing(tmp_path: Path) -> None:
    """The kernel source lies in the archive, the topology is a FIFO, and the plan names both."""
    evil, target = tmp_path / "evil", tmp_path / "imported"
    shutil.copytree(EXAMPLES / "group-construction", evil)
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)
    plan = read_json(evil / "plan.json")
    for variant in plan["file"]["variants"].values():
        variant["kernel"] = str(target / "linux.tar.gz")
    plan["file"]["topologies"] = [str(fifo), "/proc/kmsg"]
    plan["path"] = "/proc/kmsg; touch ran"
    write_json(evil / "plan.json", plan)
    tarball(evil / "linux.tar.gz")
    assert numalab("export", evil, tmp_path / "a.tar.zst").returncode == 0
    assert numalab("import", tmp_path / "a.tar.zst", "--output", target).returncode == 0
    done = numalab("verify", target)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not in your lab" in done.stderr
    done = numalab("report", target)
    assert (done.returncode, done.stderr.count("\n") < 20) == (0, True)
    assert "numalab run '/proc/kmsg; touch ran'" in (target / "index.html").read_text().replace(
        "&#39;", "'"
    )
    assert not list(tmp_path.rglob("ran"))


def test_bisect_builds_no_kernel_that_a_case_names_by_path(tmp_path: Path) -> None:
    path = next(path for path in find_cases() if 'violated_by = ["' in path.read_text())
    study = load_study(path)
    assert study.case is not None
    copy = tmp_path / "case.toml"
    source = str(tarball(tmp_path / "linux.tar.gz"))
    copy.write_text(path.read_text().replace(f'"{study.case.violated_by[0]}"', f'"{source}"'))
    done = numalab("bisect", "--case", copy)
    assert (done.returncode, done.stdout) == (2, "")
    assert "case.violated_by: " in done.stderr
    assert not (tmp_path / "ran").exists()


def test_stored_studies_are_still_read() -> None:
    for path in EXAMPLES.glob("*/plan.json"):
        results = Results(path.parent)
        assert stored_study(load_plan(results), results).topologies
