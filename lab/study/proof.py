"""What a run's manifest proves of its place on the host, as rows of a report."""

from collections.abc import Iterable, Sequence

from lab.cpulist import format_cpulist
from lab.report import model
from lab.study.stored import Json


def placement_line(manifest: Json) -> str:
    """Say in one line how a run was placed, and what that did to its timing figures."""
    line = str(manifest["proof"]["note"] or "one host CPU for each vCPU")
    disturbed = manifest.get("timing", {}).get("disturbs", ())
    return f"{line}; timing was disturbed: {'; '.join(disturbed)}" if disturbed else line


def proof_rows(manifest: Json) -> tuple[model.Proof, ...]:
    """Put what was read back from a run's QEMU into rows: threads, memory, and its usage."""
    proof = manifest["proof"]
    return (
        *map(_thread, proof["threads"]),
        *map(_memory, proof["memory"]),
        *_usage(proof.get("usage")),
        *_timing(manifest.get("timing")),
    )


def _thread(thread: Json) -> model.Proof:
    asked, found = (f"host CPU {format_cpulist(thread[key])}" for key in ("planned", "allowed"))
    # QEMU's other threads may run on fewer CPUs than they were given.
    within = not thread["role"].startswith("vcpu") and (
        set(thread["allowed"]) <= set(thread["planned"])
    )
    return model.Proof(thread["role"], asked, asked if within else found)


def _memory(memory: Json) -> model.Proof:
    pages = {int(node): count for node, count in memory["pages"].items()}
    planned = memory.get("planned")
    if planned is not None and set(pages) <= {planned}:
        where = f"host node {planned}"
        size = f"{pages.get(planned, 0)} pages of {memory['page_kib']} KiB"
        return model.Proof(f"memory of node {memory['node']}, {size}", where, where)
    each = (f"{n} pages of {memory['page_kib']} KiB on host node {at}" for at, n in pages.items())
    asked = "any host node" if planned is None else f"host node {planned}"
    return model.Proof(
        f"memory of node {memory['node']}", asked, ", ".join(each) or "no page touched"
    )


def _usage(usage: Json | None) -> Iterable[model.Proof]:
    """Sum up what the host did to QEMU's threads; the manifest has each of them."""
    if usage is None:
        return
    vcpus = [thread for thread in usage["threads"] if thread["role"].startswith("vcpu")]
    others = [thread for thread in usage["threads"] if thread not in vcpus]
    for what, threads in (("vCPUs", vcpus), ("QEMU's other threads", others)):
        if threads:
            yield model.Proof(
                f"{what} while the workload ran", "any", _used(threads, usage["seconds"])
            )
    stolen = [f"{ms} ms of host CPU {cpu}" for cpu, ms in usage["stolen_ms"].items() if ms]
    if usage["stolen_ms"]:
        yield model.Proof("stolen by a hypervisor below", "any", ", ".join(stolen) or "nothing")


def _used(threads: Sequence[Json], seconds: float) -> str:
    def total(key: str) -> int:
        return sum(thread[key] for thread in threads)

    waits = [thread["waited_ms"] for thread in threads if thread["waited_ms"] is not None]
    waited = f", waited {sum(waits):.0f} ms in all for a host CPU" if waits else ""
    return (
        f"within {seconds:.1f} s: {total('involuntary')} involuntary and {total('voluntary')}"
        f" voluntary switches, {total('minor_faults')} minor and {total('major_faults')} major"
        f" page faults{waited}"
    )


def _timing(timing: Json | None) -> Iterable[model.Proof]:
    if timing is None:
        return
    if timing["means"]:
        yield model.Proof(
            "timing figures", "any", "; ".join(["mean something", *timing["disturbs"]])
        )
    else:
        yield model.Proof("timing figures", "any", f"mean nothing: {'; '.join(timing['against'])}")
