"""`make fuzz`: the long run of every module of cases, or of those named; prints the figures."""

import argparse
import time

from fuzz.runner import modules, run_cases


def main() -> None:
    """Run them."""
    found = modules()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *found], help="all where none is named")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--cases", type=int, help="how many of each, instead of its own number")
    asked = parser.parse_args()
    for name in asked.names or found:
        began = time.monotonic()
        count = asked.cases or found[name].CASES
        outcomes = run_cases(name, found[name], range(asked.seed, asked.seed + count))
        text = ", ".join(f"{number} {what}" for what, number in sorted(outcomes.items()))
        print(f"{name}: {count} cases in {time.monotonic() - began:.0f} s: {text}", flush=True)


if __name__ == "__main__":
    main()
