"""Which QEMU a mode runs on: the host's own, or one that is built for it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numalab.campaign import build
from numalab.campaign.boot import check_host_root
from numalab.campaign.build import choose_mode, with_choice
from numalab.errors import UserError
from numalab.guest.kvm import Choice
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.machine.model import Machine
from numalab.topology.load import load_topology

MACHINE = Machine(load_topology("ring-4"), Path("k"), Path("r"), mode="tcg", seed=1, name="one")
BUILT = SimpleNamespace(program=Path("/built/qemu"), name="qemu-10.0")


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Any:
    kernel = SimpleNamespace(bzimage=Path("k"), initrd=None, release="6.12", runs_in_icount=True)
    monkeypatch.setattr(build, "ensure_emulator", lambda *_, **__: BUILT)
    monkeypatch.setattr(build, "memory_plugin", lambda _: Path("/built/memory.so"))
    monkeypatch.setattr(
        build, "pick_mode", lambda asked, *_, **__: Choice(asked, "host", "asked for")
    )
    return SimpleNamespace(
        kernels={"k": kernel}, image=SimpleNamespace(path=Path("i")), root=lambda _: Path("i")
    )


@pytest.mark.parametrize(
    ("mode", "emulator", "program", "model"),
    [
        ("icount", None, None, None),
        ("icount", "qemu-10.0", "/built/qemu", None),
        ("timed", None, "/built/qemu", "/built/memory.so"),
        ("timed", "qemu-10.0", "/built/qemu", "/built/memory.so"),
        ("tcg", None, None, None),
    ],
)
def test_icount_has_the_hosts_own_unless_one_is_said(
    builds: Any, mode: str, emulator: str | None, program: str | None, model: str | None
) -> None:
    choice = choose_mode(mode, builds, "", emulator=emulator)
    machine = with_choice(MACHINE, choice)
    assert str(machine.emulator or "") == (program or "")
    assert str(machine.memory_model or "") == (model or "")


def test_only_kernels_before_5_4_get_the_image_as_ext4() -> None:
    image = BuiltImage("tiny", Path("i.erofs"), "5", 1, ())
    builds = build.Builds({}, image, {}, ext4=Path("i.ext4"))
    roots = {
        release: str(builds.root(built_of(release)))
        for release in ("4.12.0", "5.3.18", "5.4.0", "6.12.1", "v5")
    }
    assert roots == {
        "4.12.0": "i.ext4", "5.3.18": "i.ext4", "5.4.0": "i.erofs", "6.12.1": "i.erofs",
        "v5": "i.erofs",
    }  # fmt: skip


def built_of(release: str) -> BuiltKernel:
    return BuiltKernel("k", Path("k"), release, None, "", "", (), release, 0.0, "gcc", "")


@pytest.mark.parametrize("mode", ["tcg", "kvm"])
def test_an_emulator_that_a_mode_has_no_use_for_is_refused(builds: Any, mode: str) -> None:
    with pytest.raises(UserError, match=f"mode {mode} runs on the host's own QEMU"):
        choose_mode(mode, builds, "", emulator="qemu-10.0")


@pytest.mark.parametrize(("wanted", "mode"), [("auto", "tcg"), ("icount", "icount")])
def test_runs_that_need_not_repeat_are_in_the_fastest_mode(
    builds: Any, monkeypatch: pytest.MonkeyPatch, wanted: str, mode: str
) -> None:
    monkeypatch.setattr(build, "pick_mode", lambda *_, **__: Choice("icount", "host", "no KVM"))
    assert choose_mode(wanted, builds, "", repeatable=False).mode == mode
    assert choose_mode(wanted, builds, "").mode == "icount"


def test_a_kernel_without_9p_cannot_mount_the_hosts_root(tmp_path: Path) -> None:
    config = tmp_path / "config"
    kernel = BuiltKernel("mine", Path(), "6.12", config, "", "", (), "", 0, "", "")
    lines = [f"CONFIG_{name}=y" for name in ("VIRTIO_PCI", "NET_9P_VIRTIO", "9P_FS", "OVERLAY_FS")]
    config.write_text("\n".join(lines))
    check_host_root(kernel)
    config.write_text("\n".join([*lines[:2], "CONFIG_9P_FS=m", "# CONFIG_OVERLAY_FS is not set"]))
    with pytest.raises(UserError, match="kernel mine lacks 9P_FS, OVERLAY_FS"):
        check_host_root(kernel)
    check_host_root(replace(kernel, config=None))
