"""`make fuzz`: runs hostile input of every kind, by its number of cases or for a given time.

A failure is printed at once with the command that repeats it, and does not end the run. The figures
of each target come last. Exits with 1 when a case failed, with 130 after Ctrl-C.
"""

import argparse
import math
import re
import sys
import time

from fuzz.campaign import Target, repeat_command, run_campaign
from fuzz.runner import missing, modules

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
MOST_SHOWN = 20  # failures of a target at the end; each was printed when it happened
EVERY = 30.0  # seconds between two lines of progress


def main() -> int:
    """Run the campaign that the command line asks for; return the exit code."""
    cases = modules()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *cases], help="the targets; all if none")
    parser.add_argument("--seed", type=int, default=1, help="of the first case of each target")
    parser.add_argument("--cases", type=int, help="of each target, instead of its own number")
    parser.add_argument("--time", type=_seconds, help="90s, 10m or 1h, shared by the targets")
    parser.add_argument("--jobs", type=int, default=1, help="cases at once, each in a process")
    options = parser.parse_args()
    bound = options.cases or (math.inf if options.time else 0)
    targets = []
    for name in dict.fromkeys(options.names or cases):
        if reason := missing(cases[name]):
            print(f"{name}: skipped: {reason}", flush=True)
            continue
        targets.append(Target(name, options.seed, bound or cases[name].CASES))
    progress = _Progress(targets)
    whole = run_campaign(targets, max(1, options.jobs), options.time, progress.tell)
    for target in targets:
        print(target.line())
        for seed, failure in sorted(target.failed.items())[:MOST_SHOWN]:
            text = "; ".join(failure.splitlines()[:2])
            print(f"  {text[:300]}\n    {repeat_command(target.name, seed)}")
    if not whole:
        print("interrupted")
        return 130
    return int(any(target.failed for target in targets))


class _Progress:
    """Prints failures at once, and a line on the state of all targets now and then."""

    def __init__(self, targets: list[Target]) -> None:
        self.targets, self.last = targets, time.monotonic()

    def tell(self, text: str) -> None:
        if text:
            print(text, file=sys.stderr, flush=True)
        if time.monotonic() - self.last < EVERY:
            return
        self.last = time.monotonic()
        counts = (f"{target.name} {target.cases}" for target in self.targets)
        failed = sum(len(target.failed) for target in self.targets)
        print(f"fuzz: {', '.join(counts)}; {failed} failed", file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([smh])", text)
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 10m or 1h")
    return int(match[1]) * UNITS[match[2]]


if __name__ == "__main__":
    sys.exit(main())
