"""What the driver of hunts prints of made-up files of a kernel, compiled and run on the host."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.hunt.loads.driver_output import Printed, parse_output
from numalab.places import shipped_dir

Compile = Callable[[str], Path]
OF_FAULTS = """
#define _GNU_SOURCE
#include "shared.h"
#include "accounts.h"

int main(void)
{
	struct faults faults = { .preferred = -1 };
	char line[256];

	while (fgets(line, sizeof(line), stdin))
		read_faults(line, &faults);
	tell_faults(0, "11", &faults);
	return 0;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    def compile_text(text: str) -> Path:
        program, shipped = tmp_path_factory.mktemp("driver") / "program", shipped_dir()
        folders = (shipped / "workloads", shipped / "workloads/hunt", shipped / "images/src")
        words = ["gcc", "-w", "-x", "c", f"-o{program}", *(f"-I{path}" for path in folders), "-"]
        subprocess.run(words, input=text, text=True, check=True, timeout=60)
        return program

    return compile_text


def test_faults_are_told_whatever_their_total_is(compiled: Compile) -> None:
    program = compiled(OF_FAULTS)

    def faults_of(total: int, on_node: int) -> list[tuple[int, int]]:
        text = (  # proc_sched_show_task() and print_numa_stats(), kernel/sched/debug.c, 6.12
            f"numa_preferred_nid                           :{1:21}\n"
            f"total_numa_faults                            :{total:21}\n"
            "current_node=0, numa_group_id=7\n"
            "numa_faults node=0 task_private=0 task_shared=0 group_private=0 group_shared=0\n"
            f"numa_faults node=1 task_private={on_node} task_shared=0 group_private=0"
            " group_shared=0\n"
        )
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        faults = parse_output(done.stdout).get(0, Printed()).exact.faults.values()
        return [(item.total, item.on_node[1].own) for item in faults if item.group == 7]

    assert faults_of(512, 512) == [(512, 512)]
    assert faults_of(0, 512) == [(0, 512)], "the total was never raised"
    assert faults_of(-12, 500) == [(-12, 500)]
    assert faults_of(12, 0) == [(12, 0)]
    assert faults_of(0, 0) == []
