"""The answers that refuse: of every API, in every version."""

import pytest

from ottla.ids import TopicId
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.fields import Required, Wire
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.schema import Struct
from ottla.testing.refusal import CODES, groups_of, places_of, refuse, spoil

CODE = 6
SCALARS = {Wire.BOOLEAN: True, Wire.STRING: "a", Wire.BYTES: b"b", Wire.UUID: bytes(range(16))}
KEYS = [key for key in ApiKey if key in API_TABLE]


def filled(table, version):
    """Return a message with one element in every array."""
    values = {}
    for name, field in table.FIELDS.items():
        if version not in field.versions or field.tag is not None:
            empty = field.default is Required.REQUIRED
            values[name] = None if empty else field.default
        elif field.wire is Wire.ARRAY:
            is_struct = isinstance(field.of, type) and issubclass(field.of, Struct)
            element = filled(field.of, version) if is_struct else SCALARS.get(field.of, 1)
            values[name] = [element]
        elif field.wire is Wire.STRUCT:
            values[name] = filled(field.of, version)
        elif field.wire is Wire.RECORDS:
            values[name] = b""
        else:
            values[name] = SCALARS.get(field.wire, 1)
    return table(**values)


def codes_of(part, version):
    """Yield all error codes of a message."""
    for name, field in part.FIELDS.items():
        value = getattr(part, name)
        if version not in field.versions:
            continue
        if name in CODES:
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from codes_of(item, version)


def versions():
    return [
        pytest.param(key, version, id=f"{key.name}-{version}")
        for key in KEYS
        for version in API_TABLE[key].request.VERSIONS
    ]


@pytest.mark.parametrize(("key", "version"), versions())
def test_every_request_can_be_refused(key, version):
    api = API_TABLE[key]
    request = filled(api.request, version)
    request = api.request.decode(request.encode(version), version, strict=True)
    answer = refuse(request, api.response, version, CODE)
    read = api.response.decode(answer.encode(version), version, strict=True)
    codes = list(codes_of(read, version))
    has_codes = any(True for _ in codes_of(filled(api.response, version), version))
    assert set(codes) <= {0, CODE}
    assert (CODE in codes) == has_codes


@pytest.mark.parametrize(("key", "version"), versions())
def test_every_answer_can_be_spoilt(key, version):
    api = API_TABLE[key]
    answer = filled(api.response, version)
    before = list(codes_of(answer, version))
    assert spoil(answer, version, CODE) == bool(before)
    assert (CODE in codes_of(answer, version)) == bool(before)
    answer.encode(version)


def test_a_fetch_is_refused_by_partition():
    topics = [
        FetchTopic(
            topic="t",
            topic_id=TopicId(bytes(16)),
            partitions=[
                FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
                for number in (3, 4)
            ],
        )
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
    answer = refuse(request, API_TABLE[ApiKey.FETCH].response, 12, CODE)
    assert answer.error_code == 0
    [topic] = answer.responses
    assert topic.topic == "t"
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (3, CODE),
        (4, CODE),
    ]
    assert all(each.records == b"" for each in topic.partitions)
    assert places_of(request, 12, lambda _: None) == {("t", None), ("t", 3), ("t", 4)}


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_topic_is_known_by_name_or_id(version):
    table = API_TABLE[ApiKey.PRODUCE].request
    request = table.decode(filled(table, version).encode(version), version)
    by_id = {bytes(range(16)): "by-id"}
    name = "by-id" if version == 13 else "a"
    assert places_of(request, version, by_id.get) == {(name, None), (name, 1)}
    if version == 13:
        assert places_of(request, version, lambda _: None) == frozenset()


@pytest.mark.parametrize(
    ("key", "version", "groups"),
    [
        (ApiKey.JOIN_GROUP, 5, {"a"}),
        (ApiKey.OFFSET_COMMIT, 9, {"a"}),
        (ApiKey.OFFSET_FETCH, 9, {"a"}),
        (ApiKey.FIND_COORDINATOR, 2, {"a"}),
        (ApiKey.FIND_COORDINATOR, 5, {"a"}),
        (ApiKey.DESCRIBE_GROUPS, 5, {"a"}),
        (ApiKey.DELETE_GROUPS, 2, {"a"}),
        (ApiKey.METADATA, 9, set()),
    ],
)
def test_groups_are_found_where_they_are_named(key, version, groups):
    assert groups_of(filled(API_TABLE[key].request, version)) == groups


def test_names_of_protocols_are_no_topics():
    request = filled(API_TABLE[ApiKey.JOIN_GROUP].request, 5)
    assert places_of(request, 5, lambda _: None) == frozenset()


@pytest.mark.parametrize("version", [3, 5])
def test_each_partition_of_a_transaction_is_refused(version):
    """Its code has a name of its own; a refusal without it would be taken for a yes."""
    api = API_TABLE[ApiKey.ADD_PARTITIONS_TO_TXN]
    answer = refuse(filled(api.request, version), api.response, version, CODE)
    if version > 3:
        (transaction,) = answer.results_by_transaction
        (topic,) = transaction.topic_results
    else:
        (topic,) = answer.results_by_topic_v3_and_below
    (partition,) = topic.results_by_partition
    assert partition.partition_error_code == CODE
    assert answer.error_code == 0
