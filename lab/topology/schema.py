"""The JSON Schema of topology files, for editors that complete and check them."""

import json

from lab.topology.file_format import TopologyFile


def render_schema() -> str:
    """Render the JSON Schema (draft 2020-12) of a topology file."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TopologyFile.model_json_schema(),
        "title": "numalab topology",
    }
    return json.dumps(schema, indent=1) + "\n"
