"""A kernel that has no name: a base and a patch on top of it."""

from dataclasses import replace

from lab.errors import UserError
from lab.kernel.catalogue import KernelSpec, load_kernels
from lab.kernel.find import find_series


def with_series(base: KernelSpec, text: str) -> KernelSpec:
    """Return `base` with one more series, which `text` names as `find_series` takes it.

    Where a kernel in kernels.toml has that series and the sched groups of before 4.13, so has
    this one. Raises UserError for a prebuilt base and for a series that cannot be read.
    """
    if base.is_prebuilt:
        raise UserError(f"{base.name} is built already: patches need a source", key="--base")
    series = find_series(text)
    known = [find_series(name) for spec in _before_fix() for name in spec.series]
    same = any(one.info.digest == series.info.digest for one in known)
    return replace(
        base,
        name=f"{base.name}+{series.name}",
        summary=f"{base.name} with {series.name}",
        series=(*base.series, text),
        groups_before_fix=base.groups_before_fix or same,
    )


def _before_fix() -> list[KernelSpec]:
    return [spec for spec in load_kernels().values() if spec.groups_before_fix]
