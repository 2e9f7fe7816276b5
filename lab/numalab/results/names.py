"""Names that become part of a path: what imported results call their runs and cells.

A name is checked where it is read (`PlainName` in the models of stored files) and once more where
it is put into a path (`results.layout`), so that no other module has to think of it.
"""

import re
from typing import Annotated

from pydantic import AfterValidator

LONGEST_NAME = 200
UNFINISHED = (".running", ".failed", ".interrupted")  # a run's folder that is no result
_PLAIN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._,:+@=-]{{0,{LONGEST_NAME - 1}}}")


def is_plain(name: str) -> bool:
    """Say whether a name stays where it is put: no separator, no leading dot, no control character,
    and not that of a run that has not ended."""
    return _PLAIN.fullmatch(name) is not None and not name.endswith(UNFINISHED)


def plain_name(name: str) -> str:
    """Return a name that `is_plain`. Raises ValueError for another."""
    if not is_plain(name):
        raise ValueError(f"{name[:80]!r} is not a plain name")
    return name


PlainName = Annotated[str, AfterValidator(plain_name)]
