"""JSON values by a registry's JSON Schemas. Checking needs jsonschema: ``ottla[json-schema]``.

Owns the use of jsonschema. Nothing is fetched from the network but from the registry: a ``$ref`` to
anywhere else is an error. Source: json-schema.org; Confluent's JSON Schema serializer.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.library.failures import BadArgument
from ottla.schemas.formats import Read, SchemaFormat, SubjectName, Write
from ottla.schemas.framing import HEADER_BYTES
from ottla.schemas.references import json_of, references_of, schema_given
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.schema import JSON, Reference, Schema


class JsonSchema(SchemaFormat):
    """JSON with a schema, as serializer and deserializer."""

    kind = JSON

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | bool | Schema | None = None,
        *,
        references: Sequence[Reference] = (),
        validate: bool = True,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        subject_name: str | SubjectName = "topic",
    ) -> None:
        """Make a format. Raises BadArgument.

        ``schema``: what values that are written are checked by, and those that are read; None:
        by the schema that they were written with. ``validate`` False: nothing is checked. For the
        other arguments see ``Avro``; the record's name is the schema's title.
        """
        super().__init__(
            registry,
            auto_register=auto_register,
            use_latest=use_latest,
            normalize=normalize,
            subject_name=subject_name,
        )
        if validate:
            _jsonschema()
        self._validate = validate
        self._own = schema_given(schema, JSON, references)

    def _record_name(self) -> str:
        found = json_of(self._own_schema().text)
        title = found.get("title") if isinstance(found, dict) else None
        if not isinstance(title, str):
            raise BadArgument("subject_name", "the schema has no title")
        return title

    def _own_schema(self) -> Schema:
        if self._own is None:
            fix = "give the format a schema, or use_latest=True"
            raise BadArgument("write JSON with a schema", "there is no schema", fix=fix)
        return self._own

    def _writer(self, schema: Schema | None) -> Write:
        check = self._checker(schema or self._own_schema())

        def encode(value: Any) -> bytes:
            check(value)
            text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            return text.encode()

        return encode

    def _reader(self, schema_id: int) -> Read:
        schema = self._registry.by_id(schema_id)
        self._check_kind(f"schema {schema_id}", schema)
        check = self._checker(self._own or schema)

        def decode(data: bytes) -> Any:
            found = json.loads(data[HEADER_BYTES:])
            check(found)
            return found

        return decode

    def _checker(self, schema: Schema) -> Any:
        """Return what raises ValueError for a value that the schema refuses."""
        if not self._validate:
            return _accept
        import referencing
        import referencing.jsonschema

        jsonschema = _jsonschema()
        root = json_of(schema.text)
        by_default = referencing.jsonschema.DRAFT7
        known: Any = referencing.Registry()
        for name, each in references_of(self._registry, schema):
            found = referencing.Resource.from_contents(json_of(each.text), by_default)
            known = known.with_resource(name, found)
        kind = jsonschema.validators.validator_for(root, default=jsonschema.Draft7Validator)
        try:
            kind.check_schema(root)
        except jsonschema.SchemaError as error:
            raise BadArgument("read a JSON Schema", error.message) from error
        checking = kind(root, registry=known)

        def check(value: object) -> None:
            wrong = jsonschema.exceptions.best_match(checking.iter_errors(value))
            if wrong is not None:
                raise ValueError(f"{wrong.json_path}: {wrong.message}"[:2000])

        return check


def _accept(value: object) -> None:
    """Take anything."""


def _jsonschema() -> Any:
    try:
        import jsonschema
        import jsonschema.validators
    except ImportError as error:
        fix = "pip install 'ottla[json-schema]', or validate=False"
        raise BadArgument("check by a JSON Schema", "jsonschema is missing", fix=fix) from error
    return jsonschema
