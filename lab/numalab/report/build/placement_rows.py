"""The proved placement of a run on the host, as rows of a report."""

from collections.abc import Iterable, Sequence

from numalab.cpulist import format_cpulist
from numalab.guest.proof import MemoryProof, Proof, ThreadProof
from numalab.guest.usage import ThreadUsage, Usage
from numalab.guest.witness import Doubt, Timing
from numalab.report import document
from numalab.results.manifest import UNKNOWN


def placement_line(proof: Proof | None, timing: Timing | None) -> str:
    """Write the placement of a run in one line, and the disturbances of its timing."""
    if proof is None:
        return UNKNOWN
    line = proof.note or "one host CPU for each vCPU"
    disturbed = timing.disturbs if timing is not None else ()
    return f"{line}; timing was disturbed: {'; '.join(map(str, disturbed))}" if disturbed else line


def proof_rows(proof: Proof | None, timing: Timing | None) -> tuple[document.PlacementFact, ...]:
    """Return the placement of a run's QEMU as rows: threads, memory, and usage."""
    if proof is None:
        return ()
    return (
        *map(_thread, proof.threads),
        *map(_memory, proof.memory),
        *_usage(proof.usage),
        *_timing(timing, proof),
    )


def _thread(thread: ThreadProof) -> document.PlacementFact:
    planned, allowed = (
        f"host CPU {format_cpulist(cpus)}" for cpus in (thread.planned, thread.allowed)
    )
    # QEMU's other threads may run on fewer CPUs than they were given.
    within = not thread.vcpus and set(thread.allowed) <= set(thread.planned)
    return document.PlacementFact(thread.role, planned, planned if within else allowed)


def _memory(memory: MemoryProof) -> document.PlacementFact:
    subject, pages, planned = f"memory of node {memory.node}", memory.pages, memory.planned
    if planned is not None and set(pages) <= {planned}:
        where = f"host node {planned}"
        size = f"{pages.get(planned, 0)} pages of {memory.page_kib} KiB"
        return document.PlacementFact(f"{subject}, {size}", where, where)
    counts = (f"{n} pages of {memory.page_kib} KiB on host node {at}" for at, n in pages.items())
    asked = document.ANY_NODE if planned is None else f"host node {planned}"
    return document.PlacementFact(subject, asked, ", ".join(counts) or "no page touched")


def _usage(usage: Usage | None) -> Iterable[document.PlacementFact]:
    """Sum up the usage of QEMU's threads; the manifest lists every thread."""
    if usage is None:
        return
    vcpus = [thread for thread in usage.threads if thread.vcpus]
    helpers = [thread for thread in usage.threads if not thread.vcpus]
    for what, threads in (("vCPUs", vcpus), ("QEMU's other threads", helpers)):
        if threads:
            used = _used(threads, usage.seconds)
            yield document.PlacementFact(f"{what} while the workload ran", document.ANY, used)
    stolen = [f"{ms} ms of host CPU {cpu}" for cpu, ms in usage.stolen_ms.items() if ms]
    if usage.stolen_ms:
        text = ", ".join(stolen) or "nothing"
        yield document.PlacementFact("stolen by a hypervisor below", document.ANY, text)


def _used(threads: Sequence[ThreadUsage], seconds: float) -> str:
    involuntary, voluntary = (
        sum(thread.involuntary for thread in threads),
        sum(thread.voluntary for thread in threads),
    )
    minor, major = (
        sum(thread.minor_faults for thread in threads),
        sum(thread.major_faults for thread in threads),
    )
    waits = [thread.waited_ms for thread in threads if thread.waited_ms is not None]
    waited = f", waited {sum(waits):.0f} ms in all for a host CPU" if waits else ""
    return (
        f"within {seconds:.1f} s: {involuntary} involuntary and {voluntary} voluntary switches,"
        f" {minor} minor and {major} major page faults{waited}"
    )


def against(timing: Timing, proof: Proof | None) -> tuple[str, ...]:
    """Return why the timing figures of a run are not valid; empty if they are."""
    words: list[str] = []
    for doubt in timing.against:
        if doubt is Doubt.MODE or proof is None:
            words.append("not in kvm mode")
        elif doubt is Doubt.PLAN:
            words.append(proof.note)
        else:
            words += map(str, proof.differs)
    return tuple(words)


def _timing(timing: Timing | None, proof: Proof) -> Iterable[document.PlacementFact]:
    if timing is None:
        return
    if timing.means:
        text = "; ".join(["valid", *map(str, timing.disturbs)])
    else:
        text = f"not valid: {'; '.join(against(timing, proof))}"
    yield document.PlacementFact("timing figures", document.ANY, text)
