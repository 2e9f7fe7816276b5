"""How many lines of `lab/` are the house, and how many are what was added to it since.

    PYTHONPATH=tests python -m bench.lines_of_lab [REVISION]

Every line is given to the commit that wrote it (`git blame -w -M -C -C`), back to the commit before
the rooms. A line from before is the house's. A later one is a feature's where its module is one
that only this feature has (`MODULES`), or its commit is about one (`COMMITS`), or, in the one
commit whose own history is gone (`SQUASHED`), its function or class is (`NAMES`). All others are
the house's. Beside it stands how many lines of the house the features' commits replaced by theirs:
without the features those would be there as well. Takes some four minutes of CPU time.

docs/decisions/0015-lines-of-lab.md says what came out.
"""

import ast
import re
import subprocess
import sys
from collections import Counter

BEFORE = "84dfc73"
SQUASHED = "8f6744f"
ROOT = "lab/numalab/"

# Modules, or folders of them, that a feature has to itself.
MODULES = {
    "hunt": "hunt/ cli/hunt/",
    "timed": "emulator/ topology/memory/ cli/inputs/emulator.py analysis/memory.py"
    " analysis/measures/memory.py analysis/tables/memory.py capture/guest_time.py"
    " capture/memory_tables.py capture/memory_parquet.py report/page/link_traffic.py"
    " report/build/modelled.py source/source_package.py qemu/version.py",
    "kvm": "guest/host_report/ host/speed.py",
    "hostile": "ext4/ results/names.py topology/importers/packaging.py topology/predict/cpuid.py"
    " topology/predict/siblings.py topology/renumber.py",
    "posts": "campaign/outlook.py",
    "installable": "cli/study/init.py guest/install.py plugins.py",
}
# Commits that are about a feature, or about a defect that came with one; those whose subject begins
# so need not be named. What only tidies up is none, whatever it touches.
SUBJECTS = {"hunt": "hunt", "timed": "timed", "emulator": "timed", "testbed": "kvm"}
COMMITS = {
    "timed": "8fb6fda 5c4c379 7c1ebb9 33e6c47 1662263 a00ea12 85fc62e 4c70bf8 48fec3f"
    " 6667e04 f283fa0 83fd2f7 3885738 d07406e 6174631",
    "kvm": "5ae9f9e 7077f6d 7a01884 71a7682",
    "hostile": "0cd2308 aa89f2f c4edc4b efc3245 7cb4083 3431dd3 a87434d 088e91c ed82bca a6a25c3"
    " 631b368 6595517 16e3a9e c2ed98b aecd894",
    "posts": "318080a 5c98605 b763eb9 03efba9 501bf9b",
    "hunt": "5b1109f",
    "installable": "78c6e65 ba82b24",
}
# What SQUASHED added to modules that were there, by function or class.
NAMES = {
    "timed": """campaign/build.py:with_choice campaign/executors/remote.py:_with_emulator
        guest/doctor.py:_emulator guest/start.py:_with_memory guest/start.py:_emulator
        machine/model.py:Plugin machine/model.py:Machine.shift machine/model.py:check_quantum
        qemu/domain_xml.py:_plugins topology/load.py:memory_to_dict
        topology/view/terminal.py:_modelled topology/write_file.py:_memory_table
        topology/differences.py:_memory""",
    "kvm": """guest/kvm.py:_Trial guest/kvm.py:_went_on guest/verdicts.py:_files
        guest/verdicts.py:forget_verdicts guest/watch.py:Limits.on_a_host
        host/budget.py:NodeMemory host/budget.py:_check_nodes host/facts.py:parse_available
        host/orphans.py:oom_kills qemu/guest.py:Guest.host_ran_out
        placement/admission.py:_own_mib placement/admission.py:locks_memory
        image/recipe.py:PackedImage image/recipe.py:_built_elsewhere
        image/image_artifact.py:_written_digest cli/guest/doctor.py:_probe_again""",
    "hostile": """document.py:_is_deeper cli/output.py:pass_on cli/output.py:_plainly
        cli/streams.py:drop_output results/archive.py:_Header
        results/archive.py:_opened results/archive.py:_next results/archive.py:_sense
        results/layout.py:Results.no_link results/layout.py:no_link results/layout.py:_plain
        topology/importers/common.py:_known topology/importers/common.py:_without_slit
        topology/importers/hwloc.py:_nodes topology/importers/hwloc.py:_places
        topology/importers/hwloc.py:_holders topology/importers/hwloc.py:_cache_level
        topology/importers/numactl.py:_unwrapped topology/importers/sysfs.py:_either
        topology/importers/sysfs.py:_online topology/importers/sysfs.py:_without_gaps
        topology/importers/sysfs.py:_place topology/importers/sysfs.py:_last_cache
        machine/model.py:with_memory_first topology/graph.py:distances_by_weight
        topology/build.py:_by_weight topology/broken_rule.py:check_remote
        topology/observed/guest.py:_given topology/observed/guest.py:_warnings
        topology/view/drawing.py:_crossed""",
    "posts": "topology/predict/groups.py:Construction"
    " topology/predict/groups.py:GroupBuilder._builders",
    "installable": """guest/doctor.py:_header places.py:shipped_dir places.py:project_dir
        places.py:find_input places.py:list_inputs kernel/kernel_specs.py:_all_kernels
        kernel/kernel_specs.py:list_fragments kernel/kernel_specs.py:list_series
        kernel/kernel_specs.py:_found""",
}


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], capture_output=True, text=True, errors="replace", check=True
    ).stdout


def named(text: str) -> dict[int, str]:
    """Return the innermost function or class of each line, as `Class.method`."""
    found: dict[int, str] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef | ast.ClassDef):
                first = min([each.lineno, *(d.lineno for d in each.decorator_list)])
                found.update(
                    dict.fromkeys(range(first, (each.end_lineno or 0) + 1), prefix + each.name)
                )
                walk(each, f"{prefix}{each.name}.")

    walk(ast.parse(text), "")
    return found


def feature_of_module(path: str) -> str | None:
    for feature, places in MODULES.items():
        if any(
            path == each or (each[-1] == "/" and path.startswith(each)) for each in places.split()
        ):
            return feature
    return None


def feature_of_commit(commit: str, subject: str) -> str | None:
    named = (feature for feature, those in COMMITS.items() if commit in those.split())
    return next(named, SUBJECTS.get(subject.partition(":")[0].partition(",")[0]))


def feature_of_line(path: str, name: str, commit: str, commits: dict[str, str]) -> str:
    if commit not in commits:
        return "house, from before"
    if found := feature_of_module(path):
        return found
    if found := feature_of_commit(commit, commits[commit]):
        return found
    if commit == SQUASHED:
        for feature, those in NAMES.items():
            for each in those.split():
                module, _, wanted = each.partition(":")
                if module == path and (name == wanted or name.startswith(f"{wanted}.")):
                    return feature
    return "house, since"


def blamed(revision: str, path: str) -> list[tuple[str, str]]:
    """Return commit and text of each line."""
    words = ["-s", "-w", "-M", "-C", "-C", "--line-porcelain", f"{BEFORE}..{revision}", "--", path]
    found, commit = [], ""
    for line in git("blame", *words).split("\n"):
        if head := re.match(r"([0-9a-f]{40}) \d+ \d+", line):
            commit = head[1][:7]
        elif line.startswith("\t"):
            found.append((commit, line[1:]))
    return found


def replaced(commits: dict[str, str]) -> int:
    """Count the lines that features' commits took out of modules that are not theirs."""
    gone = 0
    for commit, subject in commits.items():
        if feature_of_commit(commit, subject) is not None:
            rows = git("show", "-w", "-M", "--numstat", "--format=", commit, "--", "lab/*.py")
            for row in rows.splitlines():
                _, out, path = row.split("\t")
                if feature_of_module(path.removeprefix(ROOT)) is None:
                    gone += int(out)
    return gone


def main() -> None:
    revision = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    log = git("log", "--format=%h %s", "--abbrev=7", f"{BEFORE}..{revision}").splitlines()
    commits = dict(line.split(" ", 1) for line in log)
    count: Counter[str] = Counter()
    for path in git("ls-tree", "-r", "--name-only", revision, "lab").splitlines():
        if path.endswith(".py"):
            lines = blamed(revision, path)
            names = named("\n".join(text for _, text in lines))
            for number, (commit, _) in enumerate(lines, 1):
                place = path.removeprefix(ROOT), names.get(number, "")
                count[feature_of_line(*place, commit, commits)] += 1
    for what, lines_of in count.most_common():
        print(f"{lines_of:7} {what}")
    print(f"{replaced(commits):7} lines of the house that features' commits replaced")
    print(f"{count.total():7} in all")


if __name__ == "__main__":
    main()
