"""The emulators of `emulator-configs/emulators.toml`."""

import re
from dataclasses import dataclass
from pathlib import Path

from numalab.document import Document, read_document
from numalab.errors import UserError
from numalab.places import EMULATORS, find_input, shipped_dir

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class EmulatorSpec:
    """An emulator to be: a source package (`PACKAGE/SUITE`, as apt writes it) and a series.

    `configure`: options of its configure that other versions lack.
    """

    name: str
    summary: str
    source: str
    series: Path
    configure: tuple[str, ...] = ()


class EmulatorTable(Document):
    """A QEMU build."""

    summary: str
    """One line for lists."""
    source: str
    """A Debian source package as PACKAGE/SUITE."""
    series: str
    """The patch series below `series/`."""
    configure: tuple[str, ...] = ()
    """Additional options of QEMU's configure."""


class EmulatorsFile(Document):
    """The emulators of `emulators.toml`."""

    default: str
    """The emulator of mode timed."""
    emulator: dict[str, EmulatorTable]
    """Emulators by name."""


def emulator_configs() -> Path:
    """Return the folder of `emulators.toml`, the series and the plugins' sources."""
    file = find_input(EMULATORS, "emulators.toml")
    return shipped_dir() / EMULATORS if file is None else file.parent


def load_emulators() -> dict[str, EmulatorSpec]:
    """Read all emulators by name, the default one first.

    Raises UserError for an unknown key, a series that is not there, a default that is none.
    """
    file = emulator_configs() / "emulators.toml"
    table = read_document(file, EmulatorsFile)
    there = sorted(path.parent.name for path in file.parent.glob("series/*/series"))
    found = {}
    for name, one in table.emulator.items():
        key = f"emulator.{name}"
        if not _NAME.fullmatch(name):
            raise UserError("is no name of an emulator", file=file, key=key)
        if one.series not in there:
            raise UserError(
                f"no series is called {one.series!r}", file=file, key=f"{key}.series", choices=there
            )
        folder = file.parent / "series" / one.series
        found[name] = EmulatorSpec(name, one.summary, one.source, folder, one.configure)
    if table.default not in found:
        raise UserError(
            f"no emulator is called {table.default!r}", file=file, key="default", choices=found
        )
    return {table.default: found.pop(table.default), **found}


def emulator_for(mode: str, named: str | None) -> EmulatorSpec | None:
    """Return the emulator that guests of a mode start, None for the host's own QEMU.

    Mode timed has the default one where none is named, icount only one that is. Raises UserError
    for a name that none has.
    """
    if mode == "timed" or (mode == "icount" and named is not None):
        return find_emulator(named)
    return None


def find_emulator(name: str | None = None) -> EmulatorSpec:
    """Return an emulator by its name, the default one where none is said. Raises UserError."""
    emulators = load_emulators()
    if name is None:
        return next(iter(emulators.values()))
    if name not in emulators:
        raise UserError(f"no emulator is called {name!r}", choices=emulators)
    return emulators[name]
