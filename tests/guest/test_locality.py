"""Memory accesses by region and line: docs/examples/misplaced.c and what is wrong with it."""

from pathlib import Path

import pytest

from numalab.api import UserError, machine
from numalab.process import run

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "misplaced.c"


@pytest.mark.parametrize("link", ["-pie", "-static", "-static-pie"])
def test_misplaced_memory_and_false_sharing_have_their_variables(tmp_path: Path, link: str) -> None:
    program = tmp_path / "misplaced"
    run(["gcc", "-O2", "-pthread", link, "-o", program, EXAMPLE])
    locality = machine("ring-4", mode="timed").locality([program], window="barriers")
    assert locality.notes == ()
    regions = {region.name: region for region in locality.places.regions}
    table = regions["table"]
    assert (table.file, table.misplaced, table.pages[0]) == ("misplaced", 3, 256)
    assert table.lines[3] == pytest.approx(4000, rel=0.01)
    assert sum(table.lines[:3]) < 40  # node 0 initialises it before the window
    line = locality.places.contended[0]
    assert (line.name, line.sharing) == ("counters", "false")
    words = {word for thread in line.threads for word in thread.written}
    starts = ("counters", "counters+8", "counters+16", "counters+24")
    assert words == {f"8 bytes at {start}" for start in starts}
    assert all(part.name != "right" for part in locality.places.contended)
    waited = {thread.name: thread.stalled_ms for thread in locality.threads}
    assert 0 < waited["misplaced"] < locality.window_ms


SWITCHING = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int there[2], back[2];
static void *answer(void *none)
{
	char *heap = memset(malloc(100000), 1, 100000), byte;

	while (read(there[0], &byte, 1) == 1 && byte)
		write(back[1], heap + byte, 1);
	return none;
}
int main(void)
{
	pthread_t thread;
	char byte = 1;

	if (pipe(there) || pipe(back) || pthread_create(&thread, NULL, answer, NULL))
		return 1;
	for (int left = 2000; left--; read(back[0], &byte, 1))
		write(there[1], &byte, 1);
	usleep(100000); /* the memory is looked at every 20 ms */
	write(there[1], "", 1);
	return pthread_join(thread, NULL);
}
"""


def test_threads_that_switch_densely_have_their_accesses_and_heaps(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(SWITCHING)
    run(["gcc", "-pthread", "-o", tmp_path / "program", tmp_path / "program.c"])
    ring = machine("ring-4", mode="timed")
    locality = ring.locality(["taskset", "-c", "0", tmp_path / "program"])
    assert locality.notes == ()
    assert {thread.name for thread in locality.threads} == {"program"}
    names = [region.name for region in locality.places.regions]
    assert "heap arena" in names


def test_a_command_is_none_of_the_shell() -> None:
    locality = machine("ring-2", mode="timed").locality(["echo", "--version"])
    assert [thread.name for thread in locality.threads] == ["echo"]


MOVED = """
summary = "the first node has no memory, the second no CPUs: kernel, file and QEMU number apart"
nodes = 3
cpus = [2, 0, 2]
memory_mib = [0, 768, 768]
matrix = [[10, 16, 30], [16, 10, 22], [30, 22, 10]]
"""


@pytest.mark.parametrize("node", [1, 2])
def test_nodes_have_the_numbers_of_the_guest(tmp_path: Path, node: int) -> None:
    (tmp_path / "moved.toml").write_text(MOVED)
    moved = machine(tmp_path / "moved.toml", mode="timed")
    copy = ["dd", "if=/dev/zero", "of=/dev/shm/zeros", "bs=1M", "count=8"]
    locality = moved.locality(["numactl", "-C", "0", "-m", str(node), *copy])
    lines = next(thread.lines for thread in locality.threads if thread.name == "dd")
    assert lines[node] > 0.9 * sum(lines)
    waited = next(thread.stalled_ms for thread in locality.threads if thread.name == "dd")
    # 90 ns for a distance of 10; the file's node 2, at 30, is the guest's node 1.
    far = {1: 270, 2: 144}[node]
    assert 1e6 * waited / lines[node] == pytest.approx(far, rel=0.1)


def test_a_program_without_barriers_has_no_such_window(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text("int main(void) { return 0; }")
    run(["gcc", "-static", "-o", tmp_path / "program", source])
    with pytest.raises(UserError, match="no program or library that goes to the guest has a bar"):
        machine("ring-4", mode="timed").locality([tmp_path / "program"], window="barriers")


CHILDREN = """
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
char table[4 << 20] __attribute__((aligned(4096)));
int main(void)
{
	for (int left = 4; left--; wait(NULL)) {
		if (fork())
			continue;
		memset(table, 1, sizeof(table)); /* the kernel has fetched it */
		usleep(50000); /* the memory is looked at every 20 ms */
		memset(table, 2, sizeof(table));
		_exit(0);
	}
}
"""


def test_processes_that_follow_each_other_have_regions_of_their_own(tmp_path: Path) -> None:
    """Linux uses a task_struct again when its process has ended."""
    (tmp_path / "program.c").write_text(CHILDREN)
    run(["gcc", "-O1", "-o", tmp_path / "program", tmp_path / "program.c"])
    locality = machine("ring-2", mode="timed").locality([tmp_path / "program"])
    tables = [region for region in locality.places.regions if region.name == "table"]
    assert len({region.process for region in tables}) == len(tables) == 4
    for region in tables:
        assert [thread.pid for thread in region.threads] == [region.process]
        assert sum(region.pages) == 1024
        assert 65536 <= sum(region.lines) < 2 * 65536
