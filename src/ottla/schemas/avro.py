"""Avro values by a registry's schemas. Needs fastavro: ``pip install 'ottla[avro]'``.

Owns the use of fastavro. Source: Apache Avro 1.12 specification; Confluent's Avro serializer.
"""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.library.failures import BadArgument
from ottla.schemas.formats import Read, SchemaFormat, SubjectName, Write
from ottla.schemas.framing import HEADER_BYTES
from ottla.schemas.references import json_of, references_of, schema_given
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.schema import AVRO, Reference, Schema


class Avro(SchemaFormat):
    """Avro, as serializer and deserializer. Records are dicts."""

    kind = AVRO

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Sequence[Any] | Schema | None = None,
        *,
        references: Sequence[Reference] = (),
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        subject_name: str | SubjectName = "topic",
    ) -> None:
        """Make a format. Raises BadArgument.

        ``schema``: what is written, and what values that are read become (fields that their writer
        did not have get their defaults). None: values are read as they were written; written by
        the newest version, with ``use_latest``. ``references``: where the types are that ``schema``
        names. ``auto_register`` False: the schema must be registered already. ``normalize``: let
        the registry compare by meaning. ``subject_name``: "topic", "record", "topic-record", or a
        function of topic, "key" or "value", and the record's name.
        """
        super().__init__(
            registry,
            auto_register=auto_register,
            use_latest=use_latest,
            normalize=normalize,
            subject_name=subject_name,
        )
        _fastavro()
        self._own = schema_given(schema, AVRO, references)
        self._own_parsed: Any = None

    def _record_name(self) -> str:
        schema = self._own_schema()
        name = full_name(json_of(schema.text))
        if name is None:
            raise BadArgument("subject_name", "the schema has no name: it is no record")
        return name

    def _own_schema(self) -> Schema:
        if self._own is None:
            fix = "give the format a schema, or use_latest=True"
            raise BadArgument("write Avro", "there is no schema", fix=fix)
        return self._own

    def _writer(self, schema: Schema | None) -> Write:
        write = _fastavro().schemaless_writer
        parsed = self._parse(schema or self._own_schema())
        if _is_bytes(parsed):
            return bytes  # Confluent's serializers write no length before them.

        def encode(value: Any) -> bytes:
            file = io.BytesIO()
            write(file, parsed, value)
            return file.getvalue()

        return encode

    def _reader(self, schema_id: int) -> Read:
        schema = self._registry.by_id(schema_id)
        self._check_kind(f"schema {schema_id}", schema)
        written = self._parse(schema)
        if _is_bytes(written):
            return lambda data: data[HEADER_BYTES:]
        if self._own is not None and self._own_parsed is None:
            self._own_parsed = self._parse(self._own)
        wanted = self._own_parsed
        read = _fastavro().schemaless_reader

        def decode(data: bytes) -> Any:
            file = io.BytesIO(data)
            file.seek(HEADER_BYTES)
            return read(file, written, wanted)

        return decode

    def _parse(self, schema: Schema) -> Any:
        """Return the schema with all that it refers to. Raises ValueError."""
        import fastavro.repository
        import fastavro.schema

        named: dict[str, Any] = {}
        for name, each in references_of(self._registry, schema):
            named[name] = found = json_of(each.text)
            full = full_name(found)
            if full is not None:
                named[full] = found

        class Given(fastavro.repository.AbstractSchemaRepository):
            def load(self, name: str) -> Any:
                if name not in named:
                    raise fastavro.repository.SchemaRepositoryError(f"no type {name}")
                return json.loads(json.dumps(named[name]))  # It is changed where it is used.

        root = json_of(schema.text)
        try:
            if not named:
                return fastavro.parse_schema(root)
            named["$root"] = root
            return fastavro.schema.load_schema("$root", repo=Given())
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise BadArgument("read an Avro schema", why) from error


def full_name(schema: object) -> str | None:
    """Return the name of a named type with its namespace; None: it has none."""
    name = schema.get("name") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(name, str):
        return None
    space = schema.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


def _is_bytes(parsed: object) -> bool:
    if isinstance(parsed, dict):
        return parsed.get("type") == "bytes" and "logicalType" not in parsed
    return parsed == "bytes"


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        fix = "pip install 'ottla[avro]'"
        raise BadArgument("read and write Avro", "fastavro is missing", fix=fix) from error
    return fastavro
