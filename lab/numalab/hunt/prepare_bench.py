"""What a hunt needs before its first boot: kernels, the image, the driver, the mode."""

from collections.abc import Sequence
from dataclasses import replace

from numalab.campaign.build import Builds, build, choose_mode
from numalab.guest.kvm import Choice
from numalab.hunt.examine import WORKLOAD, HuntBench
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_specs import KernelSpec
from numalab.progress import Progress
from numalab.qemu.hypervisor import EMBED
from numalab.workload.workload import load_workload
from numalab.workload.workload_files import build_workload


def prepare_benches(
    specs: Sequence[KernelSpec],
    mode: str,
    connection: str = EMBED,
    on_progress: Progress | None = None,
    *,
    emulator: str | None = None,
) -> list[HuntBench]:
    """Build what the cache lacks, and return a bench for each kernel, all of one mode.

    `emulator` is a QEMU that is built for it, as `choose_mode` takes it.

    Raises BuildError, HostError or UserError.
    """
    builds = build(specs, load_recipe("base"), (), on_progress)
    builds = replace(builds, files=driver())
    choice = choose_mode(mode, builds, connection, on_progress, emulator=emulator)
    return [HuntBench(spec, builds, choice, connection) for spec in specs]


def bench_like(other: HuntBench, spec: KernelSpec, on_progress: Progress | None) -> HuntBench:
    """Return a bench for one more kernel, in the mode of another bench."""
    builds: Builds = build([spec], load_recipe("base"), (), on_progress)
    choice: Choice = other.choice
    return HuntBench(spec, replace(builds, files=driver()), choice, other.connection)


def driver() -> dict[str, dict[str, bytes]]:
    """Return the files of the driver in the guest, by its workload."""
    return {WORKLOAD: build_workload(load_workload(WORKLOAD).file.parent)}
