"""What a study on the bed's host keeps of guests that are lost."""

from testbed.bed import Bed
from testbed.lying import pages_of_nodes
from testbed.test_pinned_guest import WORDS

LOST = f"""
question = "What is left of a guest that hangs, and of one that panics?"
topologies = ["ring-2"]
image = "/disk/guests/base"
mode = "kvm"
seeds = [1]
workloads = [{{ name = "hang" }}, {{ name = "panic" }}]

[machine]
pages = "2M"
cmdline = {list(WORDS)}

[limits]
silence = 90

[capture]
events = ["sched:sched_switch"]

[variants.only]
kernel = "/disk/guests/bzImage"
"""
WORKLOAD = """
summary = "loses its guest"
stresses = "what follows a guest"
command = ["sh", "-c", "/usr/lib/numalab/marker 'before the loss'; {how}"]
tasks = ["sh"]
seconds = "1"
"""
HOW = {
    "hang": "kill -STOP $(pidof numalab-beat); while :; do :; done",
    "panic": "sleep 3; echo c >/proc/sysrq-trigger",
}


def write(bed: Bed, path: str, text: str) -> None:
    script = 'mkdir -p "$(dirname "$0")" && cat >"$0"'
    assert bed.run("sh", "-c", script, path, stdin=text).status == 0


def test_what_a_lost_guest_recorded_is_rescued_and_its_pages_are_given_back(bed: Bed) -> None:
    write(bed, "/tmp/lost.toml", LOST)
    for name, how in HOW.items():
        write(bed, f"/tmp/lab/workloads/{name}/workload.toml", WORKLOAD.replace("{how}", how))
    lab = {"NUMALAB_HOME": "", "NUMALAB_PATH": "/tmp/lab"}
    done = bed.run("numalab", "run", "/tmp/lost.toml", "--output", "/tmp/lost",
                   env=lab, seconds=900)  # fmt: skip
    assert done.status == 4, done.output()
    for name, reason in (
        ("hang", "the guest has been silent for 90 s (phase: workload"),
        ("panic", "the guest's kernel panicked"),
    ):
        assert reason in done.stderr
        trace = f"/tmp/lost/runs/ring-2_{name}_only_1.failed/out/trace.dat"
        marks = bed.run("sh", "-c", f"trace-cmd report -N {trace} | grep -c 'before the loss'")
        assert int(marks.stdout) >= 1, marks.output()
    assert pages_of_nodes(bed) == {}
