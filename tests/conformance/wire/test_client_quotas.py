"""Client quotas over the wire, as a live Kafka answers: texts, throttle times, muted connections.

Times are compared with what the arithmetic says for the moment of the request, as far as the test
can know it.
"""

import time
import uuid

import pytest

from tools.wire_client import batch

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
BOUND = 50_000
SLACK_MS = 1100
"""The oldest window may have begun up to a window before the first request."""


def alter(wire, entity, changes, *, validate_only=False):
    """Return code and text of one entity's alteration."""
    ops = [{"key": k, "value": float(v or 0), "remove": v is None} for k, v in changes]
    entries = [
        {"entity": [{"entity_type": t, "entity_name": n} for t, n in entity], "ops": ops},
    ]
    answer = wire.call("alter_client_quotas", 1, entries=entries, validate_only=validate_only)
    (entry,) = answer["entries"]
    return entry["error_code"], entry["error_message"]


def describe(wire, *components, strict=False):
    """Return (code, text, entries): values by key, by entity."""
    asked = [{"entity_type": t, "match_type": m, "match": x} for t, m, x in components]
    answer = wire.call("describe_client_quotas", 1, components=asked, strict=strict)
    entries = None
    if answer["entries"] is not None:
        entries = {
            tuple((part["entity_type"], part["entity_name"]) for part in entry["entity"]): {
                value["key"]: value["value"] for value in entry["values"]
            }
            for entry in answer["entries"]
        }
    return answer["error_code"], answer["error_message"], entries


@pytest.fixture
def limited(wire, connect):
    """Return a function: a connection whose client id has this quota, from now on."""
    entities = []

    def begin(key, bound):
        name = f"q-{uuid.uuid4().hex[:10]}"
        assert alter(wire, [("client-id", name)], [(key, bound)]) == (0, None)
        entities.append((name, key))
        while describe(wire, ("client-id", 0, name))[2] == {}:
            pass
        time.sleep(0.2)  # Kafka's broker hears of it later than its controller.
        return connect(client_id=name)

    yield begin
    for name, key in entities:
        alter(wire, [("client-id", name)], [(key, None)])


def produce(wire, topic, size, acks=-1):
    """Send one batch with a value of so many bytes; return (throttle ms, when answered)."""
    answer = wire.call(
        "produce",
        9,
        acks=acks,
        timeout=5000,
        topic_data=[
            {"name": topic, "partition_data": [{"index": 0, "records": batch([b"x" * size])}]}
        ],
    )
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return answer["throttle_time"], time.monotonic()


def fetch(wire, topic, size, *, session_id=0, epoch=-1):
    names = [(topic, 0)] if epoch <= 0 else []
    answer = wire.call(
        "fetch",
        12,
        replica_id=-1,
        max_wait=200,
        min_bytes=1,
        max_bytes=size,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            {
                "topic": name,
                "partitions": [
                    {"partition": index, "fetch_offset": 0, "partition_max_bytes": size}
                ],
            }
            for name, index in names
        ],
    )
    read = sum(
        len(part["records"] or b"") for one in answer["responses"] for part in one["partitions"]
    )
    return answer["throttle_time"], answer["session_id"], read


def created(wire, version, *counts, validate_only=False):
    """Create topics of so many partitions; return (throttle ms, codes, texts)."""
    answer = wire.call(
        "create_topics",
        version,
        topics=[
            {"name": f"q-{uuid.uuid4().hex[:12]}", "num_partitions": n, "replication_factor": 1}
            for n in counts
        ],
        timeout=10_000,
        validate_only=validate_only,
    )
    told = answer["topics"]
    return answer["throttle_time"], [one["error_code"] for one in told], told


def served_after(wire, since):
    """Return after how many ms since ``since`` the next request is answered.

    A test takes a moment before the throttled request was sent: an answer may be read late, and
    then the wait would look shorter than it is.
    """
    assert wire.call("api_versions", 0)["error_code"] == 0
    return (time.monotonic() - since) * 1000


REFUSED = [
    ([], [(PRODUCE, 5)], "Invalid empty client quota entity"),
    ([("user", "")], [(PRODUCE, 5)], "Empty user not supported"),
    ([("bogus", "a")], [(PRODUCE, 5)], "Unhandled client quota entity type: bogus"),
    (
        [("ip", "1.2.3.4"), ("user", "a")],
        [(CONNECTIONS, 5)],
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    (
        [("ip", "no such host")],
        [(CONNECTIONS, 5)],
        "no such host is not a valid IP or resolvable host.",
    ),
    ([("ip", "1.2.3.4")], [(PRODUCE, 5)], f"Invalid configuration key {PRODUCE}"),
    ([("user", "a")], [(CONNECTIONS, 5)], f"Invalid configuration key {CONNECTIONS}"),
    ([("user", "a")], [("bogus", 5)], "Invalid configuration key bogus"),
    ([("user", "a")], [(PRODUCE, 0)], f"Quota {PRODUCE} must be greater than 0"),
    ([("user", "a")], [(REQUEST, -1)], f"Quota {REQUEST} must be greater than 0"),
    ([("user", "a")], [(PRODUCE, 1.5)], f"{PRODUCE} cannot be a fractional value."),
    ([("user", "a")], [(FETCH, 1e300)], f"Proposed value for {FETCH} is too large for a LONG."),
    (
        [("ip", "1.2.3.4")],
        [(CONNECTIONS, 3e9)],
        f"Proposed value for {CONNECTIONS} is too large for an INT.",
    ),
    (
        [("user", "twice")],
        [(PRODUCE, 5), (PRODUCE, 6)],
        "Ignoring duplicate entity ClientQuotaEntity(entries={user=twice})",
    ),
]


@pytest.mark.parametrize(("entity", "changes", "why"), REFUSED)
def test_what_cannot_be_kept_is_refused(wire, entity, changes, why):
    assert alter(wire, entity, changes) == (42, why)
    assert alter(wire, entity, changes, validate_only=True) == (42, why)


def test_quotas_come_and_go(wire, topic_name):
    user, client = f"u-{topic_name}", f"c-{topic_name}"
    both = (("client-id", client), ("user", user))
    assert alter(wire, [("user", user)], [(PRODUCE, 1000)], validate_only=True) == (0, None)
    assert describe(wire, ("user", 0, user)) == (0, "", {})
    assert alter(wire, [("user", user)], [(PRODUCE, 1000)]) == (0, None)
    assert alter(wire, reversed(both), [(FETCH, 3000), (REQUEST, 12.5)]) == (0, None)
    assert alter(wire, both, [(PRODUCE, 2000), (REQUEST, None)]) == (0, None)
    of_user = {PRODUCE: 1000.0}
    of_both = {FETCH: 3000.0, PRODUCE: 2000.0}
    told = {(("user", user),): of_user, both: of_both}
    assert describe(wire, ("user", 0, user)) == (0, "", told)
    assert describe(wire, ("user", 0, user), strict=True)[2] == {(("user", user),): of_user}
    assert describe(wire, ("client-id", 0, client))[2] == {both: of_both}
    assert describe(wire, ("user", 0, user), ("client-id", 2, None))[2] == {both: of_both}
    assert describe(wire, ("user", 0, user), ("client-id", 1, None))[2] == {}
    everybody = describe(wire)[2]
    assert told.items() <= everybody.items()
    assert told.items() <= describe(wire, ("user", 2, None))[2].items()
    assert describe(wire, strict=True)[2] == {}
    assert alter(wire, [("user", user)], [(PRODUCE, None)]) == (0, None)
    assert alter(wire, both, [(PRODUCE, None), (FETCH, None), (MUTATION, None)]) == (0, None)
    assert describe(wire, ("user", 0, user)) == (0, "", {})


def test_defaults_are_entities_too(wire, topic_name):
    entity = [("client-id", None), ("user", topic_name)]
    assert alter(wire, entity, [(MUTATION, 1e6)]) == (0, None)
    assert describe(wire, ("user", 0, topic_name), ("client-id", 1, None))[2] == {
        tuple(entity): {MUTATION: 1e6}
    }
    assert alter(wire, entity, [(MUTATION, None)]) == (0, None)


ODD_FILTERS = [
    ([("user", 3, None)], 42, "Unknown match type 3"),
    ([("user", 0, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
    (
        [("user", 1, "a")],
        42,
        "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
    ),
    (
        [("user", 2, "a")],
        42,
        "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
    ),
    ([("bogus", 2, None)], 35, "Unsupported entity type bogus"),
    ([("", 2, None)], 42, "Invalid empty entity type."),
    (
        [("user", 2, None), ("user", 2, None)],
        42,
        "Entity type user cannot appear more than once in the filter.",
    ),
    (
        [("ip", 2, None), ("user", 2, None)],
        42,
        (
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        ),
    ),
]


@pytest.mark.parametrize(("components", "code", "why"), ODD_FILTERS)
def test_odd_filters_are_refused(wire, components, code, why):
    assert describe(wire, *components) == (code, why, None)


def test_an_entity_that_is_named_twice_is_changed_once(wire, topic_name):
    entry = {"entity": [{"entity_type": "user", "entity_name": topic_name}]}
    ops = [{"ops": [{"key": PRODUCE, "value": float(n), "remove": False}]} for n in (1, 2)]
    answer = wire.call(
        "alter_client_quotas", 1, entries=[entry | one for one in ops], validate_only=False
    )
    (told,) = answer["entries"]
    why = f"Ignoring duplicate entity ClientQuotaEntity(entries={{user={topic_name}}})"
    assert (told["error_code"], told["error_message"]) == (42, why)
    assert list(describe(wire, ("user", 0, topic_name))[2].values()) == [{PRODUCE: 1.0}]
    alter(wire, [("user", topic_name)], [(PRODUCE, None)])


def test_a_producer_that_sends_too_much_waits(wire, limited, topic_name):
    wire.create_topic(topic_name)
    client = limited(PRODUCE, BOUND)
    begin = time.monotonic()
    assert produce(client, topic_name, 400_000)[0] == 0
    sent = time.monotonic()
    throttle_ms, answered = produce(client, topic_name, 250_000)
    spent_ms = (answered - begin) * 1000
    full_ms = 650_200 / BOUND * 1000 - 10_000
    assert full_ms - spent_ms - SLACK_MS <= throttle_ms <= full_ms + 20
    assert served_after(client, sent) >= throttle_ms - 5


def test_a_new_connection_does_not_begin_anew(wire, limited, connect, topic_name):
    """Who is muted gains nothing by coming back: the measure is the client's, not the line's."""
    wire.create_topic(topic_name)
    first = limited(PRODUCE, BOUND)
    throttle_ms, _ = produce(first, topic_name, 20 * BOUND)
    assert throttle_ms > 5000
    first.close()
    again = connect(client_id=first._client_id)
    throttle_ms, _ = produce(again, topic_name, 1000)
    assert throttle_ms > 3000


def test_who_wants_no_answer_waits_as_well(wire, limited, topic_name):
    wire.create_topic(topic_name)
    client = limited(PRODUCE, 3 * BOUND)
    data = [{"index": 0, "records": batch([b"x" * 900_000])}]
    fields = {"acks": 0, "timeout": 5000, "topic_data": [{"name": topic_name}]}
    fields["topic_data"][0]["partition_data"] = data
    begin = time.monotonic()
    for _ in range(2):
        client.send_frame(client.encode("produce", 9, **fields))
    assert served_after(client, begin) >= 1_800_000 / (3 * BOUND) * 1000 - 10_000 - 10


def test_a_consumer_that_reads_too_much_is_answered_without_records(wire, limited, topic_name):
    wire.create_topic(topic_name)
    for _ in range(8):
        assert wire.produce(topic_name, batch([b"x" * 99_900]))["error_code"] == 0
    client = limited(FETCH, BOUND)
    begin = time.monotonic()
    assert fetch(client, topic_name, 200_100)[0] == 0
    sent = time.monotonic()
    throttle_ms, session_id, read = fetch(client, topic_name, 400_500, epoch=0)
    answered = time.monotonic()
    spent_ms = (answered - begin) * 1000
    full_ms = 600_400 / BOUND * 1000 - 10_000
    assert (session_id, read) == (0, 0)
    assert full_ms - spent_ms - SLACK_MS <= throttle_ms <= full_ms + 60
    assert served_after(client, sent) >= throttle_ms - 5
    throttle_ms, session_id, read = fetch(client, topic_name, 100_300, epoch=0)
    assert throttle_ms == 0
    assert session_id > 0
    assert read > 99_900


def test_a_fetch_within_a_session_waits_without_losing_its_place(wire, limited, topic_name):
    wire.create_topic(topic_name)
    for _ in range(8):
        assert wire.produce(topic_name, batch([b"x" * 99_900]))["error_code"] == 0
    client = limited(FETCH, BOUND)
    throttle_ms, session_id, read = fetch(client, topic_name, 400_500, epoch=0)
    assert throttle_ms == 0
    assert read > 300_000
    throttle_ms, told, read = fetch(client, topic_name, 300_300, session_id=session_id, epoch=1)
    assert 0 < throttle_ms <= 4100
    assert (told, read) == (session_id, 0)
    throttle_ms, told, read = fetch(client, topic_name, 100_300, session_id=session_id, epoch=2)
    assert (throttle_ms, told) == (0, session_id)
    assert read > 99_900, "the throttled answer told the session nothing"


def test_no_fetch_is_larger_than_can_ever_be_answered(wire, limited, topic_name):
    wire.create_topic(topic_name)
    for _ in range(8):
        assert wire.produce(topic_name, batch([b"x" * 99_900]))["error_code"] == 0
    client = limited(FETCH, BOUND)
    for _ in range(5):  # The answer is a little longer than its records, so it may wait 1 ms.
        throttle_ms, _, read = fetch(client, topic_name, 900_000)
        assert throttle_ms < 100
        if read:
            break
    assert 300_000 < read <= 10 * BOUND


def test_partitions_that_are_made_too_fast_are_refused_or_waited_for(limited):
    """What is only checked costs as much as what is made, and takes a busy machine no time."""
    client = limited(MUTATION, 1)
    begin = time.monotonic()
    for count in (1, 8, 8):
        throttle_ms, codes, _ = created(client, 7, count, validate_only=count > 1)
        assert (throttle_ms, codes) == (0, [0]), "11 at first, and it may go below 0"
    sent = time.monotonic()
    throttle_ms, codes, told = created(client, 7, 5, 1)
    answered = time.monotonic()
    assert codes == [89, 89]
    assert told[0]["error_message"] is None
    assert 6000 - (answered - begin) * 1000 - 5 <= throttle_ms <= 6000
    assert served_after(client, sent) >= throttle_ms - 5
    throttle_ms, codes, _ = created(client, 5, 9, validate_only=True)
    assert codes == [0], "an older client does not know the error"
    assert 0 < throttle_ms <= 9000


def test_who_takes_too_much_time_waits_for_a_window_at_most(limited):
    client = limited(REQUEST, 1e-6)
    for _ in range(2):
        sent = time.monotonic()
        answer = client.call("metadata", 12, topics=[], allow_auto_topic_creation=False)
        assert answer["throttle_time"] == 1000
        assert served_after(client, sent) >= 995


def test_a_quota_that_is_gone_holds_nobody(wire, limited, topic_name):
    wire.create_topic(topic_name)
    client = limited(PRODUCE, 987_654_321)
    assert produce(client, topic_name, 900_000)[0] == 0
    (name,) = [
        entity[0][1]
        for entity, values in describe(wire)[2].items()
        if values.get(PRODUCE) == 987_654_321.0
    ]
    assert alter(wire, [("client-id", name)], [(PRODUCE, None)]) == (0, None)
    assert produce(client, topic_name, 900_000)[0] == 0
