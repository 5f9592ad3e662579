"""Frames that real clients and a live Apache Kafka 4.3.0 put on the wire, recorded once.

Ours must read each to its last byte and write the same bytes again. In particular the traps of
ApiVersions: its response header never has tags, and a version from the future is answered with a
v0 body that lists ApiVersions alone.
"""

import pytest

from ottla.protocol.apis import API_TABLE
from ottla.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from ottla.protocol.messages.fetch import FetchResponse

CORRELATION_ID = 77

RESPONSES = [
    (
        "ApiVersionsResponse",
        4,
        (
            "0000004d00004c00000000000d000001000400120000020001000b0000030000000d000008000200"
            "0a0000090001000a00000a0000000600000b0000000900000c0000000400000d0000000500000e00"
            "00000500000f00000006000010000000050000110000000100001200000004000013000200070000"
            "14000100060000150000000200001600000005000017000200040000180000000500001900000004"
            "00001a0000000500001b0001000200001c0000000500001d0001000300001e0001000300001f0001"
            "00030000200001000400002100000002000022000100020000230001000500002400000002000025"
            "000000030000260001000300002700010002000028000100020000290001000300002a0000000200"
            "002b0000000200002c0000000100002d0000000100002e0000000000002f00000000000030000000"
            "01000031000000010000320000000000003300000000000037000000020000390000000200003c00"
            "00000200003d00000000000040000000000000410000000000004200000002000044000000010000"
            "450000000100004a0000000100004b0000000000004c0001000100004d0001000100004e00010002"
            "00004f00010002000050000000010000510000000000005300000000000054000000000000550000"
            "00010000560000000000005700000001000058000000000000590000000000005a0000000100005b"
            "0000000000005c0000000000000000000300a401080e67726f75702e76657273696f6e0000000100"
            "0e6b726166742e76657273696f6e0000000100116d657461646174612e76657273696f6e0007001e"
            "000e73686172652e76657273696f6e00000001001073747265616d732e76657273696f6e00000001"
            "00147472616e73616374696f6e2e76657273696f6e000000020021656c696769626c652e6c656164"
            "65722e7265706c696361732e76657273696f6e000000010001080000000000000111029101070e67"
            "726f75702e76657273696f6e00010001001073747265616d732e76657273696f6e00010001001474"
            "72616e73616374696f6e2e76657273696f6e000200020021656c696769626c652e6c65616465722e"
            "7265706c696361732e76657273696f6e00010001000e73686172652e76657273696f6e0001000100"
            "116d657461646174612e76657273696f6e001e001e00"
        ),
    ),
    (
        "CreateTopicsResponse",
        7,
        (
            "0000004d00000000000208666c696768747300000000000000000000000000000000002420546f70"
            "69632027666c69676874732720616c7265616479206578697374732effffffffffff010000"
        ),
    ),
    (
        "MetadataResponse",
        13,
        (
            "0000004d000000000002000000010a3132372e302e302e3100006ee8000017414141414141414151"
            "414341414141414141414141510000000102000008666c6967687473b2e8b164a563497f87b2d4e5"
            "6707cf26000300000000000000000001000000000200000001020000000101000000000000010000"
            "0001000000000200000001020000000101008000000000000000"
        ),
    ),
    (
        "ProduceResponse",
        13,
        (
            "0000004d0002b2e8b164a563497f87b2d4e56707cf26020000000000000000000000000000ffffff"
            "ffffffffff0000000000000000010000000000000000"
        ),
    ),
    (
        "FetchResponse",
        18,
        (
            "0000004d000000000000000000000002b2e8b164a563497f87b2d4e56707cf260200000000000000"
            "000000000000010000000000000001000000000000000000ffffffff4a0000000000000000000000"
            "3d0000000002e641a44b0000000000000000018bcfe568000000018bcfe56800ffffffffffffffff"
            "ffffffffffff0000000116000000010a68656c6c6f00000000"
        ),
    ),
    (
        "FetchResponse",
        4,
        (
            "0000004d00000000000000010007666c696768747300000001000000000001ffffffffffffffffff"
            "ffffffffffffffffffffff00000000"
        ),
    ),
    (
        "ListOffsetsResponse",
        11,
        (
            "0000004d00000000000208666c696768747302000000000000ffffffffffffffff00000000000000"
            "0100000000000000"
        ),
    ),
    (
        "DescribeTopicPartitionsResponse",
        0,
        (
            "0000004d000000000002000008666c6967687473b2e8b164a563497f87b2d4e56707cf2600030000"
            "00000000000000010000000002000000010200000001010101000000000000010000000100000000"
            "020000000102000000010101010000000df800ff00"
        ),
    ),
    (
        "DescribeClusterResponse",
        2,
        (
            "0000004d000000000000000001174141414141414141514143414141414141414141415100000001"
            "02000000010a3132372e302e302e3100006ee80000008000000000"
        ),
    ),
]

FIRST_REQUESTS = [
    (
        "java",
        (
            "0012000400000000000e4765744f66667365745368656c6c00126170616368652d6b61666b612d6a61766106"
            "342e332e3000"
        ),
        RequestHeader(18, 4, 0, "GetOffsetShell", 25),
        ("apache-kafka-java", "4.3.0"),
    ),
    (
        "librdkafka",
        (
            "0012000300000001000772646b61666b610017636f6e666c75656e742d6b61666b612d707974686f6e16322e"
            "31362e312d72646b61666b612d322e31362e3000"
        ),
        RequestHeader(18, 3, 1, "rdkafka", 18),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"),
    ),
]

CLASSES = {api.name + "Response": api.response for api in API_TABLE.values()}


def decode_response(name, version, frame):
    message = CLASSES[name]
    buffer = memoryview(frame)
    correlation_id, position = decode_response_header(
        buffer, 0, len(frame), api_key=message.API_KEY, api_version=version
    )
    assert correlation_id == CORRELATION_ID
    decoded, end = message.decoder(version)(buffer, position, len(frame))
    assert end == len(frame)
    return decoded


@pytest.mark.parametrize(("name", "version", "text"), RESPONSES, ids=lambda value: str(value)[:20])
def test_what_kafka_answers_is_read_whole_and_written_alike(name, version, text):
    frame = bytes.fromhex(text)
    decoded = decode_response(name, version, frame)
    header = encode_response_header(decoded.API_KEY, version, CORRELATION_ID)
    assert header + decoded.encode(version) == frame


def test_the_table_of_apis_is_the_one_kafka_advertises():
    name, version, text = RESPONSES[0]
    answer = decode_response(name, version, bytes.fromhex(text))
    live = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    ours = {
        int(api.key): (api.advertised_versions.first, api.advertised_versions.last)
        for api in API_TABLE.values()
    }
    telemetry = {71: (0, 0), 72: (0, 0)}  # Kafka tells of these only when it has a receiver
    assert ours == live | telemetry


def test_a_fetched_batch_comes_out_as_it_went_in():
    text = next(
        text for name, version, text in RESPONSES if (name, version) == ("FetchResponse", 18)
    )
    partition = decode_response("FetchResponse", 18, bytes.fromhex(text)).responses[0].partitions[0]
    assert isinstance(partition.records, memoryview)
    assert bytes(partition.records).endswith(b"\x0ahello\x00")
    assert (partition.high_watermark, partition.aborted_transactions) == (1, None)
    assert FetchResponse.API_KEY == 1


@pytest.mark.parametrize(
    ("client", "text", "header", "software"), FIRST_REQUESTS, ids=lambda value: str(value)[:12]
)
def test_the_first_request_of_a_client(client, text, header, software):
    frame = bytes.fromhex(text)
    buffer = memoryview(frame)
    read = decode_request_header(buffer, 0, len(frame))
    assert read == header
    version = read.api_version
    body, end = ApiVersionsRequest.decoder(version)(buffer, read.position, len(frame))
    assert (body.client_software_name, body.client_software_version) == software
    assert end == len(frame)
    assert encode_request_header(*read[:4]) + body.encode(version) == frame


def test_the_answer_to_an_api_versions_request_from_the_future():
    answer = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    assert answer.encode(0) == bytes.fromhex("0023 00000001 0012 0000 0004")
    assert encode_response_header(18, 4, 7) == bytes.fromhex("00000007")
