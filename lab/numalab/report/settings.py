"""What all guests of a cell have in common beside the machine and the workload."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GuestSettings:
    """Settings that all guests of a cell share.

    `tunables` are those of all variants, such as `kernel/numa_balancing=0`; `cmdline` has the words
    that the study adds to the kernel's command line. `pages` is the host memory behind the guests,
    empty for the default. Nodes and environment of a command are part of the workload's `command`.
    """

    tunables: tuple[str, ...] = ()
    cmdline: tuple[str, ...] = ()
    pages: str = ""

    @property
    def line(self) -> str:
        """One line with all of them; empty where a study sets nothing."""
        cmdline = f"command line {' '.join(self.cmdline)}" if self.cmdline else ""
        pages = f"pages {self.pages}" if self.pages else ""
        return "; ".join(filter(None, [*self.tunables, cmdline, pages]))
