"""The names of the error reports in a kernel log."""

import pytest

from numalab.results.kernel_log import report_names


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "[    2.677514] WARNING: CPU: 2 PID: 1 at task_numa_work+0x620/0x930",
            "WARNING at task_numa_work()",
        ),
        (
            "[ 1.0][   T12] WARNING: CPU: 0 PID: 1 at kernel/sched/fair.c:12 pick.isra.0+0x6/0x9",
            "WARNING at pick()",
        ),
        (
            "[ 1.0] WARNING: CPU: 0 PID: 1 at kernel/sched/fair.c:12 pick.part.0.cold+0x6/0x9",
            "WARNING at pick()",
        ),
        (
            "[ 1.0] BUG: KASAN: slab-use-after-free in pick.constprop.0.isra.1+0x6/0x9",
            "BUG: KASAN: slab-use-after-free in pick+N/N",
        ),
        ("BUG: KCSAN: data-race in pick.llvm.17 / take.", "BUG: KCSAN: data-race in pick / take."),
        (
            "[ 2.0] WARNING: kernel/sched/fair.c:4711 at task_numa_work+0x62/0x93, CPU#1: hog/41",
            "WARNING at task_numa_work()",
        ),
        (
            "[ 2.0] WARNING: at task_numa_work+0x62/0x93, CPU#1: kworker/1:1/41",
            "WARNING at task_numa_work()",
        ),
        (
            "WARNING: possible circular locking dependency detected",
            "WARNING: possible circular locking dependency detected",
        ),
        (
            "<4>[   9.1] BUG: kernel NULL pointer dereference, address: 00000000000000a8",
            "BUG: kernel NULL pointer dereference, address: N",
        ),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", None),
        ("watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [hog:31]", None),
    ],
)
def test_a_report_has_a_name_without_numbers(line: str, name: str | None) -> None:
    (named,) = report_names(f"[1] all is well\n{line}\n{line}\n")
    assert name in (named, None)
    assert not any(char.isdecimal() for char in named)


def test_what_a_guest_prints_is_bounded() -> None:
    names = report_names("".join(f"BUG: {chr(97 + n) * 500}\x1b\n" for n in range(25)))
    assert len(names) == 20
    assert all(len(name) <= 120 and name.isprintable() for name in names)


def test_the_banner_of_trace_printk_is_no_report() -> None:
    """kernel/trace/trace.c prints it where a patch uses trace_printk() (6.12)."""
    banner = """
[    0.000000] **   NOTICE NOTICE NOTICE NOTICE NOTICE NOTICE NOTICE   **
[    0.000000] ** trace_printk() being used. Allocating extra memory.  **
[    0.000000] ** This means that this is a DEBUG kernel and it is     **
[    0.000000] ** unsafe for production use.                           **
[    0.000000] ** the kernel, report this immediately to your vendor!  **
"""
    assert report_names(banner) == ()
