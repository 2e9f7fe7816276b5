import pytest

from numalab.kernel.old_kernels import lacking


@pytest.mark.parametrize(
    ("release", "pauses", "count", "has"),
    [
        ("4.12.0", False, 10, "sched groups of each CPU (4.13): all CPUs have the same ones"),
        ("4.12.0", True, 9, "erofs (5.4): the image is mounted as ext4"),
        ("4.14.336", True, 8, "sched domain NODE (4.15): the prediction leaves it out"),
        (
            "5.5.0-rc5",
            True,
            5,
            "tunables below /sys/kernel/debug/sched (5.13): they are below",
        ),
        ("5.10.223", False, 5, "bring-up of CPUs in mode icount (6.5): add the series relax-at"),
        ("6.1.192", True, 1, "trace in reserved memory (6.12)"),
    ],
)
def test_what_an_old_kernel_lacks(release: str, pauses: bool, count: int, has: str) -> None:
    lines = lacking(release, pauses=pauses)
    assert len(lines) == count
    assert any(line.startswith(has) for line in lines), lines


@pytest.mark.parametrize("release", ["6.12.117", "7.3.4", "unknown"])
def test_a_new_kernel_lacks_nothing(release: str) -> None:
    assert lacking(release) == ()
