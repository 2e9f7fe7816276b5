"""Where the results of a study lie on disk.

A result is `reports/<study>/<id>/`, with one folder a run under `runs/`. A run is written in
`runs/<run>.running/` and renamed when it is whole, so what has its final name is never half done.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from numalab.errors import UserError
from numalab.results.stored import is_plain
from numalab.run_dir import FileIn, RunDir, places_in


@dataclass(frozen=True)
class Results:
    """The files of one execution of a study; the report of one of several cells has some of them
    below `cells/`."""

    path: Path

    plan = FileIn("plan.json")
    """The study as loaded and the list of runs, JSON."""
    compact = FileIn("compact.parquet")
    """The compact form, instead of plan and runs: all manifests and measures, Parquet."""
    html = FileIn("index.html")
    """The report for a browser."""
    changelog = FileIn("changelog.txt")
    """The report for a mail or a commit message."""
    verdict = FileIn("verdict.txt")
    """The verdict of `numalab patch`, which reports show first."""
    reach_page = FileIn("reach.html")
    """The patch with the executions of each line in a mean run."""
    reach = FileIn("reach.json")
    """The executions of changed lines, JSON."""
    hunt_reach = FileIn("hunt-reach.json")
    """The executions of changed lines in the hunt of `numalab patch`, JSON."""
    all_reach = FileIn("all-reach.json")
    """The executions of changed lines in all runs and the hunt, JSON; of compact results."""
    reach_lcov = FileIn("reach.info")
    """The executions of changed lines in a mean run, rounded up, for lcov."""
    document = FileIn("report.json")
    """The report for programs."""
    picture = FileIn("picture.png")
    """The report's picture, for a README or slides."""
    # Named anew when other values are in them than in those of an older numalab.
    runs_table = FileIn(".catalogue/runs-2.parquet")
    """The catalogue of the runs, Parquet."""
    measures_table = FileIn(".catalogue/measures-2.parquet")
    """The catalogue of all measures of all runs, Parquet."""
    cells = FileIn("cells")
    """Where the reports of several cells are."""

    @property
    def is_compact(self) -> bool:
        """Whether these results have the compact form only."""
        return not self.plan.exists() and self.compact.exists()

    @property
    def plan_file(self) -> Path:
        """The file that holds the plan."""
        return self.compact if self.is_compact else self.plan

    @property
    def exist(self) -> bool:
        """Whether there are results, whole or compact."""
        return self.plan.exists() or self.compact.exists()

    def cell(self, name: str) -> "Results":
        """Return the folder for the report of one of several cells."""
        return Results(self.cells / _plain(name))

    def run(self, run_id: str) -> RunDir:
        """Return the folder of a finished run."""
        return self._run(run_id, "")

    def running(self, run_id: str) -> RunDir:
        """Return the folder of a run that has not ended."""
        return self._run(run_id, ".running")

    def failed(self, run_id: str) -> RunDir:
        """Return the folder of what a run left that gave no result."""
        return self._run(run_id, ".failed")

    def interrupted(self, run_id: str) -> RunDir:
        """Return the folder of what a run left that was ended from outside."""
        return self._run(run_id, ".interrupted")

    def _run(self, run_id: str, state: str) -> RunDir:
        return RunDir(self.path / "runs" / f"{_plain(run_id)}{state}")

    def finished(self) -> Mapping[str, RunDir]:
        """Return the runs that have a manifest, by id, in order of their names.

        Raises OSError for a folder that may not be read, which `glob` would take for an empty one.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            folders = [RunDir(path) for path in sorted(no_link(self.path / "runs").iterdir())]
            return {
                folder.path.name: folder
                for folder in folders
                if is_plain(folder.path.name) and folder.manifest.exists()
            }
        return {}


def each_once(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return each folder once, of its paths the one with the fewest symbolic links."""
    places: dict[str, Path] = {}
    for path in paths:
        place = os.path.realpath(path)
        places[place] = min(places.get(place, path), path, key=_links)
    return tuple(places.values())


def _links(path: Path) -> int:
    return sum(part.is_symlink() for part in (path, *path.parents))


def newest_first(folder: Path) -> list[Results]:
    """Return the results in a folder that are not compact: the last ones to start runs come first,
    whatever their names."""
    began: list[tuple[int, Path]] = []
    for plan in folder.glob("*/plan.json"):
        with suppress(OSError):  # removed meanwhile
            began.append((plan.stat().st_mtime_ns, plan.parent))
    return [Results(path) for _, path in sorted(began, reverse=True)]


def has_ended(results: Results, run_id: str) -> bool:
    """Return whether a run finished or failed; one that was ended from outside did neither."""
    folders = (results.run(run_id).manifest, results.failed(run_id).path)
    return any(path.exists() for path in folders)


def is_of_results(path: PurePath) -> bool:
    """Return whether a file that numalab writes is at this place in a folder of results.

    Below `out` of a run, the guest names the files, and below `hunt` of a patch the hunt does.
    """
    match path.parts:
        case ("runs", _, "out", _, *_) | ("hunt", _, *_):
            return True
        case ("runs", _, name):
            return name in places_in(RunDir)
        case ("cells", _, name):
            return name in places_in(Results)
    return str(path) in places_in(Results)


def is_of_unfinished(path: PurePath) -> bool:
    """Return whether a file of results is the manifest or the reach of a run that ended without a
    result."""
    match path.parts:
        case ("runs", folder, "manifest.json" | "reach.json"):
            name, _, how = folder.rpartition(".")
            return is_plain(name) and how in ("failed", "interrupted")
    return False


def require_no_result(path: Path, option: str) -> None:
    """Raise UserError for a file to write that numalab has in a folder of results."""
    place = Path(os.path.realpath(path.parent), path.name)
    for folder in place.parents:
        if Results(folder).exist and is_of_results(place.relative_to(folder)):
            reason = f"{option} names a file of results, which is not overwritten; name another"
            raise UserError(reason, file=path)


def no_link(path: Path) -> Path:
    """Return a folder of results. Raises UserError for a symbolic link: it leads elsewhere."""
    if path.is_symlink():
        raise UserError("is a link, and a folder of results is never one", file=path)
    return path


def _plain(name: str) -> str:
    """Let only plain names into a path. Raises UserError."""
    if not is_plain(name):
        raise UserError(f"{name[:80]!r} is not a plain name")
    return name
