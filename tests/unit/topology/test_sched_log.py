"""The scheduler's own log, as real kernels print it."""

from pathlib import Path

from numalab.topology.sched_domains import CpuDomains, SchedGroup, parse_sched_verbose

DATA = Path(__file__).parents[2] / "data" / "topology"


def test_a_real_ring_of_6_12() -> None:
    log = parse_sched_verbose((DATA / "ring-4-6.12.dmesg").read_text())
    assert [domains.cpu for domains in log.cpus] == list(range(8))
    assert log.errors == ()
    smallest, near, everything = log.cpus[2].domains
    assert (smallest.name, smallest.span, smallest.level) == ("MC", (2, 3), 0)
    assert (near.name, near.span) == ("NUMA", (0, 1, 2, 3, 4, 5))
    assert near.groups[0] == SchedGroup((2, 3), (2, 3), 2048)
    assert everything.groups == (
        SchedGroup((0, 1, 2, 3, 4, 5), (2, 3), 6144),
        SchedGroup((0, 1, 4, 5, 6, 7), (6, 7), 6144),
    )


def test_the_last_build_counts() -> None:
    log = parse_sched_verbose(
        "CPU0 attaching sched-domain(s):\n"
        " domain-0: span=0-1 level=MC\n"
        "  groups: 0:{ span=0 }, 1:{ span=1 }\n"
        "CPU0 attaching NULL sched-domain.\n"
        "CPU1 attaching NULL sched-domain.\n"
        "CPU0 attaching sched-domain(s):\n"
        " domain-0: span=0-3 level=PKG\n"
        "  groups: 0:{ span=0-1 cap=2048 }, 2:{ span=2-3 cap=2048 }\n"
    )
    assert log.cpus[0].domains[0].name == "PKG"
    assert len(log.cpus[0].domains[0].groups) == 2
    assert log.cpus[1] == CpuDomains(1, ())


def test_an_error_in_the_middle_of_a_list_is_kept_and_the_list_goes_on() -> None:
    log = parse_sched_verbose(
        "[    0.1][    T1] CPU1 attaching sched-domain(s):\n"
        "[    0.1][    T1]  domain-0: span=0-3 level=NUMA\n"
        "[    0.1][    T1]   groups: 0:{ span=0-1 cap=2048\n"
        "[    0.1][    T1] ERROR: domain->groups does not match domain->child\n"
        "[    0.1][    T1]  }, 2:{ span=2-3\n"
        "[    0.1][    T1]  mask=2 cap=2048 }\n"
        "[    0.1][    T1] something: else 3:{ span=9 }\n"
    )
    assert log.errors == ("ERROR: domain->groups does not match domain->child",)
    assert log.cpus[0].domains[0].groups == (
        SchedGroup((0, 1), (0, 1), 2048),
        SchedGroup((2, 3), (2,), 2048),
    )


def test_nonsense_from_a_guest_gives_no_domains() -> None:
    hostile = "CPU0 attaching sched-domain(s):\n domain-0: span=9-1,99999999 level=MC\n groups: x\n"
    log = parse_sched_verbose(hostile + "\x00\xff domain-1: span=" + "0" * 5000)
    assert log.cpus[0].domains[0].span == ()
    assert log.cpus[0].domains[0].groups == ()
    assert parse_sched_verbose("").cpus == ()
