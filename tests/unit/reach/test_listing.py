"""What binutils print of an object, compared with the object itself."""

import re
from pathlib import Path

from numalab.process import run
from numalab.reach.listing import parse_members

SOURCE = """
#include <stddef.h>
#include <stdio.h>
struct inner { int a; long b; };
struct rq {
	char lock; unsigned nr_running;
	struct { int unnamed; };
	struct inner cfs; unsigned few : 3; unsigned more : 5; short list[9]; int (*call)(struct rq *);
};
struct rq_flags { long flags; };
int main(void)
{
	struct rq_flags flags = {0};
	struct rq queue = {0};
#define SHOW(member) printf("%zu " #member "\\n", offsetof(struct rq, member))
	SHOW(lock); SHOW(nr_running); SHOW(cfs); SHOW(list); SHOW(call);
	return flags.flags + queue.lock;
}
"""


def test_members_have_the_offsets_of_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    for version in (4, 5):
        run(["gcc", f"-gdwarf-{version}", "-o", tmp_path / "a", tmp_path / "a.c"])
        shown = run(["readelf", "--debug-dump=info", "--wide", tmp_path / "a"]).stdout
        members = parse_members(shown, "rq")
        printed = re.findall(r"(\d+) (\w+)", run([tmp_path / "a"]).stdout)
        assert {int(offset): name for offset, name in printed}.items() <= members.items()
        assert sorted(set(members.values()) - {name for _, name in printed}) == ["few"]
        assert parse_members(shown, "rq_flags") == {0: "flags"}
        assert parse_members(shown, "absent") == {}
