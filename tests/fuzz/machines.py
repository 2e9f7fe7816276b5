"""Boots random machines and compares each with its prediction.

`python tests/fuzz/machines.py --kernel debian-6.12 --count 200` prints one line for each machine
that is not as predicted, and the figures at the end; `--log` keeps a line of JSON for each seed and
goes on where it ended. A seed always gives the same machine.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[1]))

from numalab.campaign.boot import boot, guest
from numalab.campaign.build import Builds, build
from numalab.errors import LabError
from numalab.guest.kvm import Choice
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import find_kernel
from numalab.topology.load import check_topology_file, load_topology_file
from support.random_machines import random_machine

Verdict = Literal["predicted", "refused", "differs", "failed"]


@dataclass(frozen=True)
class Tried:
    """What became of one machine; `why` is empty for one that was predicted."""

    seed: int
    kernel: str
    verdict: Verdict
    why: str
    seconds: float


def attempt(seed: int, kernel: KernelSpec, builds: Builds, folder: Path) -> Tried:
    """Check one machine, boot it, and compare it with its prediction."""
    file = folder / f"random-{seed}.toml"
    file.write_text(random_machine(seed))
    began = time.monotonic()

    def tried(verdict: Verdict, why: str = "") -> Tried:
        return Tried(seed, kernel.name, verdict, why, round(time.monotonic() - began, 1))

    if errors := check_topology_file(file):
        return tried("refused", str(errors[0]).removeprefix(f"{file}: "))
    try:
        machine = guest(load_topology_file(file), kernel.name, builds, Choice("tcg", "host", ""))
        booted = boot(machine, kernel, ("true",), allow_mismatch=True)
    except LabError as error:
        return tried("failed", f"{type(error).__name__}: {error}"[:2000])
    return tried("differs" if booted.differences else "predicted", "\n".join(booted.differences))


def main() -> int:
    """Try the machines; 1 when one was not as predicted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", default="debian-6.12")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--log", type=Path)
    words = parser.parse_args()
    kernel = find_kernel(words.kernel)
    builds = build([kernel], load_recipe("base"))
    results = _before(words.log)
    done = {result.seed for result in results}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(words.first, words.first + words.count):
            if seed in done:
                continue
            result = attempt(seed, kernel, builds, Path(folder))
            results.append(result)
            if result.verdict in ("differs", "failed"):
                print(f"seed {seed}, {kernel.name}: {result.verdict}: {result.why}", flush=True)
            if words.log:
                with words.log.open("a") as log:
                    log.write(json.dumps(asdict(result)) + "\n")
    figures = Counter(result.verdict for result in results)
    print(f"{kernel.name}: {len(results)} machines, " + _listed(figures))
    return int(bool(figures["differs"] or figures["failed"]))


def _before(log: Path | None) -> list[Tried]:
    if log is None or not log.exists():
        return []
    return [Tried(**json.loads(line)) for line in log.read_text().splitlines()]


def _listed(figures: Counter[Verdict]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(figures.items()))


if __name__ == "__main__":
    sys.exit(main())
