"""The loop of build_sched_domains(): who gets which domains, and which of them are dropped."""

from dataclasses import replace

from numalab.topology.predict.domains import (
    BASE_FLAGS,
    Domain,
    Group,
    Level,
    attached_domains,
    build_domains,
    set_numa_imbalance,
)
from numalab.topology.predict.rules import rules_for

LLC = "SD_SHARE_LLC"
RULES = rules_for("6.12")


def level(name: str, *masks: int, flags: frozenset[str] = frozenset()) -> Level:
    return Level(name, masks, flags, overlaps=False)


MC = level("MC", 0b0011, 0b0011, 0b1100, 0b1100, flags=frozenset({LLC}))
ALL = level("NUMA", *[0b1111] * 4, flags=frozenset({"SD_NUMA"}))


def test_each_cpu_has_a_domain_at_each_level_up_to_the_one_that_spans_all() -> None:
    tree = build_domains(4, (MC, ALL, replace(ALL, name="never")), RULES)
    assert [sorted(cpus) for cpus in tree.by_level] == [[0, 1, 2, 3], [0, 1, 2, 3], []]
    assert [domain.span for domain in tree.lowest] == [0b0011, 0b0011, 0b1100, 0b1100]
    top = tree.lowest[2].parent
    assert top is not None
    assert (top.child, top.parent, top.span) == (tree.lowest[2], None, 0b1111)
    assert tree.broken == ()


def test_a_level_that_does_not_hold_the_one_below_is_enlarged_and_named() -> None:
    """`BUG: arch topology borken`: CPU 1's package lacks CPU 0, with which it shares a cache."""
    package = level("PKG", 0b0001, 0b0010, 0b1100, 0b1100)
    tree = build_domains(4, (MC, package, ALL), RULES)
    assert tree.broken == ("MC is not a subset of PKG",)
    assert tree.by_level[1][1].span == 0b0011


def test_what_a_numa_level_balances_depends_on_how_far_it_is() -> None:
    far = replace(ALL, flags=frozenset({"SD_NUMA", "far"}), overlaps=True)
    near_flags = build_domains(4, (MC, ALL), RULES).by_level[1][0].flags
    far_flags = build_domains(4, (MC, far), RULES).by_level[1][0].flags
    assert near_flags == BASE_FLAGS - {"SD_PREFER_SIBLING"} | {"SD_NUMA", "SD_SERIALIZE"}
    assert near_flags - far_flags == {"SD_BALANCE_EXEC", "SD_BALANCE_FORK", "SD_WAKE_AFFINE"}
    assert far_flags - near_flags == {"SD_OVERLAP"}


def grouped(domain: Domain, *spans: int) -> Domain:
    domain.groups = [Group(span, span) for span in spans]
    return domain


def test_a_domain_of_one_cpu_or_like_its_child_is_dropped() -> None:
    """And what it had to say about siblings goes to the child."""
    smt = level("SMT", 0b01, 0b10)
    both = level("MC", 0b11, 0b11, flags=frozenset({LLC}))
    package = level("PKG", 0b11, 0b11)
    (lowest, _) = build_domains(2, (smt, replace(both, flags=both.flags), package), RULES).lowest
    assert lowest.parent is not None
    grouped(lowest, 0b01)
    grouped(lowest.parent, 0b01, 0b10)
    assert [domain.name for domain in attached_domains(lowest, RULES)] == ["MC"]


def test_the_imbalance_that_numa_allows_is_an_eighth_of_a_node_with_one_cache() -> None:
    node = 0xFFFF  # 16 CPUs that share one cache, of 32
    mc = level("MC", *[node] * 16, *[node << 16] * 16, flags=frozenset({LLC}))
    package = replace(mc, name="PKG", flags=frozenset())
    numa = level("NUMA", *[(1 << 32) - 1] * 32, flags=frozenset({"SD_NUMA"}))
    tree = build_domains(32, (mc, package, numa), RULES)
    set_numa_imbalance(tree, LLC)
    assert [tree.by_level[place][0].imb_numa_nr for place in range(3)] == [0, 2, 2]
