"""What a registry keeps: schemas, what they refer to, and where they are registered.

Owns the values, their JSON, and the error. No I/O. Source: Confluent's Schema Registry API.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.client.library.failures import ClientError

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
KINDS = (AVRO, JSON, PROTOBUF)


class RegistryError(ClientError):
    """A schema registry has refused, or does not answer.

    ``status``: of HTTP; 0: there was no answer. ``error_code``: the registry's (40401: no such
    subject), or None.
    """

    def __init__(
        self, what: str, why: str, *, fix: str = "", status: int = 0, error_code: int | None = None
    ) -> None:
        super().__init__(what, why, fix=fix)
        self.status = status
        self.error_code = error_code

    @property
    def is_retriable(self) -> bool:
        """Whether the registry may answer later."""
        return self.status in (0, 408, 429) or self.status >= 500


class Reference(NamedTuple):
    """A schema that another one uses by ``name``: an Avro type, a ``$ref``, a .proto file."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema as a registry has it. ``kind``: "AVRO", "JSON" or "PROTOBUF"."""

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()


class Registered(NamedTuple):
    """A schema of a subject. ``version`` None: the registry did not say."""

    id: int
    subject: str
    version: int | None
    schema: Schema


def as_json(schema: Schema) -> dict[str, Any]:
    """Return what is sent for a schema. Registries before 5.5 know only Avro, and no kinds."""
    found: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        found["schemaType"] = schema.kind
    if schema.references:
        found["references"] = [each._asdict() for each in schema.references]
    return found


def read_schema(answer: Mapping[str, Any]) -> Schema:
    """Return the schema in an answer. Raises KeyError, TypeError, ValueError for what is none."""
    text, kind = answer["schema"], answer.get("schemaType") or AVRO
    if not isinstance(text, str) or not isinstance(kind, str):
        raise TypeError("a schema that is no text")
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), whole(each["version"]))
        for each in answer.get("references") or ()
    )
    return Schema(text, kind, references)


def whole(given: object) -> int:
    """Return an id or a version. Raises ValueError."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 31:
        raise ValueError(f"{given!r} is no id and no version")
    return given
