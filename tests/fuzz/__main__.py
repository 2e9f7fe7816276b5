"""`make fuzz`: the long run of every module of cases, or of those named; prints the figures.

A case that fails does not end the run: it is told at once, and the exit code is 1.
"""

import argparse
import sys
import time

from fuzz.runner import modules, run_cases


def main() -> int:
    """Run them; 1 when a case failed."""
    found = modules()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *found], help="all where none is named")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--cases", type=int, help="how many of each, instead of its own number")
    asked = parser.parse_args()
    failed = 0
    for name in asked.names or found:
        began = time.monotonic()
        count = asked.cases or found[name].CASES
        seeds = range(asked.seed, asked.seed + count)
        outcomes, failures = run_cases(name, found[name], seeds, tell=_tell)
        text = ", ".join(f"{number} {what}" for what, number in sorted(outcomes.items()))
        wall = time.monotonic() - began
        print(
            f"{name}: {count} cases, seeds {seeds[0]} to {seeds[-1]}, {wall:.0f} s, "
            f"{len(failures)} failed: {text}",
            flush=True,
        )
        failed += len(failures)
    return int(bool(failed))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
