"""kio as an oracle: every (message, version) goes both ways and means the same to both."""

import datetime as dt
import io
import typing
from dataclasses import MISSING, fields
from uuid import UUID

import pytest
from hypothesis import given, settings

from ottla.protocol.fields import Required, Wire

pytestmark = pytest.mark.slow

kio_index = pytest.importorskip("kio.index")
kio_errors = pytest.importorskip("kio.schema.errors")
kio_serial = pytest.importorskip("kio.serial")

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)


def kio_class(message, version):
    load = (
        kio_index.load_request_schema
        if message.__name__.endswith("Request")
        else kio_index.load_response_schema
    )
    return load(message.API_KEY, version)


def present(table, version):
    return [(name, field) for name, field in table.FIELDS.items() if version in field.versions]


def nested_class(hint):
    """Return the kio dataclass inside ``X | None`` or ``tuple[X, ...]``."""
    for argument in typing.get_args(hint):
        if argument is not type(None) and argument is not Ellipsis:
            return nested_class(argument)
    return hint


def simple_to_kio(value, kafka_type):
    if kafka_type == "error_code":
        return kio_errors.ErrorCode(value)
    if kafka_type.startswith("timedelta"):
        return value * MILLISECOND
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + value * MILLISECOND
    if kafka_type == "uuid":
        return None if value == bytes(16) else UUID(bytes=value)
    return value


def check_nullable_and_default(name, field, kio_field, hint, version):
    """What no round trip shows: that null is refused where it must be, and the defaults."""
    if field.wire in {Wire.STRING, Wire.BYTES, Wire.RECORDS, Wire.ARRAY, Wire.STRUCT}:
        nullable = type(None) in typing.get_args(hint)
        assert nullable == (version in field.nullable), name
    if field.default is Required.REQUIRED or kio_field.default is MISSING:
        assert field.tag is None, "a tagged field can be absent: both must say what it then is"
        return
    if field.wire is Wire.STRUCT and field.tag is not None:
        assert field.default is None
        assert kio_field.default == to_kio(field.of(), nested_class(hint), version)
    elif isinstance(field.default, list):
        assert kio_field.default == ()
    else:
        assert kio_field.default == simple_to_kio(
            field.default, kio_field.metadata.get("kafka_type", "")
        ), name


def to_kio(struct, kio_type, version):
    """Build kio's own instance out of ours, field by field, matched by position and by name."""
    ours = present(type(struct), version)
    theirs = fields(kio_type)
    hints = typing.get_type_hints(kio_type)
    assert len(ours) == len(theirs), kio_type
    values = {}
    for (name, field), kio_field in zip(ours, theirs, strict=True):
        assert kio_field.name in {name, name.removesuffix("_ms")}
        assert kio_field.metadata.get("tag") == field.tag
        check_nullable_and_default(name, field, kio_field, hints[kio_field.name], version)
        values[kio_field.name] = field_to_kio(
            getattr(struct, name), field, kio_field, hints[kio_field.name], version
        )
    return kio_type(**values)


def field_to_kio(value, field, kio_field, hint, version):
    kafka_type = kio_field.metadata.get("kafka_type")
    if value is None:
        if field.tag is not None and field.wire is Wire.STRUCT:
            return kio_field.default
        return None
    if field.wire is Wire.ARRAY and isinstance(field.of, Wire):
        return tuple(simple_to_kio(element, kafka_type) for element in value)
    if field.wire is Wire.ARRAY:
        return tuple(to_kio(element, nested_class(hint), version) for element in value)
    if field.wire is Wire.STRUCT:
        return to_kio(value, nested_class(hint), version)
    return simple_to_kio(value, kafka_type)


def as_bytes(kio_message):
    buffer = io.BytesIO()
    kio_serial.entity_writer(type(kio_message))(buffer, kio_message)
    return buffer.getvalue()


def test_agrees_with_kio_both_ways(message, each_version, messages):
    for version in each_version(message):
        check_both_ways(message, version, messages(message, version))


def check_both_ways(message, version, strategy):
    kio_type = kio_class(message, version)
    read = kio_serial.entity_reader(kio_type)

    @settings(settings.get_profile("protocol"))
    @given(strategy)
    def agrees(ours):
        encoded = ours.encode(version)
        theirs = to_kio(ours, kio_type, version)
        assert as_bytes(theirs) == encoded
        assert read(encoded, 0) == (theirs, len(encoded))
        assert message.decode(encoded, version, strict=True) == ours

    agrees()


def test_the_full_message_agrees_with_kio(message, each_version, full_message):
    for version in each_version(message):
        ours = full_message(message, version)
        encoded = ours.encode(version)
        kio_type = kio_class(message, version)
        theirs = to_kio(ours, kio_type, version)
        assert as_bytes(theirs) == encoded
        assert kio_serial.entity_reader(kio_type)(encoded, 0) == (theirs, len(encoded))
        assert message.decode(encoded, version, strict=True) == ours


def test_every_declared_pair_is_covered(pairs, record_property):
    record_property("message_version_pairs", len(pairs))
    print(f"{len(pairs)} (message, version) pairs, {len({m for m, _ in pairs})} messages")
    assert len(pairs) == len(set(pairs))
    assert len(pairs) >= 550
