"""Runs that gave no result, as a report lists them."""

from numalab.report import model
from numalab.results.manifest import UNKNOWN, Manifest, RunStatus


def failed_run(run: Manifest) -> model.Run:
    """Describe a run by its manifest; what it ran on is mostly not known."""
    return model.Run(
        id=run.run,
        variant=run.variant,
        seed=run.seed,
        status=run.status or RunStatus.FAILED,
        readings=(),
        provenance=model.Provenance(
            qemu=run.versions.qemu,
            libvirt=run.versions.libvirt,
            host=host_line(run),
            image=run.image.name,
            image_digest=run.image.digest,
            placement=UNKNOWN,
            events=0 if run.trace is None else run.trace.events,
            lost_events=0,
        ),
        seconds=run.seconds,
        reason=run.reason,
    )


def host_line(run: Manifest) -> str:
    """Write in one line on what host a run ran."""
    return UNKNOWN if run.host is None else str(run.host)
