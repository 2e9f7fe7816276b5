"""On a host without libvirt's Python binding, an extra of the wheel: `doctor` is for those."""

import json
import os
import subprocess
import sys
from pathlib import Path

# Every command is imported first, because the binding is not to be needed for that.
PROGRAM = """
import sys
sys.modules["libvirt"] = sys.modules["libvirt_qemu"] = None
from numalab.cli.main import COMMANDS, application, main
for name in COMMANDS:
    application(name)
sys.argv[0] = "numalab"
main()
"""


def numalab(cache: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-c", PROGRAM, *words]
    env = os.environ | {"NUMALAB_CACHE": str(cache)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_the_doctor_says_what_installs_it(tmp_path: Path) -> None:
    done = numalab(tmp_path, "doctor", "--json")
    assert done.returncode == 3, done.stderr
    (libvirt,) = [check for check in json.loads(done.stdout) if check["name"] == "libvirt"]
    assert not libvirt["ok"] and libvirt["hint"] == "numalab doctor --fix"
    assert libvirt["python"] == ["libvirt-python"] and "libvirt-dev" in libvirt["packages"]


def test_a_command_says_so_only_where_it_needs_it(tmp_path: Path) -> None:
    done = numalab(tmp_path, "plan", "group-construction", "--json")
    assert done.returncode == 0, done.stderr
    done = numalab(tmp_path, "run", "group-construction", "--output", str(tmp_path / "out"))
    assert done.returncode == 3
    assert "binding of libvirt is not installed\n  hint: numalab doctor --fix" in done.stderr
    assert not (tmp_path / "out").exists()
