"""The job disk: the same job gives the same disk, and a hostile disk is taken apart safely."""

import os
from pathlib import Path

import pytest

from numalab.errors import HostError
from numalab.machine.model import Job
from numalab.process import find_program, run
from numalab.qemu.collect import Bounds, read_job_disk
from numalab.qemu.jobdisk import make_job_disk, render_job
from support.ext4_disks import make_disk

MIB = 1 << 20


def make(path: Path, size_mib: int = 8) -> Path:
    job = Job(("true",), files={"sub/x": b"\0\1"})
    make_job_disk(path, render_job(job, "lab", 1), size_mib)
    return path


def debugfs(disk: Path, *commands: str) -> None:
    program = find_program("debugfs", "e2fsprogs")
    run([program, "-w", "-f", "-", disk], stdin="\n".join(commands) + "\n")


def test_the_same_job_gives_the_same_disk(tmp_path: Path) -> None:
    first, second = make(tmp_path / "1.img"), make(tmp_path / "2.img")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size == 8 * MIB
    assert not list(tmp_path.glob(".job.*"))


def test_the_disk_is_for_this_user_only(tmp_path: Path) -> None:
    (tmp_path / "job.img").touch(mode=0o644)
    assert make(tmp_path / "job.img").stat().st_mode & 0o777 == 0o600


def test_what_went_in_comes_out(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    collected = read_job_disk(disk, tmp_path / "o", folder="/")
    assert collected.left_out == ()
    assert (tmp_path / "o/files/sub/x").read_bytes() == b"\0\1"
    assert (tmp_path / "o/argv").read_text() == "set -- true\n"
    assert collected.files["argv"] == 12


def test_the_disks_space_is_reserved(tmp_path: Path) -> None:
    assert make(tmp_path / "job.img").stat().st_blocks * 512 >= 8 * MIB


def test_a_full_host_disk_is_a_host_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _offset: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(HostError, match=r"cannot write .*job.img: No space left on device"):
        make(tmp_path / "job.img")


def test_hostile_names_stay_inside(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    evil = tmp_path / "evil"
    evil.write_text("evil\n")
    names = ["..%", "-rf", ".hidden", "a b", "tab\tx", "\x1b[2J", "x" * 200]
    folder = tmp_path / "in"
    folder.mkdir()
    debugfs(
        disk,
        f'write {evil} "/out/a b"',
        "symlink /out/passwd /etc/passwd",
        "symlink /out/up ../../../../tmp",
        "cd /out",
        "mknod disk b 8 0",
        "mknod tty c 5 0",
        "mknod fifo p",
        f"write {evil} -rf",
        f"write {evil} .hidden",
        f"write {evil} {names[-1]}",
        f"write {evil} good.txt",
        "mkdir ..x",
    )
    into = tmp_path / "o" / "out"
    collected = read_job_disk(disk, into)
    assert collected.files == {"good.txt": 5}
    assert sorted(path.name for path in into.rglob("*")) == ["good.txt"]
    assert sorted(path.name for path in into.parent.iterdir()) == ["out"]
    text = "\n".join(collected.left_out)
    assert "passwd: a symbolic link" in text and "up: a symbolic link" in text
    assert "disk: a device" in text and "tty: a device" in text and "fifo: a fifo" in text
    assert text.count("not a plain name") == 5


def test_a_command_may_choose_ordinary_names(tmp_path: Path) -> None:
    names = ["b c.txt", "_d.csv", "x=1.csv", "é.txt", "r,1.csv", "p[1].txt", "x" * 255, "中/a b"]
    hostile = ["-rf", ".hidden", "\x1b[2J", "a\nb", "\u202egpj.exe", "\u00a0", "x\u200b", "\x7f"]
    folder = tmp_path / "source/out/files"
    for name in (*names, *hostile, "deep/plugins/x", "a b/plugins/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1")
    (folder / os.fsdecode(b"\xff")).write_text("no UTF-8")
    (tmp_path / "source/out/b c.txt").write_text("not below files")
    (tmp_path / "source/out/other").mkdir()
    (tmp_path / "source/out/other/é").write_text("not below files")
    disk = make_disk(tmp_path / "job.img", tmp_path / "source", 8, 1024)
    collected = read_job_disk(disk, tmp_path / "o" / "out")
    assert sorted(collected.files) == sorted(f"files/{name}" for name in names)
    assert all((tmp_path / "o/out" / name).read_text() == "1" for name in collected.files)
    assert len(collected.left_out) == len(hostile) + 5
    assert all(why.isascii() for why in collected.left_out if "plugins" not in why)
    assert sum("would be believed" in why for why in collected.left_out) == 2


def test_a_slash_in_a_name_that_a_command_may_choose(tmp_path: Path) -> None:
    (tmp_path / "source/out/files").mkdir(parents=True)
    (tmp_path / "source/out/files/SLASHSLASHSLASH1").write_text("evil")
    disk = make_disk(tmp_path / "job.img", tmp_path / "source", 8, 1024)
    disk.write_bytes(disk.read_bytes().replace(b"SLASHSLASHSLASH1", b"x/../../../escap"))
    collected = read_job_disk(disk, tmp_path / "o" / "out")
    assert (collected.files, len(collected.left_out)) == ({}, 1)
    assert not list(tmp_path.rglob("*escap*"))


def test_a_guest_leaves_no_lab_folder(tmp_path: Path) -> None:
    for name in ("plugins", "deep/workloads"):
        (tmp_path / "source" / "out" / name).mkdir(parents=True)
        (tmp_path / "source" / "out" / name / "evil.py").write_text("")
    (tmp_path / "source" / "out" / "hunts").write_text("a file may be called so")
    disk = make_disk(tmp_path / "job.img", tmp_path / "source", 8, 1024)
    collected = read_job_disk(disk, tmp_path / "out")
    assert collected.files == {"hunts": 23}
    assert collected.left_out == (
        "plugins: what it holds would be believed",
        "deep/workloads: what it holds would be believed",
    )


def test_a_name_with_a_line_break_or_a_slash_is_left_out(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    evil = tmp_path / "evil"
    evil.write_text("evil\n")
    debugfs(disk, f"write {evil} /out/EVILNAMEEVILNAME", f"write {evil} /out/SLASHSLASHSLASH1")
    # What no kernel would write: into the directory itself.
    data = disk.read_bytes()
    data = data.replace(b"EVILNAMEEVILNAME", b"x\n/12/100644/0/0")
    data = data.replace(b"SLASHSLASHSLASH1", b"../../../escaped")
    disk.write_bytes(data)
    collected = read_job_disk(disk, tmp_path / "o" / "out")
    assert collected.files == {}
    assert not list(tmp_path.rglob("*escaped*"))
    assert sorted(collected.left_out) == [
        "..?..?..?escaped: not a plain name",
        "x\\n?12?100644?0?0: not a plain name",
    ]


def test_a_name_cannot_say_that_a_file_is_small(tmp_path: Path) -> None:
    """Slashes and line breaks in a name once made a listing's line of another size."""
    disk = make(tmp_path / "job.img")
    piece = tmp_path / "piece"
    piece.write_bytes(b"x")
    debugfs(disk, f"write {piece} /out/{'B' * 30}", f"sif /out/{'B' * 30} size 0x100000000")
    stat = run([find_program("debugfs", "e2fsprogs"), "-R", f"stat /out/{'B' * 30}", disk]).stdout
    number = stat.split()[1]
    name = f"small/5/\n/{number}/100644/0/0/y".ljust(30, "z").encode()
    disk.write_bytes(disk.read_bytes().replace(b"B" * 30, name))
    into = tmp_path / "o" / "out"
    collected = read_job_disk(disk, into)
    assert collected.files == {} and list(into.iterdir()) == []
    assert len(collected.left_out) == 1


def test_a_name_is_not_taken_for_a_failure_of_the_host(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    piece = tmp_path / "piece"
    piece.write_bytes(b"x")
    name = b"x\ndebugfs: ls -l -p y"
    debugfs(disk, f"write {piece} /out/good", f"write {piece} /out/{'B' * len(name)}")
    disk.write_bytes(disk.read_bytes().replace(b"B" * len(name), name))
    collected = read_job_disk(disk, tmp_path / "o" / "out")
    assert collected.files == {"good": 1}
    assert collected.left_out == ("x\\ndebugfs: ls -l -p y: not a plain name",)


def test_empty_folders_and_deep_ones_come_along(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    piece = tmp_path / "piece"
    piece.write_bytes(b"x")
    folders = ["/out/a", "/out/a/empty", "/out/d"]
    for _ in range(8):
        folders.append(f"{folders[-1]}/d")
    debugfs(disk, *(f"mkdir {name}" for name in folders), f"write {piece} {folders[-1]}/file")
    collected = read_job_disk(disk, tmp_path / "o")
    assert (list(collected.files), collected.left_out) == (["/".join("d" * 9) + "/file"], ())
    assert list((tmp_path / "o/a/empty").iterdir()) == []


def test_a_sparse_bomb_is_not_unpacked(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    small = tmp_path / "small"
    small.write_bytes(b"x")
    debugfs(disk, f"write {small} /out/bomb", "sif /out/bomb size 0x10000000000")
    collected = read_job_disk(disk, tmp_path / "o")
    assert collected.files == {}
    assert collected.left_out == ("bomb: 1099511627776 bytes is too large",)


def test_counts_sums_and_depth_are_bounded(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    piece = tmp_path / "piece"
    piece.write_bytes(b"x" * 1000)
    debugfs(disk, *(f"write {piece} /out/f{n}" for n in range(6)))
    few = read_job_disk(disk, tmp_path / "few", bounds=Bounds(entries=3))
    assert len(few.files) == 3 and few.left_out == (".: more than 3 files",)
    small = read_job_disk(disk, tmp_path / "small", bounds=Bounds(total=2500))
    assert len(small.files) == 2 and len(small.left_out) == 4
    flat = read_job_disk(disk, tmp_path / "flat", folder="/", bounds=Bounds(depth=1))
    assert "files: more than 1 folders deep" in flat.left_out


def test_a_folder_with_too_many_names_is_refused_at_once(tmp_path: Path) -> None:
    """A million links to one file, of which a listing would have 40 MB."""
    disk = make(tmp_path / "job.img", 64)
    piece = tmp_path / "piece"
    piece.write_bytes(b"x")
    debugfs(disk, "mkdir /out/many", f"write {piece} /out/many/seed", f"write {piece} /out/fine")
    _fill_folder(disk, b"seed", tmp_path)
    collected = read_job_disk(disk, tmp_path / "o" / "out")
    assert collected.files == {"fine": 1}
    assert collected.left_out == ("many: too many names",)


def _fill_folder(disk: Path, name: bytes, scratch: Path) -> None:
    """Fill a folder with entries as no kernel would: twelve bytes each, in 4000 blocks."""
    blocks = scratch / "blocks"
    block = b""
    for _ in range(1024 // 12 - 1):
        block += (12).to_bytes(4, "little") + (12).to_bytes(2, "little") + b"\1\1" + b"a\0\0\0"
    rest = 1024 - len(block)
    block += (12).to_bytes(4, "little") + rest.to_bytes(2, "little") + b"\1\1a" + b"\0" * (rest - 9)
    blocks.write_bytes(block * 12_000)
    debugfs(disk, "cd /out", "rm many/seed", "rmdir many", f"write {blocks} many",
            "sif many mode 040755")  # fmt: skip


def test_a_name_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    """Twice the same name in a folder, which no kernel would write either."""
    disk = make(tmp_path / "job.img")
    piece = tmp_path / "piece"
    piece.write_bytes(b"x")
    debugfs(
        disk, "mkdir /out/twice1", f"write {piece} /out/twice1/in", f"write {piece} /out/twice2"
    )
    disk.write_bytes(disk.read_bytes().replace(b"twice2", b"twice1"))
    collected = read_job_disk(disk, tmp_path / "o" / "out")
    assert len(collected.files) + len(collected.left_out) == 2
    assert len(collected.left_out) == 1


def test_what_comes_out_is_for_this_user_only(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    piece = tmp_path / "piece"
    piece.write_bytes(b"x")
    debugfs(
        disk,
        *("mkdir /out/d", "mkdir /out/d/e"),
        *(f"write {piece} /out/one", f"write {piece} /out/d/e/two", "ln /out/one /out/d/three"),
        "sif /out/one mode 0104777",
    )
    out = tmp_path / "o" / "out"
    assert sorted(read_job_disk(disk, out).files) == ["d/e/two", "d/three", "one"]
    modes = {path.name: path.stat().st_mode & 0o7777 for path in [out, *out.rglob("*")]}
    assert modes == {
        "out": 0o700,
        "d": 0o700,
        "e": 0o700,
        "one": 0o600,
        "two": 0o600,
        "three": 0o600,
    }


def test_a_host_without_space_for_the_results(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = make(tmp_path / "job.img")
    piece = tmp_path / "piece"
    piece.write_bytes(b"x" * MIB)
    debugfs(disk, f"write {piece} /out/large")
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", small])
    try:
        with pytest.raises(HostError, match=r"cannot write .*: No space left on device"):
            read_job_disk(disk, small / "out")
    finally:
        run(["umount", small])


def test_a_folder_that_contains_itself_is_visited_once(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    debugfs(disk, "mkdir /out/d", "link /out/d /out/d/loop")
    collected = read_job_disk(disk, tmp_path / "o")
    assert collected.files == {}


@pytest.mark.parametrize("data", [b"", b"not a disk" * 1000, b"\0" * MIB])
def test_a_guest_that_destroyed_its_disk_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    disk = tmp_path / "job.img"
    disk.write_bytes(data)
    collected = read_job_disk(disk, tmp_path / "o")
    assert collected.files == {} and list((tmp_path / "o").iterdir()) == []
    assert len(collected.left_out) == 1 and collected.left_out[0].startswith("everything: the")


def test_a_disk_that_the_host_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"cannot read .*job\.img: No such file"):
        read_job_disk(tmp_path / "job.img", tmp_path / "o")


def test_a_damaged_disk_gives_what_is_left(tmp_path: Path) -> None:
    disk = make(tmp_path / "job.img")
    data = bytearray(disk.read_bytes())
    for offset in range(4096, 200_000, 97):
        data[offset] ^= 0xFF
    disk.write_bytes(data)
    read_job_disk(disk, tmp_path / "o")
    assert {path.name for path in tmp_path.iterdir()} <= {"job.img", "o"}
