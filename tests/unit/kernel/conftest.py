"""A kernel source that builds in a moment: a Makefile that copies text, packed like Debian's."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from numalab.errors import HostError

MAKEFILE = """\
VERSION = 9
PATCHLEVEL = 9
SUBLEVEL = 1
EXTRAVERSION =
allnoconfig:
\t@mkdir -p $(O)/arch/x86/boot $(O)/include/config
\t@grep -vE '^CONFIG_(REFUSED|NOSUCH)=' $(KCONFIG_ALLCONFIG) \\
\t  | sed 's/^CONFIG_CHANGED=.*/CONFIG_CHANGED=7/' > $(O)/.config
\t@echo 9.9.1 > $(O)/include/config/kernel.release
bzImage:
\t@echo 'compiler: $(CC)'
\t@echo '  CC      kernel/sched/topology.o'
\t@if grep -q BROKEN kernel/sched/topology.c; then \\
\t  echo 'kernel/sched/topology.c:2:1: error: expected declaration'; exit 1; fi
\t@if grep -q FULL kernel/sched/topology.c; then \\
\t  echo 'cc1: error: closing /tmp/x.s: No space left on device'; exit 1; fi
\t@if grep -q LIBELF kernel/sched/topology.c; then \\
\t  echo 'elf.h:5:10: fatal error: gelf.h: No such file or directory'; exit 1; fi
\t@test "$(KBUILD_BUILD_USER)" = numalab
\t@cat kernel/sched/topology.c $(O)/.config > $(O)/arch/x86/boot/bzImage
\t@cp /bin/true $(O)/vmlinux
"""

TOPOLOGY = "".join(f"line {number}\n" for number in range(1, 31))
KCONFIG = """\
config REFUSED
\tbool "asked for in vain"
\tdepends on NEVER && SMP
\thelp
\t  depends on nothing

config CHANGED
\tint "always 7"

config SMP
\tbool "many CPUs"
\tselect HELPER

config HELPER
\tbool
"""
FRAGMENT = "# What the guest needs.\n\n# More than one CPU.\nCONFIG_SMP=y\n"

PATCH = """\
From: somebody
Subject: [PATCH 1/1] sched: change
 line ten

---
--- a/kernel/sched/topology.c
+++ b/kernel/sched/topology.c
@@ -9,3 +9,3 @@
 line 9
-line 10
+line ten
 line 11
--
2.39.5
"""


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Pack a source package of the given files into a folder that stands for /usr/src."""
    packages = tmp_path / "usr-src"
    packages.mkdir()
    monkeypatch.setattr("numalab.source.kernel_source.PACKAGES", packages)

    def write(files: dict[str, str], name: str = "linux-source-9.9") -> Path:
        tree = tmp_path / "packing" / name
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        tarball = packages / f"{name}.tar.xz"
        subprocess.run(
            ["tar", "-C", tree.parent, "--sort=name", "-cJf", tarball, name],
            check=True,
            capture_output=True,
        )
        return tarball

    return write


def _no_mirror() -> NoReturn:
    raise HostError("there is no mirror in tests")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[..., Path]) -> Path:
    """A project with two kernels of the fake source, and an empty cache; gives its folder."""
    home = tmp_path / "home"
    configs = home / "kernel-configs"
    series = configs / "series" / "change"
    series.mkdir(parents=True)
    (home / "topologies").mkdir()
    (configs / "guest.config").write_text(FRAGMENT)
    shutil.copy(Path(__file__).parents[3] / "kernel-configs/initramfs.c", configs)
    (configs / "kernels.toml").write_text(
        '[kernel.plain]\nsummary = "as it is"\nsource = "linux-source-9.9"\n'
        'fragments = ["guest"]\n'
        '[kernel.changed]\nsummary = "changed"\nsource = "linux-source-9.9"\n'
        'fragments = ["guest"]\nseries = ["change"]\n'
    )
    (series / "series").write_text("# in order\n0001-change.patch\n")
    (series / "0001-change.patch").write_text(PATCH)
    pack(
        {
            "Makefile": MAKEFILE,
            "Kconfig": KCONFIG,
            "kernel/sched/topology.c": TOPOLOGY,
            "kernel/sched/other.c": "other\n",
            "kernel/configs/tiny-base.config": "CONFIG_EXPERT=y\n",
            "kernel/configs/tiny.config": "# CONFIG_SMP is not set\nCONFIG_SLUB_TINY=y\n",
        }
    )
    monkeypatch.setenv("NUMALAB_HOME", str(home))
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    # No test asks a real mirror.
    monkeypatch.setattr("numalab.source.debian_packages.host_mirror", _no_mirror)
    monkeypatch.setenv("MAKEFLAGS", "-n")  # a make above us must not change what is built
    return home
