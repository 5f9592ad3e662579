"""The schemas of what commands print with ``-o json``, docs/output-schemas.json, for tests."""

import json
from pathlib import Path

import jsonschema

SCHEMAS = json.loads(
    (Path(__file__).parents[1] / "docs" / "output-schemas.json").read_text(encoding="utf-8")
)


def check(name, value):
    """Hold what a command said to its schema."""
    whole = {**SCHEMAS, "$ref": f"#/$defs/{name}"}
    jsonschema.Draft202012Validator(whole).validate(value)
