"""A stored run as a value, for what reads runs: whole, but of nothing in particular."""

from pathlib import Path
from typing import Any

from numalab.guest.proof import Proof, ThreadProof
from numalab.measure import Number
from numalab.results.manifest import (
    ImageFacts,
    KernelFacts,
    Manifest,
    RunStatus,
    WorkloadFacts,
)
from numalab.results.reader import StoredRun
from numalab.results.stored import StoredMeasure
from numalab.run_dir import RunDir

KERNEL = KernelFacts(
    name="k", release="6.12.1", config_hash="c", digest="d", bzimage_sha256="b", series=(),
    source_version="6.12.1", compiler="gcc",
)  # fmt: skip
WORKLOAD = WorkloadFacts(
    name="w", label="w", argv=("true",), files={}, parameters={}, tasks=(), allowed_cpus=()
)


def stored_manifest(**changes: Any) -> Manifest:
    """Return the manifest of a run that ended well, but for what is to be different."""
    whole = Manifest(
        run="ring-2_w_before_1",
        study="s",
        digest="0",
        topology="ring-2",
        machine={},
        variant="before",
        seed=1,
        mode="icount",
        mode_reason="asked for",
        pages="memfd",
        kernel=KERNEL,
        tunables={},
        workload=WORKLOAD,
        image=ImageFacts(name="base", digest="0" * 64, packages=()),
        proof=Proof((ThreadProof("vcpu 0", 1, (0,), (0,), (0,)),), (), ""),
        status=RunStatus.OK,
    )
    return whole.but(**changes)


def stored_run(manifest: Manifest, value: Number, **about: Any) -> StoredRun:
    """Return a run that measured `m`, in moves."""
    words = {"unit": "moves", "direction": "none", "kind": "placement", "source": "trace"} | about
    stored = {"name": "m", "value": value, "definition": "d"} | words
    measure = StoredMeasure.model_validate(stored, strict=False).measure()
    return StoredRun(RunDir(Path("/nowhere")), manifest, {"m": measure})
