"""How long the report of a large study takes, its memory, and when its page can be used.

`python tests/bench/report.py FOLDER` reports the results in FOLDER, in a process of its own.
"""

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl

from numalab.places import project_dir
from numalab.results.layout import Results
from numalab.run_dir import RunDir

EXAMPLE = project_dir() / "reports" / "examples" / "group-construction"
SEEDS = 15  # of each of two variants
EVENTS = 1_000_000  # of all runs
LIMIT_SECONDS, LIMIT_MIB, LIMIT_READY = 20.0, 1024, 2.0


def make_results(folder: Path) -> Results:
    """Make the results of 30 runs of the example study, with a million events."""
    shutil.copytree(EXAMPLE, folder)
    results = Results(folder)
    plan = json.loads(results.plan.read_text("utf-8"))
    planned = []
    for variant in ("before", "after"):
        (first,) = (run for run in plan["runs"] if (run["variant"], run["seed"]) == (variant, 1))
        source = results.run(first["id"])
        _enlarge(source, EVENTS // (2 * SEEDS))
        for seed in range(1, SEEDS + 1):
            name = f"{first['id'].rpartition('_')[0]}_{seed}"
            planned.append({**first, "id": name, "seed": seed})
            if seed > 1:
                shutil.rmtree(results.run(name).path, ignore_errors=True)
                shutil.copytree(source.path, results.run(name).path)
                manifest = json.loads(source.manifest.read_text("utf-8"))
                results.run(name).manifest.write_text(
                    json.dumps({**manifest, "run": name, "seed": seed}), "utf-8"
                )
    results.plan.write_text(json.dumps({**plan, "runs": planned}), "utf-8")
    return results


def _enlarge(run: RunDir, events: int) -> None:
    """Play what happens between the marks of a run again and again, faster each time."""
    table = pl.read_parquet(run.events).sort("time_ns")
    inner = table.filter(pl.col("event") != "print")
    begin, end = inner["time_ns"].min(), inner["time_ns"].max()
    assert isinstance(begin, int)
    assert isinstance(end, int)
    times = -(-events // len(inner))
    step = (end - begin) // times
    played = [
        inner.with_columns(time_ns=begin + turn * step + (pl.col("time_ns") - begin) // times)
        for turn in range(times)
    ]
    marks = table.filter(pl.col("event") == "print")
    pl.concat([marks, *played]).sort("time_ns").write_parquet(run.events)


def measure(folder: Path) -> tuple[float, float]:
    """Report results in a process of its own; return seconds and the most MiB it had."""
    done = subprocess.run(
        [sys.executable, __file__, folder], check=True, capture_output=True, text=True
    )
    seconds, mib = json.loads(done.stdout)
    return seconds, mib


def ready(page: Path) -> float | None:
    """Return the seconds until a page can be used in Chromium; None where there is none."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    chromium = Path("/usr/bin/chromium")
    if not chromium.exists():
        return None
    with sync_playwright() as playwright:
        flags = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        tab = browser.new_page()
        began = time.monotonic()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        seconds = time.monotonic() - began
        browser.close()
    return seconds


def _report(folder: Path) -> None:
    from numalab.report.build.publish import publish  # noqa: PLC0415
    from numalab.report.build.study import gather  # noqa: PLC0415 - its import counts as well

    began = time.monotonic()
    results = Results(folder)
    publish(gather(results), results)
    seconds = time.monotonic() - began
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


if __name__ == "__main__":
    _report(Path(sys.argv[1]))
