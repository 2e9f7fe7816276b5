import re
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.kernel.config_fragment import merge
from numalab.kernel.kernel_config import read_fragments
from numalab.kernel.kernel_specs import fragment_path, load_kernels, series_path
from numalab.kernel.old_kernels import PAUSE, PAUSES
from numalab.kernel.patch_series import find_series, with_series
from numalab.kernel.patched_kernel import find_kernel
from numalab.source.series import load_series
from numalab.topology.predict.groups import Construction

REPOSITORY = Path(__file__).parents[3]


def test_the_kernels_of_this_repository_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_HOME", str(REPOSITORY))
    kernels = load_kernels()
    assert {"debian-6.12", "debian-6.12-undo-group-construction"} <= kernels.keys()
    for spec in kernels.values():
        options = merge(read_fragments(map(fragment_path, spec.fragments)), "6.12")
        if "sched" in spec.fragments:  # what is booted to be looked at, and not the bed's host
            wanted = {"CONFIG_NUMA_BALANCING", "CONFIG_SCHED_DEBUG"}
            assert wanted <= {option.name for option in options}
        for name in spec.series:
            for patch in load_series(series_path(name)).patches:
                assert "Undoes: " in patch.path.read_text() or not name.startswith("undo-")


def test_find_kernel(project: Path) -> None:
    assert find_kernel("changed").series == ("change",)
    with pytest.raises(UserError, match=re.escape("no kernel is called 'x' (valid: plain, change")):
        find_kernel("x")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kernel.plain", 'kernel."a b"', "kernel.a b: a kernel's name has up to 64 letters"),
        ("linux-source-9.9", "v6.12", "plain.source: 'v6.12' is no kernel source (valid"),
        ('["guest"]', '["gest"]', "'gest'; did you mean guest? (valid: guest)"),
        ('["guest"]', "[]", "kernel.plain.fragments: is empty; leave it out for those of the file"),
        ('["guest"]', '["guest", "guest"]', "kernel.plain.fragments: 'guest' is named twice"),
        ('["change"]', '["chang"]', "'chang'; did you mean change? (valid: change)"),
        ("source =", "sorce =", "kernel.plain.sorce: unknown key; did you mean source?"),
        ('summary = "as it is"\n', "", "kernel.plain.summary: this key is missing"),
        ("[kernel.plain]", "[kernel.plain", "kernels.toml: not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_kernels_toml_is_named(
    project: Path, old: str, new: str, message: str
) -> None:
    file = project / "kernel-configs" / "kernels.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load_kernels()
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)


def test_a_series_of_plain_kernels_makes_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_HOME", str(REPOSITORY))
    base = load_kernels()["debian-6.12"]
    assert with_series(base, "relax-at-bring-up").groups is Construction.NOW
    assert with_series(base, "groups-of-the-post").groups is Construction.POST_2017


def test_several_series_in_one_make_the_groups_of_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `numalab patch A B` joins them; the same holds for a part of a series."""
    monkeypatch.setenv("NUMALAB_HOME", str(REPOSITORY))
    base = load_kernels()["debian-6.12"]
    names = ("relax-at-bring-up", "undo-group-construction", "mutation-percentage")
    patches = [patch for name in names for patch in find_series(name).patches]
    for number, patch in enumerate(patches):
        (tmp_path / f"{number}.patch").write_text(patch.text)
    assert with_series(base, str(tmp_path)).groups is Construction.BEFORE_4_13
    assert with_series(base, f"{tmp_path}#2").groups is Construction.NOW


def test_a_kernel_that_pauses_is_told_by_the_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_HOME", str(REPOSITORY))
    assert find_series(PAUSES).info.patches == (PAUSE,)
