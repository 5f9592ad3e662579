"""What other APIs than those of topics say to bad requests. Asked of Kafka 4.3.0, too."""

import threading
import time
import uuid

import pytest

from tests.broken_names import BROKEN_NAMES
from tools.wire_client import WireClient, batch, batches

BATCH = batch([b"x" * 1000] * 2)


@pytest.fixture(scope="module")
def topic(target):
    """A topic of two partitions with three batches of two records in each; its id."""
    name = f"req-{uuid.uuid4().hex[:8]}"
    with WireClient(target.bootstrap) as client:
        topic_id = client.create_topic(name, 2)
        for partition in (0, 1):
            for _ in range(3):
                assert client.produce(name, BATCH, partition)["error_code"] == 0
    return name, topic_id


def fetch(wire, topics, version=12, **fields):
    asked = {"max_wait": 200, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1} | fields
    if version < 15:
        asked.setdefault("replica_id", -1)
    begin = time.monotonic()
    got = wire.call("fetch", version, topics=topics, **asked)
    return got, time.monotonic() - begin


def one(name, *partitions, limit=1 << 20):
    asked = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": limit}
        for number, offset in partitions
    ]
    ident = {"topic": name} if isinstance(name, str) else {"topic_id": name}
    return {**ident, "partitions": asked}


def outcomes(got):
    return [
        (
            partition["partition_index"],
            partition["error_code"],
            sum(batch["count"] for batch in batches(partition["records"])),
        )
        for answer in got["responses"]
        for partition in answer["partitions"]
    ]


ERRORS = {
    "above the end": ({"offset": 7}, 1),
    "below the start": ({"offset": -1}, 1),
    "far above": ({"offset": 2**62}, 1),
    "unknown partition": ({"partition": 9}, 3),
    "partition -1": ({"partition": -1}, 3),
    "newer leader epoch": ({"current_leader_epoch": 5}, 75),
}


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize(("asked", "code"), ERRORS.values(), ids=ERRORS)
def test_fetch_error_partition(wire, topic, version, asked, code):
    got = wire.fetch(topic[0], version=version, **asked)
    marks = (got["high_watermark"], got["last_stable_offset"], got["log_start_offset"])
    assert (got["error_code"], marks, got["records"] or b"") == (code, (-1, -1, -1), b"")


@pytest.mark.parametrize("name", ["nobody-made-this", *BROKEN_NAMES])
def test_fetch_unknown_topic(wire, name):
    got = wire.fetch(name)
    assert (got["error_code"], got["high_watermark"], got["records"] or b"") == (3, -1, b"")


@pytest.mark.parametrize("topic_id", [uuid.UUID(int=9), None], ids=["unknown", "zero"])
@pytest.mark.parametrize("version", [13, 18])
def test_fetch_unknown_topic_id(wire, version, topic_id):
    asked = [{"topic_id": topic_id, "partitions": [{"partition": 0, "partition_max_bytes": 100}]}]
    got, _ = fetch(wire, asked, version)
    assert outcomes(got) == [(0, 100, 0)]


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_every_version_by_name(wire, topic, version):
    got = wire.fetch(topic[0], version=version)
    assert [found["base_offset"] for found in batches(got["records"])] == [0, 2, 4]
    assert got["high_watermark"] == 6


@pytest.mark.parametrize("version", range(13, 19))
def test_fetch_every_version_by_id(wire, topic, version):
    got, _ = fetch(wire, [one(topic[1], (0, 0), (1, 0))], version)
    assert outcomes(got) == [(0, 0, 6), (1, 0, 6)]
    assert got["responses"][0]["topic_id"] == topic[1]


def test_fetch_in_the_middle_of_a_batch_returns_it_whole(wire, topic):
    got = wire.fetch(topic[0], 3)
    assert [found["base_offset"] for found in batches(got["records"])] == [2, 4]


@pytest.mark.parametrize(
    "limits",
    [{"max_bytes": 10}, {"partition_max_bytes": 10}, {"max_bytes": 0}, {"partition_max_bytes": 0}],
)
def test_fetch_returns_one_whole_batch_however_small_the_limit(wire, topic, limits):
    got = wire.fetch(topic[0], **limits)
    assert (len(batches(got["records"])), len(got["records"])) == (1, len(BATCH))


def test_fetch_response_limit_serves_the_partitions_in_their_order(wire, topic):
    first, _ = fetch(wire, [one(topic[0], (0, 0), (1, 0))], max_bytes=10)
    assert outcomes(first) == [(0, 0, 2), (1, 0, 0)]
    turned, _ = fetch(wire, [one(topic[0], (1, 0), (0, 0))], max_bytes=10)
    assert outcomes(turned) == [(1, 0, 2), (0, 0, 0)]


def test_fetch_minimum_of_one_batch_goes_to_the_first_partition_that_has_data(wire, topic):
    got, _ = fetch(wire, [one(topic[0], (0, 6), (1, 0), limit=10)], max_bytes=10)
    assert outcomes(got) == [(0, 0, 0), (1, 0, 2)]


def test_fetch_at_the_end_waits_max_wait(wire, topic):
    got, seconds = fetch(wire, [one(topic[0], (0, 6))], max_wait=400)
    assert outcomes(got) == [(0, 0, 0)]
    assert 0.39 <= seconds < 2.0


def test_fetch_waits_for_min_bytes_then_gives_what_is_there(wire, topic):
    got, seconds = fetch(wire, [one(topic[0], (0, 0))], max_wait=300, min_bytes=100_000)
    assert outcomes(got) == [(0, 0, 6)]
    assert seconds >= 0.29


def test_fetch_does_not_wait_for_more_than_it_may_be_given(wire, topic):
    """It would wait for its time each time, with all that it may have at hand."""
    asked = [one(topic[0], (0, 0))]
    got, seconds = fetch(wire, asked, max_wait=8000, min_bytes=100_000, max_bytes=len(BATCH))
    assert outcomes(got) == [(0, 0, 2)]
    assert seconds < 4.0


@pytest.mark.parametrize("fields", [{"min_bytes": 0}, {"max_wait": 0}, {"max_wait": -1}])
def test_fetch_that_may_not_wait_answers_at_once(wire, topic, fields):
    got, seconds = fetch(wire, [one(topic[0], (0, 6))], **({"max_wait": 5000} | fields))
    assert outcomes(got) == [(0, 0, 0)]
    assert seconds < 2.0


def test_fetch_out_of_range_ends_the_wait_of_the_others(wire, topic):
    got, seconds = fetch(wire, [one(topic[0], (0, 6), (1, 99))], max_wait=5000)
    assert outcomes(got) == [(0, 0, 0), (1, 1, 0)]
    assert seconds < 2.0


def test_fetch_unknown_partition_does_not_end_the_wait_of_the_others(wire, topic):
    got, seconds = fetch(wire, [one(topic[0], (0, 6), (7, 0))], max_wait=300)
    assert sorted(outcomes(got)) == [(0, 0, 0), (7, 3, 0)]
    assert seconds >= 0.29


def test_parked_fetch_is_woken_by_a_produce(connect, topic_name):
    first, second = connect(), connect()
    first.create_topic(topic_name)
    got = []
    thread = threading.Thread(
        target=lambda: got.append(fetch(first, [one(topic_name, (0, 0))], max_wait=10_000))
    )
    thread.start()
    while thread.is_alive() and second.produce(topic_name, batch())["error_code"] == 0:
        thread.join(0.2)
    response, seconds = got[0]
    assert outcomes(response)[0][:2] == (0, 0)
    assert outcomes(response)[0][2] >= 1
    assert seconds < 5.0


def test_parked_fetch_is_answered_when_its_topic_goes(connect, topic_name):
    first, second = connect(), connect()
    first.create_topic(topic_name)
    asked = [one(topic_name, (0, 0))]
    first.send_frame(
        first.encode(
            "fetch",
            12,
            replica_id=-1,
            max_wait=10_000,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=-1,
            topics=asked,
        )
    )
    second.call("delete_topics", 5, topic_names=[topic_name], timeout=5000)
    begin = time.monotonic()
    got = first.decode("fetch", 12, first.receive_frame())
    assert outcomes(got)[0][1] in (3, 6)
    assert time.monotonic() - begin < 5.0


@pytest.mark.parametrize(("session_id", "epoch"), [(12345, 1), (0, 1), (0, -5)])
def test_unknown_fetch_session_is_70(wire, topic, session_id, epoch):
    got, _ = fetch(wire, [one(topic[0], (0, 0))], session_id=session_id, session_epoch=epoch)
    assert (got["error_code"], got["session_id"], got["responses"]) == (70, 0, [])


@pytest.mark.parametrize(("session_id", "epoch"), [(0, 0), (12345, 0), (12345, -1)])
def test_full_fetch_is_served_whatever_the_session(wire, topic, session_id, epoch):
    got, _ = fetch(wire, [one(topic[0], (0, 0))], session_id=session_id, session_epoch=epoch)
    assert (got["error_code"], outcomes(got)) == (0, [(0, 0, 6)])


def offsets(wire, version, partitions, topic, **fields):
    asked = {"replica_id": -1} | ({"timeout_ms": 1000} if version >= 10 else {})
    rows = [
        {"partition_index": number, "timestamp": stamp, **fields} for number, stamp in partitions
    ]
    got = wire.call("list_offsets", version, **asked, topics=[{"name": topic, "partitions": rows}])
    return [
        (row["partition_index"], row["error_code"], row["timestamp"], row["offset"])
        for row in got["topics"][0]["partitions"]
    ]


@pytest.fixture(scope="module")
def timed(target):
    """Records at 1000, 1100, 2000, ... 4100, then one at 1500 at offset 8; partition 1 is empty."""
    name = f"timed-{uuid.uuid4().hex[:8]}"
    with WireClient(target.bootstrap) as client:
        client.create_topic(name, 2)
        for number in range(1, 5):
            client.produce(
                name, batch([b"a", b"b"], base_timestamp=1000 * number, timestamp_step_ms=100)
            )
        client.produce(name, batch([b"late"], base_timestamp=1500))
    return name


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("stamp", [-1, -2, -3, -4, -5, -6, -7])
def test_list_offsets_special_timestamps(wire, timed, version, stamp):
    first_version = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}.get(stamp, 99)
    expected = [(0, 35, -1, -1), (1, 35, -1, -1)]
    if version >= first_version:
        expected = {
            -1: [(0, 0, -1, 9), (1, 0, -1, 0)],
            -2: [(0, 0, -1, 0), (1, 0, -1, 0)],
            -3: [(0, 0, 4100, 7), (1, 0, -1, -1)],
            -4: [(0, 0, -1, 0), (1, 0, -1, 0)],
            -5: [(0, 0, -1, -1), (1, 0, -1, -1)],
            -6: [(0, 0, -1, -1), (1, 0, -1, -1)],
        }[stamp]
    assert offsets(wire, version, [(0, stamp), (1, stamp)], timed) == expected


@pytest.mark.parametrize(
    ("stamp", "found"),
    [
        (0, (1000, 0)),
        (1000, (1000, 0)),
        (1001, (1100, 1)),
        (1500, (2000, 2)),
        (2050, (2100, 3)),
        (4100, (4100, 7)),
        (4101, (-1, -1)),
    ],
)
def test_list_offsets_by_time_is_the_first_record_not_older(wire, timed, stamp, found):
    assert offsets(wire, 7, [(0, stamp)], timed) == [(0, 0, *found)]


def test_list_offsets_errors(wire, timed):
    assert offsets(wire, 7, [(9, -1)], timed) == [(9, 3, -1, -1)]
    assert offsets(wire, 7, [(0, -1)], "../x") == [(0, 3, -1, -1)]
    assert offsets(wire, 7, [(0, -1), (0, -2), (1, -1)], timed) == [(0, 42, -1, -1), (1, 0, -1, 0)]
    assert offsets(wire, 7, [(0, -1)], timed, current_leader_epoch=5) == [(0, 75, -1, -1)]


def metadata(wire, version, topics, **fields):
    return wire.call("metadata", version, topics=topics, **fields)


def test_metadata_empty_and_null_mean_what_their_version_says(wire, topic):
    assert metadata(wire, 0, [])["topics"]
    assert metadata(wire, 1, [])["topics"] == []
    assert metadata(wire, 1, None)["topics"]


@pytest.mark.parametrize("version", range(14))
def test_metadata_every_version(wire, topic, version):
    got = metadata(wire, version, [{"name": topic[0]}])
    (found,) = got["topics"]
    assert (found["error_code"], found["name"]) == (0, topic[0])
    assert [p["partition_index"] for p in found["partitions"]] == [0, 1]
    node = got["brokers"][0]["node_id"]
    assert [p["leader_id"] for p in found["partitions"]] == [node, node]
    if version >= 1:
        assert got["controller_id"] == node
    if version >= 7:
        assert [p["leader_epoch"] for p in found["partitions"]] == [0, 0]
    if version >= 10:
        assert found["topic_id"] == topic[1]


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("name", BROKEN_NAMES)
def test_metadata_illegal_name_is_17_and_creates_nothing(wire, name, allow):
    got = metadata(wire, 9, [{"name": name}], allow_auto_topic_creation=allow)
    assert [(t["error_code"], t["name"]) for t in got["topics"]] == [(17, name)]


def test_metadata_unknown_topic_without_leave_is_not_created(wire, topic_name):
    for _ in range(2):
        got = metadata(wire, 9, [{"name": topic_name}], allow_auto_topic_creation=False)
        assert [t["error_code"] for t in got["topics"]] == [3]


@pytest.mark.parametrize("version", [0, 4, 13])
def test_metadata_unknown_topic_with_leave_appears(wire, topic_name, version):
    leave = {"allow_auto_topic_creation": True} if version >= 4 else {}
    codes = []
    deadline = time.monotonic() + 20
    while not codes or (codes[-1] != 0 and time.monotonic() < deadline):
        got = metadata(wire, version, [{"name": topic_name}], **leave)
        codes.append(got["topics"][0]["error_code"])
    assert codes[-1] == 0, codes
    assert set(codes[:-1]) <= {3, 5}


def test_metadata_by_id(wire, topic):
    name, topic_id = topic
    got = metadata(wire, 12, [{"topic_id": topic_id, "name": None}])
    assert [(t["error_code"], t["name"]) for t in got["topics"]] == [(0, name)]
    unknown = uuid.uuid4()
    got = metadata(wire, 12, [{"topic_id": unknown, "name": None}])
    assert [(t["error_code"], t["name"], t["topic_id"]) for t in got["topics"]] == [
        (100, None, unknown)
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_is_refused_before_version_12(wire, topic, version):
    got = metadata(wire, version, [{"topic_id": topic[1], "name": None}])
    assert [t["error_code"] for t in got["topics"]] == [42]


def test_metadata_same_topic_twice_is_answered_once(wire, topic):
    got = metadata(wire, 9, [{"name": topic[0]}, {"name": topic[0]}])
    assert [t["name"] for t in got["topics"]] == [topic[0]]


def test_metadata_authorized_operations_only_when_asked(wire, topic):
    asked = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    got = metadata(wire, 8, [{"name": topic[0]}], **asked)
    assert got["topics"][0]["topic_authorized_operations"] == 3576
    assert got["cluster_authorized_operations"] == 8096
    got = metadata(wire, 8, [{"name": topic[0]}])
    assert got["topics"][0]["topic_authorized_operations"] == -(2**31)
    assert got["cluster_authorized_operations"] == -(2**31)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_every_version(wire, target, version):
    got = wire.call("describe_cluster", version)
    assert got["error_code"] == 0
    assert [(b["host"], b["port"]) for b in got["brokers"]] == [(target.host, target.port)]
    assert got["controller_id"] == got["brokers"][0]["broker_id"]
    assert got["cluster_authorized_operations"] == -(2**31)
    assert metadata(wire, 9, [])["cluster_id"] == got["cluster_id"]


@pytest.mark.parametrize(("endpoint_type", "code"), [(1, 0), (2, 114), (3, 115)])
def test_describe_cluster_endpoint_type(wire, endpoint_type, code):
    assert wire.call("describe_cluster", 1, endpoint_type=endpoint_type)["error_code"] == code


def configs(wire, kind, name, keys=None, version=4, **fields):
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    return wire.call("describe_configs", version, resources=asked, **fields)["results"][0]


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_every_version_lists_them_all(wire, topic, version):
    got = configs(wire, 2, topic[0], version=version)
    told = {config["name"]: config["value"] for config in got["configs"]}
    assert got["error_code"] == 0
    assert told["cleanup.policy"] == "delete"
    assert told["max.message.bytes"] == "1048588"
    assert {"retention.ms", "segment.bytes", "compression.type", "min.insync.replicas"} <= set(told)


def test_describe_configs_chosen_keys_and_sources(wire, topic_name):
    wire.create_topic(topic_name, retention_ms="1000")
    got = configs(
        wire, 2, topic_name, ["retention.ms", "segment.bytes", "nope"], include_synonyms=True
    )
    told = {c["name"]: (c["value"], c["config_source"], c["config_type"]) for c in got["configs"]}
    assert told == {"retention.ms": ("1000", 1, 5), "segment.bytes": ("1073741824", 5, 3)}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "nobody-made-this", 3),
        (2, "../x", 17),
        (2, "", 17),
        (4, "9", 42),
        (4, "x", 42),
        (99, "x", 42),
        (0, "x", 42),
    ],
)
def test_describe_configs_unknown_resource(wire, kind, name, code):
    got = configs(wire, kind, name)
    assert (got["error_code"], got["configs"]) == (code, [])


def test_describe_configs_of_the_broker(wire):
    node = metadata(wire, 1, [])["controller_id"]
    told = {c["name"]: c["value"] for c in configs(wire, 4, str(node))["configs"]}
    assert told["message.max.bytes"] == "1048588"
    assert told["socket.request.max.bytes"] == "104857600"


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_gives_each_asker_its_own(wire, version):
    ids = set()
    deadline = time.monotonic() + 20
    while len(ids) < 3 and time.monotonic() < deadline:
        got = wire.call(
            "init_producer_id", version, transactional_id=None, transaction_timeout_ms=60_000
        )
        if got["error_code"] != 14:  # Kafka's first block of ids is on its way
            assert (got["error_code"], got["producer_epoch"]) == (0, 0)
            assert got["producer_id"] >= 0
            ids.add(got["producer_id"])
    assert len(ids) == 3


def test_init_producer_id_refuses_an_empty_transactional_id(wire):
    got = wire.call("init_producer_id", 4, transactional_id="", transaction_timeout_ms=60_000)
    assert (got["error_code"], got["producer_id"]) == (42, -1)
