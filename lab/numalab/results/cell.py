"""Where variants are compared: one machine with one use of a workload."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A machine with a use of a workload, by its label: where variants are compared."""

    topology: str
    label: str

    def __str__(self) -> str:
        """Name it as reports do."""
        return f"{self.topology}, {self.label}"

    @property
    def name(self) -> str:
        """Its part of the names of runs and folders."""
        return f"{self.topology}_{self.label}"
