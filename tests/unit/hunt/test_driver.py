"""What the driver of hunts prints of made-up files of a kernel, compiled and run on the host."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.hunt.loads.driver_output import Printed, explain_faults, parse_output
from numalab.places import shipped_dir

Compile = Callable[[str], Path]
FOLDERS = ("workloads", "workloads/hunt", "images/src")
INCLUDED = [f"-I{shipped_dir() / folder}" for folder in FOLDERS]
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
OF_DRIVER = """
#define main of_driver
#include "hunt.c"
#undef main

static char state_of(pid_t pid)
{
	char path[32], text[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	get(path, text, sizeof(text));
	return strrchr(text, ')')[2];
}

static void stop_forker(void)
{
	char path[64], text[64];

	parts[0] = (struct part){ .kind = FORKER, .n = 1, .burst = 1, .run = 10000000 };
	sched_getaffinity(0, sizeof(cpu_set_t), &parts[0].start);
	part_count = 1;
	if (!start_part(0))
		die("no start");
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pids[0], pids[0]);
	for (*text = 0; !*text; get(path, text, sizeof(text)))
		pause_us(1000);
	signal_all(SIGSTOP);
	for (int tried = 0; tried < 20000; tried++) {
		if (state_of(pids[0]) == 'T' && state_of(atoi(text)) == 'T')
			break;
		pause_us(1000);
	}
	printf("%c%c\\n", state_of(pids[0]), state_of(atoi(text)));
	kill(-pids[0], SIGKILL);
}

static void end_some(void)
{
	pid_count = 5;
	for (int i = 0; i < pid_count; i++) {
		part_of[i] = i;
		pids[i] = fork();
		if (!pids[i]) {
			if (i == 1)
				_exit(0);
			if (i == 2)
				_exit(3);
			raise(i == 3 ? SIGKILL : i == 4 ? SIGPIPE : SIGSTOP);
		}
		if (i)
			waitid(P_PID, pids[i], &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
	}
	tell_deaths(7);
	kill(pids[0], SIGKILL);
}

/* A child's slice beside its parent's and the kernel's, and the rank of this process. */
static void compare_children(void)
{
	struct settings parent = { .attributes.runtime = 5 }, child = { .attributes.runtime = 3 }, own;

	printf("%d", differs_in_slice(&parent, &child, 3));
	parent.attributes.flags = RESETS;
	for (int base = 0; base < 4; base++)
		printf("%d", differs_in_slice(&parent, &child, base));
	child.attributes.runtime = 0;
	printf("%d ", differs_in_slice(&parent, &child, 3));
	read_settings(0, &own);
	printf("%d", differs_in_rank(&own));
	own.nice++;
	printf("%d\\n", differs_in_rank(&own));
}

int main(int argc, char **argv)
{
	char text[8192], *save;

	setvbuf(stdout, NULL, _IONBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc > 1) {
		snprintf(text, sizeof(text), "%s", argv[1]);
		for (char *part = strtok_r(text, ";", &save); part;) {
			parse_part(part);
			part = strtok_r(NULL, ";", &save);
		}
		printf("%s\\n", groups[group_count - 1].path);
		return 0;
	}
	stop_forker();
	end_some();
	compare_children();
	probes = &shared->probes;
	expect("right", 7, 7);
	expect("a-name-that-is-longer-than-31-letters", 3, 0);
	expect("second", 3, 0);
	printf("%d %d %s %ld\\n", probes->calls, probes->wrong, probes->name, probes->result);
	return 0;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    def compile_text(text: str) -> Path:
        program = tmp_path_factory.mktemp("driver") / "program"
        words = ["gcc", "-w", "-x", "c", f"-o{program}", *INCLUDED, "-"]
        subprocess.run(words, input=text, text=True, check=True, timeout=60)
        return program

    return compile_text


def test_each_header_of_the_driver_includes_what_it_uses() -> None:
    headers = sorted((shipped_dir() / "workloads/hunt").glob("*.h"))
    words = ["gcc", "-D_GNU_SOURCE", "-Wall", "-Wno-unused", "-Werror", "-fsyntax-only", "-xc"]
    done = subprocess.run(
        [*words, *INCLUDED, *headers], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


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


@pytest.fixture(scope="module")
def driver(compiled: Compile) -> Path:
    return compiled(OF_DRIVER)


def output_of(driver: Path, *words: str) -> str:
    done = subprocess.run([driver, *words], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_children_stop_with_their_forker_and_what_differs_or_dies_is_told(driver: Path) -> None:
    states, *deaths, differing, probes = output_of(driver).splitlines()
    assert states == "TT"
    assert differing == "101100 01"
    assert probes == "3 2 a-name-that-is-longer-than-31-l 3"
    assert deaths == ["load 7 part 2 ended with 3", "load 7 part 3 ended by signal 9"]
    assert explain_faults("\n".join([*deaths, *deaths])) == [
        "load 7: part 2: a task ended with 3", "load 7: part 3: a task ended by signal 9",
    ]  # fmt: skip


def test_groups_far_below_each_other_have_their_whole_path(driver: Path) -> None:
    names = [letter * 8 for letter in "abcdefghijklmnop"]
    below = zip(names[1:], names[:-1], strict=True)
    text = f"group name={names[0]};" + ";".join(f"group name={a} parent={b}" for a, b in below)
    path = "/sys/fs/cgroup" + "".join(f"/hunt0-{name}" for name in names)
    assert output_of(driver, text) == f"{path}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"group name=a cpus={'0,' * 600}0",
        f"group name={'a' * 17}",
        f"hotplug cpu=1;cpuset to=0 from={'0,' * 600}0",
    ],
)
def test_what_does_not_fit_is_refused(driver: Path, text: str) -> None:
    done = subprocess.run([driver, text], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "longer than" in done.stderr
