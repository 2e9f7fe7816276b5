"""Emulators: the catalogue, the build by a digest of its inputs, and what a failure leaves."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.emulator import emulator_artifact as build_module
from numalab.emulator.emulator_artifact import (
    BuiltEmulator,
    configure_options,
    ensure_emulator,
    lacking_packages,
)
from numalab.emulator.emulator_specs import EmulatorSpec, find_emulator, load_emulators
from numalab.errors import BuildError, HostError, UserError
from numalab.places import cache_dir
from numalab.source.debian_packages import Fetched, NotFetched
from numalab.source.series import apply_series, load_series
from numalab.source.source_package import fetched_source
from numalab.source.source_tree import original_reader

CONFIGURE = """\
#!/bin/sh
cat >build.ninja <<'END'
rule program
  command = sed "s/VERSION/$$(cat ../VERSION)/" ../program.in >$out && chmod +x $out
build qemu-system-x86_64: program ../program.in
END
"""
PROGRAM = '#!/bin/sh\necho "QEMU emulator version VERSION (plain)"\n'
PATCH = """\
Subject: say more
--- a/program.in
+++ b/program.in
@@ -1,2 +1,2 @@
 #!/bin/sh
-echo "QEMU emulator version VERSION (plain)"
+echo "QEMU emulator version VERSION (patched)"
"""

Make = Callable[[], EmulatorSpec]


def test_the_shipped_emulators_and_their_series_can_be_read() -> None:
    emulators = load_emulators()
    assert find_emulator() == next(iter(emulators.values()))
    for spec in emulators.values():
        series = load_series(spec.series)
        assert series.patches
        touched = {file.new for patch in series.patches for file in patch.files}
        assert any(name and name.startswith("accel/tcg/") for name in touched)


def test_a_series_applies_to_the_source_that_its_emulator_names() -> None:
    """All whose source this host's cache has: it has that of any emulator that was built here."""
    for spec in load_emulators().values():
        try:
            folder = cache_dir("emulator-trees", fetched_source(spec.source).digest[:16])
        except NotFetched:
            continue
        if (folder / "source").is_dir():
            texts = apply_series([load_series(spec.series)], original_reader(folder / "source"))
            assert "accel/tcg/tcg-accel-ops-quantum.c" in texts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('default = "b"\n[emulator.a]\nsummary = ""\nsource = "qemu"\nseries = "s"\n', "valid: a"),
        ('default = "a"\n[emulator.a]\nsummary = ""\nsource = "qemu"\nseries = "t"\n', "valid: s"),
        ('default = "a"\n[emulator.a]\nsummary = ""\nsource = "qemu"\n', "emulator.a.series"),
    ],
)
def test_a_wrong_catalogue_is_refused_with_file_and_key(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "emulator-configs"
    (folder / "series" / "s").mkdir(parents=True)
    (folder / "series" / "s" / "series").write_text("p.patch\n")
    (folder / "emulators.toml").write_text(text)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    with pytest.raises(UserError) as caught:
        load_emulators()
    assert "emulators.toml" in str(caught.value)
    assert says in str(caught.value)


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(UserError, match=find_emulator().name):
        find_emulator("nobody")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmulatorSpec:
    """An emulator of three small files, built with the real ninja."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source"
    (source / "include/qemu").mkdir(parents=True)
    (source / "include/qemu/qemu-plugin.h").write_text("/* plugins */\n")
    (source / "program.in").write_text(PROGRAM)
    (source / "VERSION").write_text("7.2.99\n")
    (source / "configure").write_text(CONFIGURE)
    (source / "configure").chmod(0o755)
    series = tmp_path / "series"
    series.mkdir()
    (series / "series").write_text("1.patch\n")
    (series / "1.patch").write_text(PATCH)
    fetched = Fetched((tmp_path / "x.dsc",), ("qemu=1:7.2",), "5" * 64)

    def unpacked(_: Fetched, tree: Path) -> Path:
        if not tree.is_dir():
            shutil.copytree(source, tree)
        return tree

    monkeypatch.setattr(build_module, "fetch_source_package", lambda *_: fetched)
    monkeypatch.setattr(build_module, "fetched_source", lambda _: fetched)
    monkeypatch.setattr(build_module, "unpack_source", unpacked)
    monkeypatch.setattr(build_module, "check_tools", lambda: None)
    return EmulatorSpec("small", "three files", "qemu/bookworm", series)


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "emulators").glob("*"))


def test_a_build_is_kept_with_what_went_in(spec: EmulatorSpec, tmp_path: Path) -> None:
    fractions: list[float] = []
    built = ensure_emulator(spec, on_progress=lambda _, part: fractions.append(part or 0.0))
    assert built.version == "7.2.99"
    assert "patched" in built.program.read_text()
    assert built.header.read_text() == "/* plugins */\n"
    assert built.series.patches == ("say more",)
    assert max(fractions) == 1.0
    assert entries(tmp_path) == [built.program.parent]
    assert build_module.built_emulator(spec) == built


def test_emulators_of_the_same_patches_share_a_build_but_no_names(spec: EmulatorSpec) -> None:
    ensure_emulator(spec)
    copy = shutil.copytree(spec.series, spec.series.with_name("copy"))
    built = build_module.built_emulator(replace(spec, name="other", series=copy))
    assert built is not None and (built.name, built.series.name) == ("other", "copy")


def test_another_series_is_another_emulator(spec: EmulatorSpec, tmp_path: Path) -> None:
    first = ensure_emulator(spec)
    (spec.series / "1.patch").write_text(PATCH.replace("(patched)", "(otherwise)"))
    assert build_module.built_emulator(spec) is None
    second = ensure_emulator(spec)
    assert second.digest != first.digest
    assert "otherwise" in second.program.read_text()
    assert "patched" in first.program.read_text()


def test_a_program_that_was_changed_is_not_taken(spec: EmulatorSpec) -> None:
    built = ensure_emulator(spec)
    built.program.write_text("something else")
    assert build_module.built_emulator(spec) is None


def test_a_failed_build_leaves_nothing_and_says_why(spec: EmulatorSpec, tmp_path: Path) -> None:
    (tmp_path / "source" / "configure").write_text("#!/bin/sh\necho 'ERROR: no luck'; exit 1\n")
    with pytest.raises(BuildError, match="no luck") as caught:
        ensure_emulator(spec)
    assert "emulator-small.log" in str(caught.value)
    assert entries(tmp_path) == []


def test_what_a_build_needs_is_named_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, package: str) -> Path:
        raise HostError(f"{name} is not installed", hint=f"apt-get install {package}")

    for module in ("numalab.process", build_module.__name__):
        monkeypatch.setattr(f"{module}.find_program", absent)
    assert {"ninja-build", "libglib2.0-dev", "libseccomp-dev"} <= set(lacking_packages())
    with pytest.raises(HostError, match=r"apt-get install .*ninja-build.*libglib2.0-dev"):
        build_module.check_tools()


def test_options_of_one_version_are_part_of_what_it_is(spec: EmulatorSpec) -> None:
    first = ensure_emulator(spec)
    other = replace(spec, configure=("--disable-download",))
    assert configure_options(other) == (*configure_options(spec), "--disable-download")
    assert build_module.built_emulator(other) is None
    assert ensure_emulator(other).digest != first.digest


def test_the_cache_entry_does_not_name_its_own_place(spec: EmulatorSpec, tmp_path: Path) -> None:
    built: BuiltEmulator = ensure_emulator(spec)
    assert str(tmp_path) not in (built.program.parent / "emulator.json").read_text()
