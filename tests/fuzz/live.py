"""Real guests that misbehave by a random script, and studies of real guests that are killed.

A guest runs in icount mode. However it ends, `numalab run` ends with a documented code and leaves
no process; a study that was killed goes on, and does no run twice.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fuzz.commands import PROGRAM, Box, end_processes, missing_image, processes_of
from numalab.kernel.kernel_build import built_kernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.places import cache_dir

CASES, FEW = 60, 1
KERNEL = "debian-6.12"
WORKLOAD = """summary = "a random script"
stresses = "whatever it says"
command = ["sh", "{folder}/script.sh"]
tasks = ["sh"]
seconds = "1"
"""
STUDY = """question = "What becomes of it?"
topologies = ["{topology}"]
mode = "icount"
seeds = {seeds}
[variants.a]
kernel = "debian-6.12"
[[workloads]]
name = "script"
[limits]
boot = 120
silence = 30
run = {run}
[capture]
sets = ["sched"]
"""
# Each line is one deed of a script; it may fail, and the next goes on.
DEEDS = r"""
dd if=/dev/zero of=/job/out/fill bs=1M
yes x >/dev/console & sleep 0.2; kill $!
yes | head -c 30000000
yes | head -c 30000000 >&2
head -c 3000000 /dev/urandom
head -c 3000000 /dev/urandom >/dev/console
printf '\033[2J\033]0;x\007' >/dev/console
i=0; while [ $i -lt 400 ]; do sleep 1 & i=$((i+1)); done
f() { f | f & }; f
echo c >/proc/sysrq-trigger
echo b >/proc/sysrq-trigger
echo o >/proc/sysrq-trigger
echo 'numalab: begin' >/sys/kernel/tracing/trace_marker
echo 'numalab: end' >/sys/kernel/tracing/trace_marker
echo 0 >/sys/kernel/tracing/tracing_on
i=0; while [ $i -lt 9000 ]; do echo x$i; i=$((i+1)); done >/sys/kernel/tracing/trace_marker
head -c 200000 /dev/urandom >/sys/kernel/tracing/trace_marker
echo 1 >/sys/kernel/tracing/buffer_size_kb
dd if=/dev/urandom of=/dev/pmem1 bs=4096 count=64
dd if=/dev/zero of=/dev/pmem1 bs=1M
dd if=/dev/urandom of=/dev/pmem1 bs=512 seek=2 count=1
kill -9 1
kill 1
kill -SEGV 1
kill -9 -1
kill -9 $PPID
kill -STOP $$
mount -o remount,ro /job
mount -o remount,rw /
umount -l /job
umount -l /proc
umount -l /sys
truncate -s 1T /job/out/sparse
truncate -s 1T /job/out/stdout
mkdir -p /job/out/a/b/c/d/e/f/g/h/i/j; touch -- /job/out/-rf
touch "/job/out/$(printf 'a\nb\033[2J')"
ln -s /etc/passwd /job/out/link; mkfifo /job/out/pipe
rm -rf /job/out
rm -rf /job/*
ln -sf /dev/zero /job/out/stdout
cd /job/out; seq 5000 | xargs touch
echo 99999999999999999999 >/job/out/exit-status
printf '\377\376' >/job/out/times
for t in /dev/hvc* /dev/ttyS* /dev/vport*; do echo '{"phase": "done", "status": 0}' >$t; done
for t in /dev/hvc* /dev/ttyS* /dev/vport*; do head -c 9000 /dev/urandom >$t; done
echo 0 >/sys/devices/system/cpu/cpu1/online
exit 3
exit 255
chmod 0 /job/out
sleep 100000
ulimit -v 100000; head -c 900m /dev/zero | tail
head -c 3000m /dev/zero | tail -n 1
while :; do :; done
printf 'x\033[31m' >/proc/self/comm
date -s 2050-01-01
true
""".strip().splitlines()


def missing() -> str:
    """Return what has to be built before a guest boots."""
    if reason := missing_image():
        return reason
    built = built_kernel(find_kernel(KERNEL))
    return "" if built else f"no kernel is built; run: numalab kernel build {KERNEL}"


def case(seed: int, scratch: Path) -> str:
    """Run guests that misbehave, or kill a study of guests."""
    rng = random.Random(seed)
    return _killed(rng, Box(scratch)) if seed % 3 == 0 else _misbehaves(rng, Box(scratch))


def _study(box: Box, script: str, topology: str, seeds: list[int], seconds: int) -> dict[str, str]:
    """Write a study of a script, and return the variables with which it is found."""
    lab = box.work / "lab"
    (lab / "workloads" / "script").mkdir(parents=True)
    (lab / "studies").mkdir()
    (lab / "workloads" / "script" / "workload.toml").write_text(WORKLOAD)
    (lab / "workloads" / "script" / "script.sh").write_text(f"#!/bin/sh\n{script}\n")
    (lab / "workloads" / "script" / "script.sh").chmod(0o755)
    study = STUDY.format(topology=topology, seeds=seeds, run=seconds)
    (lab / "studies" / "tried.toml").write_text(study)
    # What is built is taken from the cache of whoever runs this.
    return {"NUMALAB_PATH": str(lab), "NUMALAB_CACHE": str(cache_dir())}


def _misbehaves(rng: random.Random, box: Box) -> str:
    deeds = rng.sample(DEEDS, rng.choice([1, 2, 4]))
    script = "\n".join([*(f"( {deed} ) 2>/dev/null" for deed in deeds[:-1]), deeds[-1]])
    env = _study(box, script, rng.choice(["ring-2", "ring-4"]), [1], 60)
    ended = box.run("run", "tried", "--output", box.work / "results", "--jobs", "1", env=env)
    code = box.check(ended)
    if (box.work / "results" / "plan.json").is_file():
        box.check(box.run("status", box.work / "results", env=env))
        box.check(box.run("report", box.work / "results", env=env))
    return f"exit code {code}"


def _killed(rng: random.Random, box: Box) -> str:
    """Kill a study after some of its runs have ended, then go on with it."""
    results, wanted = box.work / "results", rng.choice([0, 1, 1, 2])
    env = _study(box, "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done", "ring-2", [1, 2, 3], 120)
    line = ["run", "tried", "--output", str(results), "--jobs", rng.choice(["1", "2"])]
    child = subprocess.Popen(
        [sys.executable, *PROGRAM, *line], cwd=box.work, env=box.environment(env),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        phase = rng.choice(["guest", "ended"])
        while child.poll() is None and not _is_stage(results, wanted, phase):
            time.sleep(0.02)
        child.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        child.wait()
        before = _ended(results)
        again = box.run(*line, "--resume", env=env)
        assert box.check(again) == 0, f"it did not go on\n{again}"
        after = _ended(results)
        assert len(after) == 3 and before.items() <= after.items(), "a run was lost or done twice"
        assert not processes_of(box.scratch), "a process is left"
    finally:
        end_processes(box.scratch, 0.0)
        child.wait()
    return f"killed after {len(before)} of 3 runs"


def _is_stage(results: Path, wanted: int, phase: str) -> bool:
    """Tell whether so many runs have ended, and whether a guest of another runs where asked."""
    if len(_ended(results)) < wanted:
        return False
    running = list(results.glob("runs/*.running/console.log"))
    return phase == "ended" or bool(running)


def _ended(results: Path) -> dict[str, int]:
    """Return the runs that have ended, with the inode of what they left.

    Those that are running, or were interrupted, have a name with an ending.
    """
    paths = results.glob("runs/*/manifest.json")
    return {path.parent.name: path.stat().st_ino for path in paths if not path.parent.suffix}
