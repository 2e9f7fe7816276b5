"""The JSON Schema of topology files, for editors that complete and check them."""

import json

from numalab.topology.file_format import TopologyFile
from numalab.topology.shapes.shape import SHAPES


def render_schema() -> str:
    """Render the JSON Schema (draft 2020-12) of a topology file."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TopologyFile.model_json_schema(),
        "title": "numalab topology",
    }
    shapes = {name: shape.model_json_schema() for name, shape in SHAPES.all().items()}
    for name, shape in shapes.items():
        shape["properties"]["kind"] |= {"const": name}
    schema["$defs"]["Shape"] = {"oneOf": [*shapes.values()]}
    return json.dumps(schema, indent=1) + "\n"
