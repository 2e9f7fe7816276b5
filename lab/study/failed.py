"""Runs that gave no result, as a report lists them."""

from lab.report import model
from lab.study.stored import Json


def failed_run(about: Json) -> model.Run:
    """Describe a run by its manifest; what it ran on is mostly not known."""
    versions = about.get("versions", {})
    return model.Run(
        id=about["run"],
        variant=about["variant"],
        seed=about["seed"],
        status=str(about.get("reason") or about.get("status")),
        readings=(),
        provenance=model.Provenance(
            qemu=versions.get("qemu", "unknown"),
            libvirt=versions.get("libvirt", "unknown"),
            host=host_line(about),
            image=about["image"]["name"],
            image_digest=about["image"]["digest"],
            placement="unknown",
            events=about.get("trace", {}).get("events", 0),
            lost_events=0,
        ),
        seconds=about.get("seconds"),
    )


def host_line(about: Json) -> str:
    """Write in one line on what host a run ran."""
    return "{processor}, {cpus} CPUs, {memory_mib} MiB, Linux {kernel}".format(**about["host"])
