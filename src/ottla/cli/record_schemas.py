"""``consume --decode avro|protobuf|json-schema``: values that were written with a schema registry.

Owns how a format of ``ottla.schemas`` becomes a decoder. A registry is asked once for each schema.
"""

import os
from collections.abc import Callable

from ottla.cli.failure import Exit, Failure
from ottla.errors import OttlaError

VARIABLE = "OTTLA_SCHEMA_REGISTRY"
Decode = Callable[[bytes], object]


def registry_decoder(kind: str, url: str | None, field: str) -> Decode:
    """Return what decodes ``field``, "key" or "value"; it raises ValueError, RegistryError.

    ``url``: the registry's; None: what the environment says. Raises Failure.
    """
    url = url or os.environ.get(VARIABLE)
    if not url:
        fix = f"--registry http://HOST:PORT, or ${VARIABLE}"
        raise Failure(f"--decode {kind} needs a schema registry", fix=fix, code=Exit.USAGE)
    from ottla import schemas

    try:
        registry = schemas.SchemaRegistry(url)
        match kind:
            case "avro":
                decode = schemas.Avro(registry).decode
            case "protobuf":
                return _protobuf(schemas.Protobuf(registry).decode, field)
            case _:
                decode = schemas.JsonSchema(registry).decode
    except OttlaError as error:
        raise Failure(str(error), code=Exit.USAGE) from error
    return lambda data: decode("", data, field=field)


def _protobuf(decode: Callable[..., object], field: str) -> Decode:
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import Message

    def decoded(data: bytes) -> object:
        message = decode("", data, field=field)
        assert isinstance(message, Message), "of the format"
        return MessageToDict(message, preserving_proto_field_name=True)

    return decoded
