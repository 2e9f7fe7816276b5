from dataclasses import replace

import pytest

from numalab.report.document import SchedDomains
from numalab.report.page.cell_page import render_html
from numalab.report.page.groups import all_domain_rows, domain_text, has_flags, last_domain_rows
from numalab.topology.sched_domains import CpuDomains, SchedDomain, SchedGroup
from support.report_sample import sample_report


def test_the_last_domain_of_each_nodes_first_cpu_is_shown() -> None:
    rows = last_domain_rows(sample_report())
    assert [(row.cpus, row.node, row.level) for row in rows] == [
        ((0,), 0, 2),
        ((2,), 1, 2),
        ((4,), 2, 2),
        ((6,), 3, 2),
    ]


def test_nodes_1_and_3_differ_and_nodes_0_and_2_do_not() -> None:
    assert [row.differs for row in last_domain_rows(sample_report())] == [
        "",
        "groups",
        "",
        "groups",
    ]


def test_groups_name_their_nodes_and_where_the_mask_is_smaller() -> None:
    row = last_domain_rows(sample_report())[1]
    before, after = row.variants
    assert before is not None
    assert after is not None
    assert [group.nodes for group in before.groups] == [(0, 1, 3), (1, 2, 3)]
    assert [group.nodes for group in after.groups] == [(0, 1, 2), (0, 2, 3)]
    assert [(group.cpus, group.mask) for group in after.groups] == [
        ("0-5", "2-3"),
        ("0-1,4-7", "6-7"),
    ]
    assert domain_text(after) == "{0-5} {0-1,4-7}"
    assert domain_text(None) == "none"


def test_the_order_of_groups_alone_is_no_difference() -> None:
    report = sample_report()
    after = report.sched_domains[1]
    first = after.cpus[0]
    turned = replace(first.domains[2], groups=first.domains[2].groups[::-1])
    cpus = (replace(first, domains=(*first.domains[:2], turned)), *after.cpus[1:])
    report = replace(report, sched_domains=(after, replace(after, cpus=cpus)))
    assert not any(row.differs for row in all_domain_rows(report))


def test_masks_that_differ_alone_are_told_apart_from_groups() -> None:
    report = sample_report()
    after = report.sched_domains[1]
    first = after.cpus[0]
    whole = tuple(replace(group, mask=group.span) for group in first.domains[2].groups)
    cpus = (
        replace(first, domains=(*first.domains[:2], replace(first.domains[2], groups=whole))),
        *after.cpus[1:],
    )
    report = replace(report, sched_domains=(after, replace(after, cpus=cpus)))
    assert last_domain_rows(report)[0].differs == "masks"
    assert last_domain_rows(report)[1].differs == ""


@pytest.mark.parametrize(
    ("flags", "differs", "texts"),
    [
        (("SD_NUMA", "SD_OVERLAP"), "flags", ["{0-5} {0-1,4-7}", "{0-5} {0-1,4-7} SD_OVERLAP"]),
        (("SD_NUMA",), "", ["{0-5} {0-1,4-7}", "{0-5} {0-1,4-7}"]),
        ((), "", ["{0-5} {0-1,4-7}", "{0-5} {0-1,4-7}"]),
    ],
)
def test_flags_are_compared_where_all_are_known(
    flags: tuple[str, ...], differs: str, texts: list[str]
) -> None:
    report = sample_report()

    def flagged(flags: tuple[str, ...]) -> SchedDomains:
        variant = report.sched_domains[1]
        cpus = (
            replace(cpu, domains=tuple(replace(item, flags=flags) for item in cpu.domains))
            for cpu in variant.cpus
        )
        return replace(variant, cpus=tuple(cpus))

    report = replace(report, sched_domains=(flagged(("SD_NUMA",)), flagged(flags)))
    row = last_domain_rows(report)[1]
    assert (row.differs, [domain_text(domain) for domain in row.variants]) == (differs, texts)
    page = render_html(report)
    assert (
        has_flags(report)
        is ("Flags are not compared: they are not known" not in page)
        is bool(flags)
    )
    count = len([row for row in all_domain_rows(report) if row.differs == "flags"])
    assert (f", {count} with other flags)" in page) is bool(flags)
    assert ("<td>flags only</td>" in page) is (differs == "flags")


def test_a_domain_that_one_kernel_lacks_is_a_difference() -> None:
    report = sample_report()
    before = report.sched_domains[0]
    cpus = (replace(before.cpus[0], domains=before.cpus[0].domains[:1]), *before.cpus[1:])
    report = replace(report, sched_domains=(replace(before, cpus=cpus), before))
    differing = [(row.cpus, row.level) for row in all_domain_rows(report) if row.differs]
    assert differing == [((0,), 1), ((0,), 2)]
    assert last_domain_rows(report)[0].variants[0] is None


def test_every_cpu_and_domain_is_listed_and_equal_ones_share_a_row() -> None:
    rows = all_domain_rows(sample_report())
    levels = sorted((cpu, row.level) for row in rows for cpu in row.cpus)
    assert levels == [(cpu, level) for cpu in range(8) for level in range(3)]
    assert [(row.cpus, row.level) for row in rows if row.node == 1] == [
        ((2,), 0),
        ((3,), 0),
        ((2, 3), 1),
        ((2, 3), 2),
    ]


def test_many_groups_of_one_cpu_are_counted() -> None:
    report = sample_report()
    groups = tuple(SchedGroup((cpu,), (cpu,), 1024) for cpu in range(8))
    domain = SchedDomain(0, "MC", tuple(range(8)), (), groups)
    domains = (SchedDomains("before", (CpuDomains(0, (domain,)),)),)
    shown = all_domain_rows(replace(report, sched_domains=domains))[0].variants[0]
    assert domain_text(shown) == "8 groups of one CPU"


def test_a_report_without_domains_has_no_rows() -> None:
    report = replace(sample_report(), sched_domains=())
    assert last_domain_rows(report) == []
    assert all_domain_rows(report) == []
