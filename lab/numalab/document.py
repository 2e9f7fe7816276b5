"""Reads TOML files, and explains the errors in one by file and key."""

import json
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from numalab.errors import UserError, did_you_mean, shown
from numalab.files import read_bounded, read_json, reading

MAX_BYTES = 1 << 20
DEEPEST = 32  # tables in each other
MOST_TABLES = 20_000  # and lists: each that is wrong takes a kilobyte for every key
MOST_ERRORS = 100  # that are explained
# Strings and comments, as tomllib ends them; one without an end reaches to that of the text.
_NO_KEYS = re.compile(
    r'''"""(?:[^"\\]++|\\.|"(?!""))*+"{0,5}|'{3}(?:[^']++|'(?!''))*+'{0,5}'''
    r"""|"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?|\#[^\n]*+""",
    re.DOTALL,
)
_DEEP_KEY = re.compile(rf"(?:\.[ \t]*+[\w-]++[ \t]*+){{{DEEPEST}}}")


class Document(BaseModel):
    """A table of a TOML file: immutable, without unknown keys.

    A schema is built when it is first used: most commands use few of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


D = TypeVar("D", bound=Document)
_T = TypeVar("_T")
# A list that may be long: reading stops at its first error, as each takes a kilobyte.
Listed = Annotated[tuple[_T, ...], FailFast()]
# Of a column of integers, and of what a float represents.
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


def read_document(path: Path, model: type[D]) -> D:
    """Read a TOML file as `model`.

    Raises UserError with file, key and valid values for a missing or unreadable file, bad TOML, and
    the first key that does not fit the model.
    """
    return check_document(read_toml(path), model, path)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file into plain values; UserError when it cannot be read or parsed."""
    with reading(path):
        if path.exists() and not path.is_file():  # a device may never end, a pipe never begin
            raise UserError("is not a file", file=path)
    data = read_bounded(path, MAX_BYTES)
    try:
        text = data.decode("utf-8-sig")  # some editors begin with a BOM
        # Memory of tomllib grows with the square of the parts of a key.
        if _DEEP_KEY.search(_NO_KEYS.sub("_", text)):
            raise _too_deep(path)
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # an integer may be too long for Python, too
        raise UserError(f"not TOML: {_why_no_toml(error, data)}", file=path) from None
    _check_size(table, path)
    return table


def _why_no_toml(error: ValueError | RecursionError, data: bytes) -> str:
    """Return why a text is no TOML; of a key that is given twice, with its name."""
    place = re.search(r"Cannot overwrite a value \(at line (\d+)", str(error))
    if place is None:
        return str(error)
    line = data.decode("utf-8-sig").split("\n")[int(place[1]) - 1]
    return f"line {place[1]} gives {line.partition('=')[0].strip()} a second time"


def read_record(path: Path, kind: type[_T]) -> _T | None:
    """Read a JSON record of the cache; None for no record or a damaged one.

    Damage to the cache is no error: everything in it can be made again.
    """
    try:
        if not path.is_file():  # a pipe would block
            return None
        return TypeAdapter(kind).validate_json(json.dumps(read_json(path)))
    except (UserError, OSError, ValueError, RecursionError):
        return None


def _too_deep(path: Path) -> UserError:
    return UserError(f"has more than {DEEPEST} tables in each other", file=path)


def _check_size(table: dict[str, Any], path: Path) -> None:
    level: list[Any] = [table]
    count = 0
    for _ in range(DEEPEST):
        level = [
            inner
            for values in level
            for inner in (values.values() if isinstance(values, dict) else values)
            if isinstance(inner, dict | list)
        ]
        count += len(level)
    if level:
        raise _too_deep(path)
    if count > MOST_TABLES:
        raise UserError(
            f"has {count} tables and lists, and at most {MOST_TABLES} are read", file=path
        )


def check_document(table: dict[str, Any], model: type[D], path: Path) -> D:
    """Check plain values against `model`; UserError for the first key that does not fit."""
    try:
        # Through JSON, where strict means no coercion but an array may still be a tuple.
        return model.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise next(_all_explained(error, table, model, path)) from None


def document_errors(table: dict[str, Any], model: type[D], path: Path) -> tuple[UserError, ...]:
    """Return an error for every key that does not fit `model`, unknown keys first."""
    try:
        model.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        return tuple(islice(_all_explained(error, table, model, path), MOST_ERRORS))
    return ()


def _all_explained(
    error: ValidationError, table: dict[str, Any], model: type[Document], path: Path
) -> Iterator[UserError]:
    # A misspelt key is also a missing key; a person can fix the misspelling.
    # A list whose only value is wrong is also too short "after validation".
    every = error.errors()
    details = [detail for detail in every if not _follows(detail, every)]
    details.sort(key=lambda detail: detail["type"] != "extra_forbidden")
    by_key: dict[str, list[ErrorDetails]] = {}
    for detail in details:
        by_key.setdefault(_dotted(_location(detail, table)), []).append(detail)
    return (_explained(key, alike, model, path) for key, alike in by_key.items())


def _follows(detail: ErrorDetails, details: Sequence[ErrorDetails]) -> bool:
    place = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(place)] == place and other["loc"] != place for other in details
    )


def _location(detail: ErrorDetails, table: dict[str, Any]) -> tuple[int | str, ...]:
    """Return where an error is in the file: without the branches of a union, such as `str`."""
    value: Any = table
    place = []
    for at, part in enumerate(detail["loc"]):
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif at + 1 < len(detail["loc"]) or detail["type"] not in ("missing", "extra_forbidden"):
            continue
        place.append(part)
    return tuple(place)


def _explained(
    key: str, alike: Sequence[ErrorDetails], model: type[Document], path: Path
) -> UserError:
    """Explain the errors of one key: there are several where none of several types fits."""
    detail = alike[0]
    match detail["type"]:
        case "extra_forbidden":
            fields = _fields_at(model, detail["loc"][:-1])
            hint = did_you_mean(str(detail["loc"][-1]), fields)
            return UserError(f"unknown key{hint}", file=path, key=key, choices=fields)
        case "missing":
            return UserError("this key is missing", file=path, key=key)
        case "too_short" | "too_long":
            return UserError(_wrong_length(detail), file=path, key=key or None)
        case "value_error":
            return UserError(str(detail["ctx"]["error"]), file=path, key=key or None)
    value = repr(detail["input"])[:60]
    first, *rest = dict.fromkeys(error["msg"] for error in alike)
    texts = [_lowered(first), *(text.removeprefix("Input should be ") for text in rest)]
    return UserError(f"{', or '.join(texts)}, found {value}", file=path, key=key or None)


def _wrong_length(detail: ErrorDetails) -> str:
    context = detail["ctx"]
    few = detail["type"] == "too_short"
    bound = context["min_length" if few else "max_length"]
    values = "1 value" if bound == 1 else f"{bound} values"
    return f"needs at {'least' if few else 'most'} {values}, found {context['actual_length']}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _dotted(location: tuple[int | str, ...]) -> str:
    """Return the name of a location: `variants.before.kernel`, `claims[2].measure`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{shown(part)}"
    return text.lstrip(".")


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the table at `location`."""
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            if inner is None:
                return []
            model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the model in `Model`, `tuple[Model, ...]`, `dict[str, Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) is not None or isinstance(annotation, types.UnionType):
        models = (_model_in(part) for part in typing.get_args(annotation))
        return next(filter(None, models), None)
    return None
