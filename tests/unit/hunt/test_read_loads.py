"""How a recording is cut into its loads."""

import polars as pl

from numalab.hunt.recording import MS, read_loads
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
