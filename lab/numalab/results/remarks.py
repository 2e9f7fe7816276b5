"""How the runs of a plan were chosen, where the study's file does not say it."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from numalab.results.stored import Count, Seconds, Stored
from numalab.units import format_seconds, runs_of


class StopReason(StrEnum):
    """Why a cell gets no more repetitions."""

    DIFFERENCE_SHOWN = "difference shown"
    INTERVAL_NARROW = "interval narrow"
    ALL_THE_SAME = "all the same"
    NOT_MEASURED = "not measured"
    ONE_VARIANT = "one variant"
    MOST_RUNS = "most runs"


_IN_WORDS = {
    StopReason.DIFFERENCE_SHOWN: "a difference was shown",
    StopReason.INTERVAL_NARROW: "its interval is narrow",
    StopReason.ALL_THE_SAME: "all runs gave the same value",
    StopReason.NOT_MEASURED: "it could not be measured",
    StopReason.ONE_VARIANT: "there is one variant",
}


class Decided(Stored):
    """A cell (as reports name it) that gets no more repetitions: why, and how many runs it has of
    each variant."""

    cell: str
    why: tuple[StopReason, ...]
    runs: Count

    def __str__(self) -> str:
        """Write it as reports do."""
        most = f"there are {self.runs} runs of each variant"
        return f"{self.cell}: {'; '.join(_IN_WORDS.get(why, most) for why in self.why)}"


class BudgetRemark(Stored):
    """Some of the runs were chosen, for a budget of wall time."""

    kind: Literal["budget"] = "budget"
    chosen: Count
    planned: Count
    seconds: Seconds

    def __str__(self) -> str:
        """Write it as reports do."""
        return (
            f"{self.chosen} of {self.planned} runs were chosen for a budget of"
            f" {format_seconds(self.seconds)}: all cells first, then repetitions"
        )


class TimeOverRemark(Stored):
    """The time was over before the last of the runs could be started."""

    kind: Literal["time over"] = "time over"
    left: Count

    def __str__(self) -> str:
        """Write it as reports do."""
        return f"the time was over before {runs_of(self.left)} more could be done"


class RepetitionsRemark(Stored):
    """Repetitions were added by a rule: until a measure was decided at a level, its interval was
    narrower than a precision (percent), or there were the most runs."""

    kind: Literal["repetitions"] = "repetitions"
    measure: str
    level: float
    looks: Count
    precision: float
    most: Count
    decided: tuple[Decided, ...] = ()

    def __str__(self) -> str:
        """Write it as reports do."""
        rule = (
            f"repetitions were added until {self.measure} showed a difference (p < {self.level:g} /"
            f" {self.looks}, for {self.looks} looks at most), or its 95 % interval was narrower"
            f" than +-{self.precision:g} % of the mean before, or each variant had {self.most} runs"
        )
        return "; ".join([rule, *map(str, self.decided)])


class NoteRemark(Stored):
    """What an older numalab wrote in words."""

    kind: Literal["note"] = "note"
    text: Annotated[str, Field(max_length=1 << 16)]

    def __str__(self) -> str:
        """Write it as it was."""
        return self.text


Remark = Annotated[
    BudgetRemark | TimeOverRemark | RepetitionsRemark | NoteRemark, Field(discriminator="kind")
]
