"""The emulators of `emulator-configs/emulators.toml`."""

import re
from dataclasses import dataclass
from pathlib import Path

from numalab.document import Document, read_document
from numalab.errors import UserError
from numalab.places import EMULATORS, find_input, own_input, shipped_dir

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class EmulatorSpec:
    """An emulator to build: a source package (`PACKAGE/SUITE`, as apt writes it) and a series.

    `configure` are options of its configure that other versions do not have.
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
    """Return the folder of `emulators.toml`, the series and the sources of plug-ins."""
    file = find_input(EMULATORS, "emulators.toml")
    return shipped_dir() / EMULATORS if file is None else own_input(file.parent)


def load_emulators() -> dict[str, EmulatorSpec]:
    """Read all emulators by name, the default first.

    Raises UserError for an unknown key, series or default.
    """
    file = emulator_configs() / "emulators.toml"
    table = read_document(file, EmulatorsFile)
    series = sorted(path.parent.name for path in file.parent.glob("series/*/series"))
    specs = {}
    for name, emulator in table.emulator.items():
        key = f"emulator.{name}"
        if not _NAME.fullmatch(name):
            raise UserError("is no name of an emulator", file=file, key=key)
        if emulator.series not in series:
            reason = f"no series is called {emulator.series!r}"
            raise UserError(reason, file=file, key=f"{key}.series", choices=series)
        folder = file.parent / "series" / emulator.series
        specs[name] = EmulatorSpec(
            name, emulator.summary, emulator.source, folder, emulator.configure
        )
    if table.default not in specs:
        reason = f"no emulator is called {table.default!r}"
        raise UserError(reason, file=file, key="default", choices=specs)
    return {table.default: specs.pop(table.default), **specs}


def emulator_for(mode: str, name: str | None) -> EmulatorSpec | None:
    """Return the emulator that guests of a mode start, None for the host's own QEMU.

    Mode timed uses `name` or the default, icount only `name`. Raises UserError for an unknown name.
    """
    if mode == "timed" or (mode == "icount" and name is not None):
        return find_emulator(name)
    return None


def find_emulator(name: str | None = None) -> EmulatorSpec:
    """Return an emulator by its name, or the default one. Raises UserError."""
    emulators = load_emulators()
    if name is None:
        return next(iter(emulators.values()))
    if name not in emulators:
        raise UserError(f"no emulator is called {name!r}", choices=emulators)
    return emulators[name]
