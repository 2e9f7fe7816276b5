"""The compilers of schedulers on this host."""

from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.errors import HostError
from numalab.scheduler import clang


def a_program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)


def test_a_clang_that_is_too_old_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(clang, "find_program", _only_in(tmp_path))
    a_program(tmp_path, "clang", "Debian clang version 14.0.6")
    with pytest.raises(HostError, match=r"clang 16 or later is not installed.*\n.*clang-19"):
        clang.find_clang()
    assert "clang-19" in clang.lacking_packages()
    a_program(tmp_path, "clang-17", "Debian clang version 17.0.1")
    assert clang.find_clang() == tmp_path / "clang-17"


def test_crates_need_a_recent_rust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clang, "find_program", _only_in(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(HostError, match=r"cargo and rustc are not installed.*\n.*Rust 1\.91"):
        clang.find_cargo()
    a_program(tmp_path, "cargo", "cargo 1.63.0")
    a_program(tmp_path, "rustc", "rustc 1.63.0")
    with pytest.raises(HostError, match=r"rustc 1\.63\.0 is older than Rust 1\.91"):
        clang.find_cargo()
    a_program(tmp_path, "rustc", "rustc 1.95.0 (59807616e 2026-04-14)")
    assert clang.find_cargo()[0] == tmp_path / "cargo"


def _only_in(folder: Path) -> Callable[[str, str], Path]:
    def find(name: str, package: str) -> Path:
        path = folder / Path(name).name
        if not path.is_file():
            raise HostError(f"{name} is not installed", hint=f"apt-get install {package}")
        return path

    return find
