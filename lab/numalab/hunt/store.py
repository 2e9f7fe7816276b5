"""What has been examined, on disk: nothing is booted twice, and a hunt goes on where it stopped."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from numalab.files import bound_json, make_dir, read_regular, write_text
from numalab.hunt.case import Case
from numalab.hunt.examine import WORKLOAD, HuntBench
from numalab.hunt.finding import EXAMINED, Examined

# Goes up when the same boot would be judged otherwise: what was stored is then examined again.
_JUDGEMENT = "13"
_LARGEST, _MOST_VALUES = 16 << 20, 200_000


@dataclass(frozen=True)
class Store:
    """A folder with a file for each boot, named by all that decides what comes of it."""

    path: Path

    def find(self, case: Case, bench: HuntBench, seed: int) -> Examined | None:
        """Return what came of a boot, None where it was not done, or this host failed at it."""
        try:
            path = self._file(case, bench, seed)
            data = bound_json(read_regular(path, _LARGEST, follow=False), _MOST_VALUES)
            stored = EXAMINED.validate_json(data)
        except (OSError, ValueError):
            return None
        return None if stored.error else stored

    def keep(self, case: Case, bench: HuntBench, seed: int, examined: Examined) -> None:
        """Keep what came of a boot, and beside it what was booted."""
        path = self._file(case, bench, seed)
        make_dir(path.parent)
        write_text(path.with_suffix(".case"), case.text)
        write_text(path, EXAMINED.dump_json(examined, indent=1).decode() + "\n")

    def _file(self, case: Case, bench: HuntBench, seed: int) -> Path:
        kernel = bench.builds.kernels[bench.kernel.name].digest
        files = bench.builds.files[WORKLOAD]
        driver = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()
        emulator = bench.choice.emulator.digest if bench.choice.emulator else ""
        key = case.key(kernel, driver, bench.choice.mode, emulator, str(seed), _JUDGEMENT)
        return self.path / "examined" / bench.kernel.name.replace("/", "_") / f"{key}.json"
