"""How a recording is cut into its loads."""

import polars as pl

from numalab.hunt.recording import MS, read_loads
from support.small_traces import Trace
from unit.hunt.recordings import recording


def test_a_load_that_did_not_start_leaves_nothing_to_the_next_one() -> None:
    marked = ((1, "0 begin"), (500, "0 end"), (600, "0 over"), (900, "1 over"), (950, "2 begin"),
              (1900, "2 end"))  # fmt: skip
    rows = [(at * MS, "print", 0, f"hunt: load {text}\n") for at, text in marked]
    events = pl.DataFrame(rows, schema=["time_ns", "event", "cpu", "buf"], orient="row")
    written = recording("time ms=1000;hog n=2 cpus=0", [])
    first, last = read_loads(events, "", written.topology, (written.load,) * 3)
    assert (first.number, last.number) == (0, 2)
    assert last.table.lazy().collect()["time_ns"].min() == 900 * MS


def test_a_cpu_that_is_off_line_is_not_idle(trace: Trace) -> None:
    events = trace.table(
        trace.mark(0, "hunt: load 0 begin"),
        trace.wakeup(100 * MS, "migration/1:9", 1),
        trace.switch(100 * MS, 1, "idle", "migration/1:9"),
        trace.wakeup(400 * MS, "migration/1:9", 1),
        trace.switch(400 * MS, 1, "idle", "migration/1:9"),
        trace.switch(401 * MS, 1, "migration/1:9", "idle", trace.sleeps),
        trace.mark(1000 * MS, "hunt: load 0 end"),
    )
    written = recording("time ms=1000;hog n=2 cpus=0", [])
    (run,) = read_loads(events, "", written.topology, (written.load,))
    start, end = run.idle[1]
    assert (start.tolist(), end.tolist()) == ([0, 401 * MS], [100 * MS, 1000 * MS])
