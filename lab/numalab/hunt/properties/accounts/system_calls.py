"""What system calls of the scheduler return, beside what they must."""

from collections.abc import Iterator
from errno import errorcode

from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import LoadRecording


@register_property("system-calls", unit="calls", most=0.0, any_load=True)
def system_calls(run: LoadRecording) -> Iterator[Observation]:
    """Probed system calls return what they must.

    The value is how many of those that the driver makes after a load, as root and as another user,
    return something else (headers of workloads/hunt): ranges of priorities, invalid
    parameters, flags, limits of users, time slices, memory barriers, CPU clocks, masks, files of
    cgroups, policies of children, lent priorities, futexes, the order of real-time tasks.
    """
    if (probes := run.printed.probes) is not None:
        text = f"{probes.wrong} of {probes.calls} system calls return other than they must"
        if probes.wrong:
            result = errorcode.get(-probes.result, str(probes.result))
            text += f", first {probes.name} in workloads/hunt: {result}"
        yield Observation(probes.wrong, text)
