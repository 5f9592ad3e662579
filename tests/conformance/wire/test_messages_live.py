"""Every (API, version) that the broker under test advertises, asked once over a socket.

With ``--target kafka`` this asks Apache Kafka whether our requests are ones, and reads its answers
with our tables to the last byte: the oracle that no library stands in for.
"""

import socket

import pytest

from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.fields import Required, Wire
from ottla.protocol.header import decode_response_header, encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest

CORRELATION_ID = 77
TIMEOUT_S = 10
PLAIN_VALUES = {
    Wire.BOOLEAN: False,
    Wire.STRING: "x",
    Wire.BYTES: b"",
    Wire.RECORDS: b"",
    Wire.UUID: bytes(16),
    Wire.FLOAT64: 0.0,
}
NOT_FOR_CLIENTS = {
    (ApiKey.ADD_PARTITIONS_TO_TXN, 4),  # brokers' versions: an empty one is never answered
    (ApiKey.ADD_PARTITIONS_TO_TXN, 5),
}
VALUES = {
    ApiKey.PRODUCE: {"acks": 1},
    ApiKey.DESCRIBE_ACLS: {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    },
}


def plain(table, version):
    """Return an instance with as little in it as the version allows."""
    values = {}
    for name, field in table.FIELDS.items():
        if version not in field.versions or field.default is not Required.REQUIRED:
            continue
        if version in field.nullable:
            values[name] = None
        elif field.wire is Wire.ARRAY:
            values[name] = []
        elif field.wire is Wire.STRUCT:
            values[name] = plain(field.of, version)
        else:
            values[name] = PLAIN_VALUES.get(field.wire, 0)
    return table(**values)


def receive(connection, count):
    data = bytearray()
    while len(data) < count:
        received = connection.recv(count - len(data))
        assert received, "the broker closed the connection"
        data += received
    return bytes(data)


def ask(bootstrap, api, version, request):
    """Send one request on a connection of its own; return the answer, read to its last byte."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        header = encode_request_header(api.key, version, CORRELATION_ID, "wire-test")
        frame = header + request.encode(version)
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = receive(connection, int.from_bytes(receive(connection, 4), "big"))
    buffer = memoryview(answer)
    correlation_id, position = decode_response_header(
        buffer, 0, len(answer), api_key=api.key, api_version=version
    )
    assert correlation_id == CORRELATION_ID
    message, end = api.response.decoder(version)(buffer, position, len(answer))
    assert end == len(answer)
    assert bytes(buffer[position:]) == message.encode(version)
    return message


@pytest.fixture(scope="module")
def advertised(target):
    """The versions that the broker under test advertises, by API key."""
    request = ApiVersionsRequest(client_software_name="wire-test", client_software_version="0")
    answer = ask(target.bootstrap, API_TABLE[ApiKey.API_VERSIONS], 4, request)
    return {key.api_key: range(key.min_version, key.max_version + 1) for key in answer.api_keys}


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_every_advertised_version_is_answered_in_its_schema(api, target, advertised):
    versions = advertised.get(api.key)
    if versions is None:
        return  # this broker does not offer it, and says so
    assert (versions.start, versions.stop - 1) == (
        api.advertised_versions.first,
        api.advertised_versions.last,
    )
    for version in api.versions:
        if (api.key, version) in NOT_FOR_CLIENTS or api.key is ApiKey.UNREGISTER_BROKER:
            continue
        request = plain(api.request, version)
        for name, value in VALUES.get(api.key, {}).items():
            setattr(request, name, value)
        ask(target.bootstrap, api, version, request)
