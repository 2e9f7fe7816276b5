"""Differences between kernel versions in how they build sched domains.

The versions are mainline releases; stable releases with the same change are named where known.
"""

import re
from dataclasses import dataclass

from numalab.errors import UserError

RECLAIM_DISTANCE = 30  # include/linux/topology.h
ZEN_RECLAIM_DISTANCE = 32  # init_amd_zen_common(), arch/x86/kernel/cpu/amd.c (a55c7454a8c8)

# include/linux/sched/sd_flags.h, in the order of their bits (and of their names in debugfs).
FLAG_ORDER = (
    "SD_BALANCE_NEWIDLE",
    "SD_BALANCE_EXEC",
    "SD_BALANCE_FORK",
    "SD_BALANCE_WAKE",
    "SD_WAKE_AFFINE",
    "SD_ASYM_CPUCAPACITY",
    "SD_ASYM_CPUCAPACITY_FULL",
    "SD_SHARE_CPUCAPACITY",
    "SD_CLUSTER",
    "SD_SHARE_LLC",
    "SD_SERIALIZE",
    "SD_ASYM_PACKING",
    "SD_PREFER_SIBLING",
    "SD_OVERLAP",
    "SD_NUMA",
)


# The series whose predictions were compared with real boots.
SERIES = ("4.12", "5.10", "6.1", "6.12", "7.0", "7.2", "7.3")
OLDEST = (4, 4)
# The last release of each major version: 5.19 was followed by 6.0. 7.3 is the newest known one.
LAST_OF_MAJOR = {4: 20, 5: 19, 6: 19, 7: 3}
NEWEST = max(LAST_OF_MAJOR.items())
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,4})(?:\.([0-9]{1,4})(?![0-9])|(?![0-9.]))")
# Stable releases in which rules change: of a series, the release.
_CHANGED_IN_STABLE = {(6, 12): 48}


@dataclass(frozen=True)
class KernelRules:
    """The rules of a kernel version for sched domains.

    - `version`: the requested version, without the suffix of a distribution.
    - `series`: the series of these rules.
    - `remark`: a sentence about the series where `version` is not known, else empty.
    - `own_groups`: each CPU has its own sched groups since 4.13; before, all have the same ones.
      The log has their balance masks since then.
    - `node_level`: the level NODE exists since 4.15 (051f3ca02e46).
    - `type_counts_local`: from 4.15 to 4.18 the local distance counts where the NUMA type is
      chosen (`sched_domains_numa_levels <= 1`), so that nodes that are all equally far are a
      backplane. By the sources of 4.15-rc8, 4.16.13, 4.18.0 and 4.19.1; later stable
      releases of 4.18 were not read, and no boot was compared.
    - `all_prefer_siblings`: every domain inside a node has SD_PREFER_SIBLING since 4.20
      (9c63e84db29b); before, those whose CPUs share a cache but no core do not.
    - `zen_reclaim`: Zen CPUs have their own reclaim distance since 5.4 (a55c7454a8c8).
    - `flag_masks`: all flags but SD_WAKE_AFFINE need groups, and the log has errors of flags, since
      5.10.
    - `all_distances`: levels come from the distances of all nodes since 5.12 (620a6dc40754), and
      in 5.10 stable; before, from those of node 0 and larger ones.
    - `package_level`: the level of a whole package, DIE, or PKG since 6.7 (f577cd57bfaa).
    - `llc_flag`: SD_SHARE_PKG_RESOURCES, or SD_SHARE_LLC since 6.9 (54de442747037).
    - `cluster_level`: x86 has the level CLS since 5.16 (66558b730f25).
    - `cluster_flag`: SD_CLUSTER exists since 6.7 (b95303e0aeaf).
    - `only_nodes_with_cpus`: NUMA levels come from nodes with CPUs since 5.18 (0fb3978b0aac);
      before, from all nodes.
    - `descended_sibling`: `find_descended_sibling()` exists since 5.13 (585b6d2723dc).
    - `imbalance`: `imb_numa_nr` exists since 5.18 (e496132ebedd), and is predicted with its 12.5 %
      rule for nodes with one last-level cache, since 6.0 (026b98a93bbd).
    - `amd_threads`: AMD CPUs without TOPOEXT have threads since 6.17, and in stable since 6.12.48
      (x86/cpu/topology: Always try cpu_parse_topology_ext() on AMD/Hygon); before, each thread is
      taken for a core.
    - `first_threads_first`: the first thread of every core comes up before the others since 6.5
      (`cpuhp_bringup_cpus_parallel()`).
    - `nodes_per_package`: how many nodes a package has is worked out from the SRAT and the number
      of packages since 7.0 (ae6730ff42b3, 717b64d58cff; stable took it into 6.19 in March 2026,
      which these rules ignore); before, some package has to hold CPUs of several nodes.
    - `averaged_distances`: arch_sched_node_distance() exists since 6.19 (06f2c90885e9). It changes
      guests of hosts with Granite Rapids or Clearwater Forest CPUs only, and is not predicted:
      the vendor of a CPU does not tell its model.
    - `overlap_flag`: SD_OVERLAP exists; since 7.2 SD_NUMA replaces it.
    """

    version: str
    series: str
    remark: str
    own_groups: bool
    node_level: bool
    type_counts_local: bool
    all_prefer_siblings: bool
    zen_reclaim: bool
    flag_masks: bool
    all_distances: bool
    package_level: str
    llc_flag: str
    cluster_level: bool
    cluster_flag: bool
    only_nodes_with_cpus: bool
    descended_sibling: bool
    imbalance: bool
    amd_threads: bool
    first_threads_first: bool
    nodes_per_package: bool
    averaged_distances: bool
    overlap_flag: bool


def rules_for(version: str) -> KernelRules:
    """Return the rules of a kernel version such as `6.12`, `6.12.117-numalab` or `7.1`.

    A version without a third number is the newest of its series. An unknown version has the rules
    of the newest known version before it, with a remark, so that new kernels can be booted. Raises
    UserError for a text that is not a version, and for a kernel before 4.4.
    """
    match = _VERSION.match(version)
    if match is None:
        raise UserError(f"not a kernel version, such as 6.12: {version[:40]!r}")
    requested = (int(match[1]), int(match[2]))
    if requested < OLDEST:
        raise UserError(f"kernel {version[:40]} is older than 4.4, the oldest that is predicted")
    series = _nearest(requested)
    stable = 1 << 16 if match[3] is None or series != requested else int(match[3])
    return KernelRules(
        version=_with_release(match[0], series) if series == requested else match[0],
        series=_text(series),
        remark=_remark(match[0], requested, series),
        own_groups=series >= (4, 13),
        node_level=series >= (4, 15),
        type_counts_local=(4, 15) <= series < (4, 19),
        all_prefer_siblings=series >= (4, 20),
        zen_reclaim=series >= (5, 4),
        flag_masks=series >= (5, 10),
        all_distances=series >= (5, 10) and series != (5, 11),
        package_level="PKG" if series >= (6, 7) else "DIE",
        llc_flag="SD_SHARE_LLC" if series >= (6, 9) else "SD_SHARE_PKG_RESOURCES",
        cluster_level=series >= (5, 16),
        cluster_flag=series >= (6, 7),
        only_nodes_with_cpus=series >= (5, 18),
        descended_sibling=series >= (5, 13),
        imbalance=series >= (6, 0),
        amd_threads=series >= (6, 17) or stable >= _CHANGED_IN_STABLE.get(series, 1 << 17),
        first_threads_first=series >= (6, 5),
        nodes_per_package=series >= (7, 0),
        averaged_distances=series >= (6, 19),
        overlap_flag=series < (7, 2),
    )


def _nearest(series: tuple[int, int]) -> tuple[int, int]:
    """Return the newest known series that is not newer than this one."""
    major, minor = series
    if major > NEWEST[0]:
        return NEWEST
    return major, min(minor, LAST_OF_MAJOR[major])


def _text(series: tuple[int, int]) -> str:
    return f"{series[0]}.{series[1]}"


def _with_release(version: str, series: tuple[int, int]) -> str:
    """Name the release from which the rules hold where a series has two sets of them."""
    release = _CHANGED_IN_STABLE.get(series)
    return f"{version}.{release} or later" if release and version.count(".") == 1 else version


def _remark(version: str, requested: tuple[int, int], series: tuple[int, int]) -> str:
    if requested == series:
        return ""
    newest = _text(NEWEST)
    return (
        f"Linux {version} is not known to numalab, the newest known version is {newest}: predicted "
        f"with the rules of {_text(series)}"
    )
