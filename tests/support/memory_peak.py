"""Asks everything of results in a process of its own, and tells how much memory that took."""

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numalab.errors import LabError
from support import forked

MOST = 2 << 30
_ADDRESSES = 16 << 30  # ends a reader that goes wrong before the host is out of memory


def asked(results: Path, *questions: str, seconds: float = 500.0) -> dict[str, Any]:
    """Return the answers to these questions (none: all), and the most memory (`peak`, bytes)."""
    done = forked.run("support.memory_peak:main", str(results), *questions, seconds=seconds)
    assert done.returncode == 0, done.stderr[-3000:].decode("utf-8", "replace")
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def main() -> None:
    """Ask the questions in `sys.argv` of its path, and print the answers as JSON."""
    path, questions = Path(sys.argv[1]), sys.argv[2:]
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    asks = _questions()
    answers: dict[str, Any] = {name: _answer(asks[name], path) for name in questions or tuple(asks)}
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps(answers | {"peak": int(peak.split()[1]) << 10}))


def _answer(ask: Callable[[Path], object], path: Path) -> str:
    try:
        ask(path)
    except LabError as error:
        return str(error)
    return ""


def _questions() -> dict[str, Callable[[Path], object]]:
    from numalab.capture.decode import decode_trace  # noqa: PLC0415
    from numalab.report.build.study import gather  # noqa: PLC0415
    from numalab.report.formats.perfetto import PerfettoFormat  # noqa: PLC0415
    from numalab.results.layout import Results  # noqa: PLC0415
    from numalab.results.query import catalogue, query  # noqa: PLC0415
    from numalab.results.reader import (  # noqa: PLC0415
        load_all_events,
        load_domains,
        load_findings,
        load_runs,
        load_timeline,
    )
    from numalab.results.status import read_progress  # noqa: PLC0415

    def read(path: Path) -> None:
        for run in load_runs(Results(path))[1]:
            load_findings(run.directory)
            load_domains(run.directory)

    def timelines(path: Path) -> None:
        for run in load_runs(Results(path))[1]:
            load_timeline(run.directory, ())

    def events(path: Path) -> None:
        for run in Results(path).finished().values():
            load_all_events(run)

    def ask_sql(sql: str) -> Callable[[Path], object]:
        return lambda path: query([catalogue(Results(path))], sql)

    return {
        "trace": lambda path: decode_trace(path, None, path.with_suffix(".parquet")),
        "status": lambda path: read_progress(Results(path)),
        "read": read,
        "timelines": timelines,
        "events": events,
        "report": lambda path: gather(Results(path)),
        "perfetto": lambda path: PerfettoFormat().write(gather(Results(path)), Results(path)),
        "query runs": ask_sql("SELECT * FROM runs"),
        "query count": ask_sql("SELECT count(*) FROM events"),
        "query all": ask_sql("SELECT * FROM events ORDER BY time_ns"),
    }
