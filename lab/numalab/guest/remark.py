"""What a reader of a run's results should know about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class RemarkKind(StrEnum):
    """What a remark is about."""

    PLAN = "plan"  # what the placement distorts, known before the start
    MISPLACED = "misplaced"  # what is not as planned
    LEFT_OUT = "left out"  # what the guest left, and was not taken
    COMPLAINT = "complaint"  # of the guest's kernel
    BAD_BEATS = "bad beats"
    FLOOD = "flood"  # of its console
    UNKNOWN_KERNEL = "unknown kernel"  # newer than what the prediction knows
    DISTURBED = "disturbed"  # what makes timing less certain


@dataclass(frozen=True)
class Remark:
    """A remark: what it is about, and what it says, in words for people."""

    kind: RemarkKind
    text: str

    @classmethod
    def of_texts(cls, kind: RemarkKind, texts: Iterable[str], before: str = "") -> "list[Remark]":
        """Make a remark of each text, with `before` in front of it."""
        return [cls(kind, f"{before}{text}") for text in texts]
