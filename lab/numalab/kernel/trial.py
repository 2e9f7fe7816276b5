"""A kernel that has no name: a base and a patch on top of it."""

from dataclasses import replace

from numalab.errors import UserError
from numalab.kernel.catalogue import KernelSpec, load_kernels
from numalab.kernel.find import find_series
from numalab.topology.predict.groups import Construction


def with_series(base: KernelSpec, text: str) -> KernelSpec:
    """Return `base` with one more series, which `text` names as `find_series` takes it.

    Where a kernel in kernels.toml has that series and sched groups of its own kind, so has this
    one. Raises UserError for a prebuilt base and for a series that cannot be read.
    """
    if base.is_prebuilt:
        raise UserError(f"{base.name} is built already: patches need a source", key="--base")
    series = find_series(text)
    groups = [
        spec.groups
        for spec in load_kernels().values()
        if spec.groups is not Construction.NOW
        and any(find_series(name).info.digest == series.info.digest for name in spec.series)
    ]
    return replace(
        base,
        name=f"{base.name}+{series.name}",
        summary=f"{base.name} with {series.name}",
        series=(*base.series, text),
        groups=groups[0] if groups else base.groups,
    )
