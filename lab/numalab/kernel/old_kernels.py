"""What kernels lack that numalab uses, by version. Pure."""

from numalab.kernel.config_fragment import version_numbers

# The first version that has it, the name of the feature, and what becomes of guests without it.
_FEATURES = (
    ((6, 12), "trace in reserved memory", "a lost guest takes its trace with it"),
    ((5, 18), "NUMA levels of nodes with CPUs only", "CPU-less nodes add levels of sched domains"),
    ((5, 13), "sched_verbose", "sched_debug prints the sched domains instead"),
    ((5, 13), "tunables below /sys/kernel/debug/sched", "they are below /proc/sys/kernel"),
    ((5, 10), "names of domain flags", "flags are compared by their numbers until 5.7"),
    ((5, 4), "erofs", "the image is mounted as ext4"),
    ((5, 2), "HMAT", "no latency and bandwidth between nodes in sysfs"),
    ((4, 15), "sched domain NODE", "the prediction leaves it out"),
    (
        (4, 13),
        "sched groups of each CPU",
        "all CPUs have the same ones; no balance masks in the log",
    ),
)
# The series with which kernels before 6.5 run in mode icount, and the subject of its patch.
PAUSES = "relax-at-bring-up"
PAUSE = "x86/smpboot: Pause while waiting for a CPU that comes up"
_PARALLEL = (6, 5)


def lacking(release: str, *, pauses: bool = False) -> tuple[str, ...]:
    """Return a line for each feature that the kernel `release` lacks, the newest first.

    `pauses` tells whether it has the patch of the series `PAUSES`. An unknown release lacks
    nothing.
    """
    try:
        version = version_numbers(release)
    except ValueError:
        return ()
    lines = [f"{name} ({since[0]}.{since[1]}): {effect}" for since, name, effect in _FEATURES
             if version < since]  # fmt: skip
    if version < _PARALLEL and not pauses:
        lines.insert(0, f"bring-up of CPUs in mode icount (6.5): add the series {PAUSES}")
    return tuple(lines)
