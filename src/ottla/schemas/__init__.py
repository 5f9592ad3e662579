"""Schemas of keys and values: a client of schema registries, and formats that use one.

Public, beside the client library (docs/schemas.md). Nothing is imported before it is asked for.
"""

from importlib import import_module

_PLACES = {
    "AsyncSchemaRegistry": "ottla.schemas.async_registry",
    "Avro": "ottla.schemas.avro",
    "JsonSchema": "ottla.schemas.json_schema",
    "Protobuf": "ottla.schemas.protobuf",
    "Reference": "ottla.schemas.schema",
    "Registered": "ottla.schemas.schema",
    "RegistryError": "ottla.schemas.schema",
    "Schema": "ottla.schemas.schema",
    "SchemaRegistry": "ottla.schemas.registry",
}

__all__ = [
    "AsyncSchemaRegistry",
    "Avro",
    "JsonSchema",
    "Protobuf",
    "Reference",
    "Registered",
    "RegistryError",
    "Schema",
    "SchemaRegistry",
]


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(place), name)
