"""The verdict on a patch that changes no instruction of the kernel, and what to do about it."""

import re
from collections.abc import Sequence

from numalab.kernel.kernel_specs import KernelSpec, other_configurations
from numalab.patch.verdict import Word
from numalab.reach.model import LineState
from numalab.reach.prepare import ReachPlan
from numalab.source.changes import FileChange
from numalab.units import counted

_OPTIONS = (
    "fragments in kernel-configs set the options of both kernels; defaults count only for options"
    " that the patch adds"
)
_OTHERS = "other configurations of this source for --base: {}"
_KCONFIG = re.compile(r"(^|/)Kconfig[^/]*$|defconfig$")


def word_of_equal_code(
    reach: ReachPlan, base: KernelSpec, changes: Sequence[FileChange]
) -> tuple[Word, tuple[str, ...]]:
    """Return the verdict on a patch that changes no instruction, and why lines are not compiled."""
    lines = [line for table in reach.tables.values() for line in table.lines if line.is_changed]
    reasons = [line.reason for line in lines if line.state is LineState.COMPILED_OUT]
    is_coded = any(line.functions for line in lines)
    if reasons:
        why = list(dict.fromkeys(reasons))[:2]
        if is_coded:
            why = [f"{counted(len(reasons), 'changed line')} left out: {', '.join(why)}"]
        names = ", ".join(other_configurations(base))
        remarks = (*why, _OPTIONS, _OTHERS.format(names)) if names else (*why, _OPTIONS)
        return "same code" if is_coded else "not compiled", remarks
    if is_coded:
        return "same code", ()
    configures = any(_KCONFIG.search(change.new or "") for change in changes)
    return "no code", (_OPTIONS,) if configures else ()
