"""Schemas as they are given, and what they refer to.

Asks the registry for what a schema refers to; knows no encoding.
"""

import json
from collections.abc import Sequence
from typing import Any

from ottla.client.library.failures import BadArgument
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.schema import Reference, Schema

REFERENCES_MAX = 1_000
"""How many schemas one schema may lead to."""


def schema_given(schema: object, kind: str, references: Sequence[Reference]) -> Schema | None:
    """Return the schema that an argument means. Raises BadArgument."""
    if schema is None:
        return None
    if isinstance(schema, Schema):
        if schema.kind != kind:
            raise BadArgument("a schema", f"it is of {schema.kind}, not of {kind}")
        return schema
    text = schema if isinstance(schema, str) else json.dumps(schema)
    json_of(text)
    return Schema(text, kind, tuple(Reference(*each) for each in references))


def references_of(
    registry: SchemaRegistry, schema: Schema, *, form: str = ""
) -> list[tuple[str, Schema]]:
    """Return the names and schemas of all that ``schema`` refers to, the deepest first.

    Each name once. Asks the registry. Raises RegistryError, BadArgument.
    """
    found: dict[str, Schema] = {}
    open_names: list[str] = []

    def walk(at: Schema) -> None:
        for name, subject, version in at.references:
            if name in open_names:
                circle = " -> ".join((*open_names, name))
                raise BadArgument("read a schema", f"its references lead in a circle: {circle}")
            if name in found:
                continue
            if len(found) + len(open_names) >= REFERENCES_MAX:
                raise BadArgument("read a schema", f"more than {REFERENCES_MAX} references")
            open_names.append(name)
            there = registry.version(subject, version, form=form).schema
            walk(there)
            open_names.pop()
            found[name] = there

    walk(schema)
    return list(found.items())


def json_of(text: str) -> Any:
    """Return what a text is as JSON. Raises BadArgument."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadArgument("read a schema", f"it is no JSON: {error}") from error
