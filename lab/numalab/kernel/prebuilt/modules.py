"""The modules of a distribution's kernel that a guest needs, in order. Pure.

Formats: depmod.d(5), modules.dep(5), modprobe.d(5) for "softdep"; kmod 30.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Without these no guest comes up: NVDIMMs from ACPI, /dev/pmemN, the root, the job disk.
NEEDED = ("nfit", "nd_pmem", "erofs", "ext4")
# Report a panic to the host at once. Without them the console shows it.
WELCOME = ("pvpanic_mmio", "pvpanic_pci", "pvpanic")


@dataclass(frozen=True)
class ModuleIndex:
    """The files of depmod for a kernel; names with underscores, relative paths."""

    paths: dict[str, str]
    needs: dict[str, tuple[str, ...]]  # paths, in the order of modules.dep
    before: dict[str, tuple[str, ...]]  # soft dependencies: names or aliases
    aliases: dict[str, tuple[str, ...]]  # modules by alias
    builtin: frozenset[str]


def parse_index(dep: str, softdep: str, alias: str, builtin: str) -> ModuleIndex:
    """Read modules.dep, .softdep, .alias and .builtin."""
    paths, needs = {}, {}
    for line in dep.splitlines():
        path, colon, rest = line.partition(":")
        if colon:
            paths[module_name(path)] = path
            needs[path] = tuple(rest.split())
    before = dict(_softdeps(softdep))
    aliases: dict[str, tuple[str, ...]] = {name: () for names in before.values() for name in names}
    for line in alias.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in aliases:
            aliases[words[1]] += (words[2].replace("-", "_"),)
    built_in = frozenset(module_name(line) for line in builtin.split())
    return ModuleIndex(paths, needs, before, aliases, built_in)


def module_name(path: str) -> str:
    """Return the name of the module in a file: no folder, no .ko.xz, no dashes."""
    return re.sub(r"\.ko(\.\w+)?$", "", path.rpartition("/")[2]).replace("-", "_")


def load_order(index: ModuleIndex, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the module files to load, dependencies first, and the names that are missing.

    Built-in drivers and missing soft dependencies are left out.
    """
    order: list[str] = []
    missing = []

    def add(path: str, above: tuple[str, ...]) -> None:
        if path in order or path in above:
            return
        # modules.dep lists dependencies in reverse order.
        for needed in reversed(index.needs[path]):
            add(needed, (*above, path))
        for soft in index.before.get(module_name(path), ()):
            for name in _resolve(index, soft):
                add(index.paths[name], (*above, path))
        order.append(path)

    for name in names:
        if name in index.paths:
            add(index.paths[name], ())
        elif name not in index.builtin:
            missing.append(name)
    return tuple(order), tuple(missing)


def _resolve(index: ModuleIndex, wanted: str) -> list[str]:
    """Return the modules that a soft dependency names, directly or by an alias."""
    name = wanted.replace("-", "_")
    if name in index.paths or name in index.builtin:
        return [name] if name in index.paths else []
    # One module is enough, and the generic one runs on every processor.
    modules = [module for module in index.aliases.get(wanted, ()) if module in index.paths]
    return sorted(modules, key=lambda module: (not module.endswith("_generic"), module))[:1]


def _softdeps(text: str) -> Iterable[tuple[str, tuple[str, ...]]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and words[0] == "softdep" and words[2] == "pre:":
            until = words.index("post:") if "post:" in words else len(words)
            yield words[1].replace("-", "_"), tuple(words[3:until])
