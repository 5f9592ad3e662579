"""Values by a schema in a file: Avro, and Protobuf's descriptors."""

import io
import json
import os

import pytest

from ottla.cli.record_decoders import Decoders
from ottla.records.record import Record

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "raw", "type": ["null", "bytes"]}],
}


def shown(how, data):
    return Decoders([how]).show(Record(value=data))


@pytest.fixture
def avro(tmp_path):
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(SCHEMA))
    return path


def encoded(value):
    fastavro = pytest.importorskip("fastavro")
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(SCHEMA), value)
    return file.getvalue()


def test_avro_by_a_file(avro):
    found = shown(f"avro:{avro}", encoded({"id": 7, "raw": b"\xff"}))
    assert (found.value, found.faults) == ({"id": 7, "raw": {"base64": "/w=="}}, {})


@pytest.mark.parametrize("data", [b"", b"\x02\x09", b"\xff" * 20, b"\x02\x00more"])
def test_bytes_that_are_no_avro_are_kept_and_marked(avro, data):
    found = shown(f"avro:{avro}", data)
    assert found.value == data
    assert found.faults["value"].startswith("not avro: ")


def test_files_that_are_no_schema_are_refused(tmp_path):
    bad = tmp_path / "bad"
    for text, why in ((b"{", "is no Avro schema"), (b'"nothing"', "is no Avro schema")):
        bad.write_bytes(text)
        with pytest.raises(ValueError, match=why):
            Decoders([f"avro:{bad}"])
    with pytest.raises(ValueError, match="cannot read"):
        Decoders([f"avro:{bad}x"])
    bad.write_bytes(b"\xff\xff")
    with pytest.raises(ValueError, match="no set of descriptors"):
        Decoders([f"protobuf:{bad}"])


@pytest.fixture
def descriptors(tmp_path):
    """Return the path of what protoc would write for an order, and a message."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2

    from tests.protobuf_messages import Order

    files = descriptor_pb2.FileDescriptorSet()
    for each in (*Order.DESCRIPTOR.file.dependencies, Order.DESCRIPTOR.file):
        each.CopyToProto(files.file.add())
    path = tmp_path / "orders.desc"
    path.write_bytes(files.SerializeToString())
    order = Order(id=5)
    order.to.city = "Bled"
    return path, order.SerializeToString()


def test_protobuf_by_descriptors(descriptors):
    path, data = descriptors
    found = shown(f"protobuf:{path}:shop.Order", data)
    assert (found.value, found.faults) == ({"id": "5", "to": {"city": "Bled"}}, {})
    assert shown(f"protobuf:{path}:shop.Order", b"\xff").faults["value"].startswith("not protobuf:")
    with pytest.raises(ValueError, match=r"which message\? .* of shop.Other, shop.Order"):
        Decoders([f"protobuf:{path}"])
    with pytest.raises(ValueError, match=r"no message shop\.Ordr"):
        Decoders([f"protobuf:{path}:shop.Ordr"])


def test_a_proto_file_is_compiled_by_protoc(descriptors, tmp_path, monkeypatch):
    path, data = descriptors
    source = tmp_path / "order.proto"
    source.write_text("what protoc reads")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ValueError, match="protoc, which compiles it, is not installed"):
        Decoders([f"protobuf:{source}:shop.Order"])
    program = tmp_path / "bin" / "protoc"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'for each in "$@"; do case "$each" in\n'
        f'--descriptor_set_out=*) /bin/cp {path} "${{each#*=}}";;\n'
        "*.bad) echo 'bad is bad' >&2; exit 1;; esac; done\n"
    )
    program.chmod(0o755)
    assert os.access(program, os.X_OK)
    assert shown(f"protobuf:{source}:shop.Order", data).value["id"] == "5"
