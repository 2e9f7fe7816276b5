"""The report as one JSON document: every measure of every run, and the comparisons.

`numalab.report.document` describes the keys, docs/report.schema.json is the schema.
"""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from numalab.report.document import StudyResults
from numalab.report.formats.format import register_format

_ADAPTER = TypeAdapter(StudyResults)


def report_document(study: StudyResults) -> dict[str, Any]:
    """Return a study's report as objects, lists, texts and numbers.

    A figure that a guest could not measure is null. Half of a surrogate pair, which most readers of
    JSON refuse, becomes U+FFFD.
    """
    document = _ADAPTER.dump_python(study, mode="json", by_alias=True)
    cells, missing = document.pop("cells"), document.pop("unfinished")
    document |= ({"unfinished": missing} if missing else {}) | {"cells": cells}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    whole: dict[str, Any] = json.loads(
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )
    return whole


@register_format("json")
def render_document(study: StudyResults) -> str:
    """Return the document as JSON text with a final newline; never NaN or Infinity."""
    return json.dumps(report_document(study), indent=1, allow_nan=False) + "\n"


class _Schema(GenerateJsonSchema):
    """Requires every key, because a document has them all."""

    def field_is_required(self, *_args: Any, **_options: Any) -> bool:
        return True


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    schema = _ADAPTER.json_schema(mode="serialization", schema_generator=_Schema)
    schema["required"].remove("unfinished")
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | schema | {"title": "numalab report"}
