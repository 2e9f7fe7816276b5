"""Runs inside the test bed's host: its nodes, distances and CPUs as sysfs has them.

It shares no code with numalab, whose `host show` is compared with it. Prints one JSON object.
"""

import json
import re
from pathlib import Path

_SYSTEM = Path("/sys/devices/system")


def cpus(text: str) -> list[int]:
    """Expand `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def main() -> None:
    nodes = []
    for place in sorted(_SYSTEM.glob("node/node*"), key=lambda path: int(path.name[4:])):
        match = re.search(r"MemTotal:\s+(\d+) kB", (place / "meminfo").read_text())
        nodes.append(
            {
                "id": int(place.name[4:]),
                "cpus": cpus((place / "cpulist").read_text()),
                "memory_mib": int(match[1]) // 1024 if match else 0,
                "distances": [int(word) for word in (place / "distance").read_text().split()],
            }
        )
    isolated = cpus((_SYSTEM / "cpu/isolated").read_text())
    print(json.dumps({"nodes": nodes, "isolated": isolated}))


if __name__ == "__main__":
    main()
