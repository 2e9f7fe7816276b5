"""The job disk: a small ext4 image with the job, and later its results."""

import os
import shlex
import tempfile
from pathlib import Path

from numalab.errors import HostError
from numalab.ext4.layout import DamagedDisk
from numalab.ext4.volume import set_change_times
from numalab.files import create
from numalab.machine.model import Job
from numalab.process import find_program, run

_MIB = 1 << 20
# Fixed, so that two disks of the same job are identical.
_UUID = "6e756d61-6c61-4220-a069-6d6167650001"
_TIME = 1_704_067_200  # 2024-01-01T00:00:00Z
_FIXED_TIME = {"E2FSPROGS_FAKE_TIME": str(_TIME), "SOURCE_DATE_EPOCH": str(_TIME)}
_INODES = 4096  # and one for each file of the job beyond half of them
# Whatever the host's mke2fs.conf says. No journal and no lazy initialisation: nothing writes to the
# disk by itself. What `numalab.ext4` reads.
FEATURES = (
    "none,extent,filetype,flex_bg,dir_index,dir_nlink,ext_attr,extra_isize,huge_file,large_file,"
    "sparse_super"
)


def render_job(job: Job, trace_instance: str, seed: int) -> dict[str, bytes]:
    """Render the files of /job for the guest's init. Pure; `images/guest/init` reads them."""
    texts = {
        "seed": str(seed),
        "mode": job.mode,
        "argv": f"set -- {shlex.join(job.argv)}" if job.argv else "",
        "env": "\n".join(f"{name}={shlex.quote(value)}" for name, value in job.env.items()),
        "tunables": "\n".join(f"{path} {value}" for path, value in job.tunables.items()),
        "events": "\n".join(job.events),
        "trace_instance": trace_instance,
        "clock": job.clock,
        "buffer_kib": str(job.buffer_kib),
        "perf_stat": "\n".join(job.perf_stat),
        "sample": f"{job.sample_ms} {job.sampled}" if job.sample_ms and job.sampled else "",
        "numastat": "before and after" if job.numastat else "",
    }
    files = {
        name: f"{text}\n".encode("utf-8", "surrogateescape") if text else b""
        for name, text in texts.items()
    }
    return files | {f"files/{name}": data for name, data in job.files.items()}


def make_job_disk(path: Path, files: dict[str, bytes], size_mib: int) -> None:
    """Make the disk with `files` in it. Raises HostError when the host's disk is full."""
    mke2fs = find_program("mke2fs", "e2fsprogs")
    try:
        _reserve(path, size_mib * _MIB)
        with tempfile.TemporaryDirectory(prefix=".job.", dir=path.parent) as scratch:
            _stage(Path(scratch), files)
            extended = f"hash_seed={_UUID},lazy_itable_init=0,nodiscard,root_owner=0:0"
            run(
                [
                    *(mke2fs, "-q", "-F", "-t", "ext4", "-O", FEATURES, "-E", extended),
                    *("-U", _UUID, "-N", str(_inodes(files)), "-m", "0", "-d", scratch, path),
                ],
                env=_FIXED_TIME,
                timeout=60,
            )
        # mke2fs copies the time of change from the host, which nothing there can set.
        set_change_times(path, _TIME)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from None
    except DamagedDisk as damage:
        raise HostError(f"{mke2fs} did not make {path} as it was asked to: {damage}") from None


def _inodes(files: dict[str, bytes]) -> int:
    names = {parent for name in files for parent in (name, *map(str, Path(name).parents))}
    return _INODES + max(0, len(names) - _INODES // 2)


def _reserve(path: Path, size: int) -> None:
    """Take the disk's space now: a hole that cannot be filled later would kill QEMU."""
    with create(path) as file:
        os.posix_fallocate(file.fileno(), 0, size)


def _stage(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o755 if name.startswith("files/") else 0o644)
        os.utime(target, (_TIME, _TIME))
    (folder / "out").mkdir(exist_ok=True)
    for directory in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        directory.chmod(0o755)
        os.utime(directory, (_TIME, _TIME))
