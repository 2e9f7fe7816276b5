"""A study of time on the bed's host, with a killed run and a disturbed one, and its report."""

from typing import Any

from testbed.bed import Bed
from testbed.lying import lying, pages_of_nodes, vcpus
from testbed.test_guests import BUSY
from testbed.test_pinned_guest import WORDS
from testbed.test_studies import write

STUDY = f"""
question = "Is memory touched for the first time sooner in pages of 2 MiB?"
topologies = ["ring-2"]
image = "/disk/guests/base"
mode = "kvm"
seeds = [1, 2, 3]
key_measures = ["touch_time"]

[machine]
pages = "2M"
cmdline = {list(WORDS)}

[capture]
sets = ["numa"]
perf_stat = ["cycles", "page-faults"]

[variants.small]
kernel = "/disk/guests/bzImage"
tunables = {{ "/sys/kernel/mm/transparent_hugepage/enabled" = "never" }}

[variants.huge]
kernel = "/disk/guests/bzImage"
tunables = {{ "/sys/kernel/mm/transparent_hugepage/enabled" = "always" }}

[[workloads]]
name = "touch"

[[claims]]
text = "a fault gives more memory"
from = "small"
to = "huge"
measure = "perf_page_faults"
at_most = -50.0

[[claims]]
text = "it takes less time"
from = "small"
to = "huge"
measure = "touch_time"
direction = "lower"

[[claims]]
text = "it takes fewer cycles"
from = "small"
to = "huge"
measure = "perf_cycles"
direction = "lower"
"""
# Runs of the first variant are busy for a while before, so that they can be met at work.
BUSY_FIRST = (
    "! grep -qF '[never]' /sys/kernel/mm/transparent_hugepage/enabled"
    " || timeout 40 taskset -c 0 sh -c 'while :; do :; done'"
)
DD = "/usr/lib/numalab/marked dd if=/dev/zero of=/dev/null bs=64M count=1"
TOUCH = f"""
summary = "touches 64 MiB for the first time"
stresses = "page faults"
command = ["sh", "-c", "{BUSY_FIRST}; exec {DD} 2>&1"]
tasks = ["dd"]
seconds = "1"

[[metrics]]
name = "touch_time"
pattern = '\\d+ bytes .* copied, (?P<value>[\\d.e-]+) s, .*'
unit = "s"
direction = "lower"
kind = "timing"
"""
FIRST, *OTHERS = (
    f"ring-2_touch_{variant}_{seed}" for seed in (1, 2, 3) for variant in ("small", "huge")
)
# The whole report is more than the bed's line carries.
REPORT = """
import json
(cell,) = json.load(open("/tmp/study/report.json"))["cells"]
runs = {run["id"]: [run["measures"], run["provenance"]] for run in cell["runs"]}
print(json.dumps({"runs": runs, "claims": cell["claims"]}))
"""


def test_a_study_of_time_with_a_killed_and_a_disturbed_run(bed: Bed) -> None:
    write(bed, "/tmp/study.toml", STUDY)
    write(bed, "/tmp/lab/workloads/touch/workload.toml", TOUCH)
    lab = {"NUMALAB_HOME": "", "NUMALAB_PATH": "/tmp/lab"}
    words = ("numalab", "run", "/tmp/study.toml", "--output", "/tmp/study")
    study = bed.begin(*words, env=lab, seconds=1500)
    (killed,) = lying(bed)
    assert bed.run("kill", "-9", str(killed["pid"])).status == 0
    (disturbed,) = lying(bed)
    load = BUSY.format(seconds=15, cpu=vcpus(disturbed)[0])
    assert bed.run("sh", "-c", load).status == 0
    done = study.result()
    assert done.status == 0, done.output()
    assert "tried again: QEMU was killed by SIGKILL" in done.stderr
    assert bed.run("ls", "/tmp/study/runs").stdout.split() == sorted([FIRST, *OTHERS])
    assert bed.run("grep", "-c", "it takes fewer cycles", "/tmp/study/index.html").status == 0
    assert pages_of_nodes(bed) == {}

    stored = {run: manifest(bed, run) for run in (FIRST, *OTHERS)}
    for run in stored.values():
        assert run["mode"] == "kvm" and run["status"] == "ok", run
        assert run["timing"]["means"] and run["proof"]["differs"] == [], run
    # All were on the same CPUs, and the one that was disturbed says so.
    assert len({str(vcpus_of(run)) for run in stored.values()}) == 1
    assert vcpus_of(stored[FIRST]) == [[cpu] for cpu in vcpus(disturbed)]
    assert waited(stored[FIRST]) > 0.1 > max(waited(stored[run]) for run in OTHERS)

    result = bed.run("python3", "-c", REPORT).json()
    assert "timing was disturbed: " in result["runs"][FIRST][1]["placement"]
    assert "vcpu 0 waited" in result["runs"][FIRST][1]["placement"]
    for measures, _ in result["runs"].values():
        assert measures["touch_time"] > 0 and measures["perf_page_faults"] > 0
        # An emulated CPU has no counters; what perf could not count is not made up.
        assert measures["perf_cycles"] is None
    faults, time, cycles = result["claims"]
    assert (faults["holds"], faults["verdict"]) == (True, "")
    # Three runs of each variant show nothing.
    assert time["verdict"].startswith("inconclusive"), time
    assert "3 and 3 runs" in time["measured"]
    assert cycles["verdict"].startswith("cannot be seen in this mode because no run"), cycles


def manifest(bed: Bed, run: str) -> dict[str, Any]:
    stored: dict[str, Any] = bed.run("cat", f"/tmp/study/runs/{run}/manifest.json").json()
    return stored


def vcpus_of(stored: dict[str, Any]) -> list[list[int]]:
    """Return the host CPUs that each vCPU of a run was allowed."""
    threads = (thread for thread in stored["proof"]["threads"] if thread["vcpus"])
    return [thread["allowed"] for thread in sorted(threads, key=lambda thread: thread["vcpus"])]


def waited(stored: dict[str, Any]) -> float:
    """Return for which part of the time vCPU 0 of a run is told to have waited for its host CPU."""
    amounts = [
        disturbance["amount"]
        for disturbance in stored["timing"]["disturbs"]
        if (disturbance["kind"], disturbance["subject"]) == ("waited", "vcpu 0")
    ]
    return amounts[0] if amounts else 0.0
