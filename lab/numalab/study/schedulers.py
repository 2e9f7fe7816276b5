"""The schedulers that the variants of a study name."""

from collections.abc import Collection
from pathlib import Path

from numalab.errors import UserError
from numalab.scheduler.scheduler_spec import SchedulerSpec, find_scheduler
from numalab.study.model import Study


def find_schedulers(
    study: Study, variants: Collection[str], path: Path
) -> dict[str, SchedulerSpec]:
    """Return the schedulers of those of `variants` that name one. Raises UserError."""
    schedulers = {}
    for name, variant in study.variants.items():
        if variant.scheduler is None or name not in variants:
            continue
        try:
            schedulers[name] = find_scheduler(
                variant.scheduler, variant.scheduler_arguments, path.parent
            )
        except UserError as error:
            raise UserError(str(error), file=path, key=f"variants.{name}") from None
    return schedulers
