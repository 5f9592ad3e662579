"""Every refusal with the code and the words of a live Kafka 4.3."""

import pytest

from ottla.cluster.topics import (
    DEFAULT,
    NewPartitions,
    NewTopic,
    Placement,
    collision_key,
    first_state,
    new_topic_id,
    plan_assignments,
    plan_more_partitions,
    topic_name_error,
)
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import topic_id_text

ONE_NODE = Placement(
    live_nodes=[1],
    default_partition_count=1,
    default_replication_factor=1,
)
THREE_NODES = ONE_NODE._replace(live_nodes=[1, 2, 5], default_replication_factor=2)


def refusal(call, *args):
    with pytest.raises(KafkaError) as caught:
        call(*args)
    return caught.value.code, caught.value.why


def topic(**fields):
    return NewTopic("t", **fields)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: . is not allowed"),
        ("..", "Topic name is invalid: .. is not allowed"),
        (
            "x" * 250,
            (
                f"Topic name is invalid: the length of {'x' * 250} is longer than the max allowed "
                "length 249"
            ),
        ),
        *(
            (
                bad,
                (
                    f"Topic name is invalid: {bad} contains one or more characters other than "
                    "ASCII alphanumerics, ., _ and -"
                ),
            )
            for bad in ("../x", "a b", "a/b", "\u00fc", "a\n", "a\x00b", "\u0661")
        ),
    ],
)
def test_a_bad_name_is_refused_in_kafkas_words(name, why):
    assert topic_name_error(name) == why


@pytest.mark.parametrize("name", ["a", "x" * 249, "...", "__x", "__consumer_offsets", "A-b_c.9"])
def test_a_good_name_passes(name):
    assert topic_name_error(name) is None


def test_names_that_differ_by_dots_and_underscores_collide():
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a-b") != collision_key("a_b")


# New topics.


@pytest.mark.parametrize("count", [0, -2, -(2**31)])
def test_an_impossible_count_of_partitions_is_refused(count):
    assert refusal(plan_assignments, topic(partition_count=count), ONE_NODE) == (
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    )


@pytest.mark.parametrize("count", [10_001, 20_000, 10_000_000, 2**31 - 1])
def test_too_many_partitions_are_refused_before_they_cost_memory(count):
    code, why = refusal(plan_assignments, topic(partition_count=count), ONE_NODE)
    assert code is ErrorCode.POLICY_VIOLATION
    assert why.startswith("Excessively large number of partitions per request")


@pytest.mark.parametrize("index", [range(10_001), [0] * 10_001])
def test_as_many_partitions_are_too_many_wherever_their_replicas_are_to_be(index):
    """They are counted before they are looked at: 30,000 held the loop for 27 ms."""
    code, why = refusal(
        plan_assignments, topic(assignments=[(each, [9]) for each in index]), ONE_NODE
    )
    assert code is ErrorCode.POLICY_VIOLATION
    assert why == "Excessively large number of partitions per request."
    placed = [(each, [1]) for each in range(10_000)]
    assert len(plan_assignments(topic(assignments=placed), ONE_NODE)) == 10_000


def test_as_many_partitions_as_allowed_pass():
    assert len(plan_assignments(topic(partition_count=10_000), ONE_NODE)) == 10_000


@pytest.mark.parametrize("factor", [0, -2, -(2**15)])
def test_an_impossible_replication_factor_is_refused(factor):
    assert refusal(plan_assignments, topic(replication_factor=factor), ONE_NODE) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    )


@pytest.mark.parametrize("factor", [2, 32767])
def test_a_replication_factor_above_the_nodes(factor):
    code, why = refusal(plan_assignments, topic(replication_factor=factor), ONE_NODE)
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert why.startswith(
        f"Unable to replicate the partition {factor} time(s): The target replication factor of "
        f"{factor} cannot be reached because only 1 broker(s) are registered"
    )


def test_nodes_that_are_down_get_the_replicas_that_no_other_one_can():
    """As in Kafka: one host that is down does not keep topics of three replicas from being made."""
    one_down = THREE_NODES._replace(live_nodes=[1, 5], away_nodes=[2])
    wanted = topic(partition_count=4, replication_factor=3)
    assert plan_assignments(wanted, one_down) == [[1, 5, 2], [5, 1, 2], [1, 5, 2], [5, 1, 2]]
    two_down = THREE_NODES._replace(live_nodes=[5], away_nodes=[1, 2])
    wanted = topic(partition_count=2, replication_factor=2)
    assert plan_assignments(wanted, two_down) == [[5, 1], [5, 2]]
    code, why = refusal(plan_assignments, topic(replication_factor=4), one_down)
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 3 broker(s) are registered" in why
    all_down = THREE_NODES._replace(live_nodes=[], away_nodes=[1, 2, 5])
    code, why = refusal(plan_assignments, topic(replication_factor=1), all_down)
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_assignment_may_name_nodes_that_are_down_but_not_only_such():
    one_down = THREE_NODES._replace(live_nodes=[1, 5], away_nodes=[2])
    assert plan_assignments(topic(assignments=[(0, [2, 1])]), one_down) == [[2, 1]]
    code, why = refusal(plan_assignments, topic(assignments=[(0, [2])]), one_down)
    assert (code, "partition 0 are fenced" in why) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)
    wanted = NewPartitions("t", 3, [[1], [2]])
    code, why = refusal(plan_more_partitions, wanted, 1, 1, one_down)
    assert (code, "partition 2 are fenced" in why) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)


def test_who_is_down_is_not_in_sync_with_a_new_partition():
    state = first_state([2, 1, 5], {1, 5})
    assert (state.replicas, state.isr, state.leader) == ((2, 1, 5), (1, 5), 1)
    gone = first_state([2, 1], set())
    assert (gone.isr, gone.leader) == ((2, 1), 2)


def test_the_replication_factor_is_judged_before_the_count():
    wrong = topic(partition_count=0, replication_factor=0)
    code, _ = refusal(plan_assignments, wrong, ONE_NODE)
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_defaults_stand_for_minus_one():
    placement = THREE_NODES._replace(default_partition_count=4)
    planned = plan_assignments(topic(partition_count=DEFAULT), placement)
    assert [len(replicas) for replicas in planned] == [2] * 4


def test_replicas_are_distinct_and_spread_evenly():
    planned = plan_assignments(topic(partition_count=9, replication_factor=2), THREE_NODES)
    assert all(len(set(replicas)) == 2 for replicas in planned)
    leaders = [replicas[0] for replicas in planned]
    followers = [replicas[1] for replicas in planned]
    assert all(leaders.count(node) == followers.count(node) == 3 for node in (1, 2, 5))


# Replicas named by the client.


def test_assignments_are_taken_in_the_order_of_their_indexes():
    planned = plan_assignments(topic(assignments=[(1, [5, 2]), (0, [1, 5])]), THREE_NODES)
    assert planned == [[1, 5], [5, 2]]


@pytest.mark.parametrize(
    ("fields", "code", "why"),
    [
        (
            {"assignments": [(0, [1])], "partition_count": 1, "replication_factor": 1},
            ErrorCode.INVALID_REQUEST,
            (
                "A manual partition assignment was specified, but replication factor "
                "was not set to -1."
            ),
        ),
        (
            {"assignments": [(0, [1])], "partition_count": 1},
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but partition count was not set to -1.",
        ),
        (
            {"assignments": [(0, [9])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            {"assignments": [(0, [1]), (2, [1])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            {"assignments": [(-1, [1]), (0, [1])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            {"assignments": [(0, [1, 1])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            {"assignments": [(0, [])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            {"assignments": [(0, [1]), (0, [1])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
    ],
)
def test_a_bad_assignment_is_refused_in_kafkas_words(fields, code, why):
    assert refusal(plan_assignments, topic(**fields), ONE_NODE) == (code, why)


# More partitions.


def more(count, assignments=None):
    return NewPartitions("t", count, assignments)


@pytest.mark.parametrize(
    ("wanted", "present", "code", "why"),
    [
        (more(2), 2, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        *(
            (
                more(count),
                2,
                ErrorCode.INVALID_PARTITIONS,
                f"The topic t currently has 2 partition(s); {count} would not be an increase.",
            )
            for count in (1, 0, -1)
        ),
        (
            more(7, [[1]]),
            5,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            more(6, []),
            5,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            more(6, [[9]]),
            5,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            more(6, [[]]),
            5,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            more(6, [[1, 1]]),
            5,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
    ],
)
def test_more_partitions_are_refused_in_kafkas_words(wanted, present, code, why):
    assert refusal(plan_more_partitions, wanted, present, 1, ONE_NODE) == (code, why)


@pytest.mark.parametrize("count", [20_000, 10_000_000, 2**31 - 1])
def test_too_many_more_partitions_are_refused_before_they_cost_memory(count):
    code, _ = refusal(plan_more_partitions, more(count), 2, 1, ONE_NODE)
    assert code is ErrorCode.POLICY_VIOLATION


def test_added_partitions_go_on_where_the_present_ones_end():
    led = THREE_NODES._replace(leads={1: 1, 2: 1})
    added = plan_more_partitions(more(5), 2, 2, led)
    whole = plan_assignments(topic(partition_count=5, replication_factor=2), THREE_NODES)
    assert added == whole[2:]


def test_added_partitions_with_named_replicas():
    assert plan_more_partitions(more(5, [[1], [2]]), 3, 1, THREE_NODES) == [[1], [2]]


class ScriptedRng(SeededRng):
    """Gives the bytes it was told to."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def random_bytes(self, count):
        piece = self.pieces.pop(0)
        assert len(piece) == count
        return piece


def test_a_topic_id_is_a_uuid_of_version_4():
    raw = new_topic_id(ScriptedRng(b"\xaa" * 16))
    assert raw == b"\xaa" * 6 + b"\x4a\xaa" + b"\xaa" * 8
    assert new_topic_id(ScriptedRng(bytes(16)))[6:9] == b"\x40\0\x80"


def test_no_topic_id_looks_like_an_option_of_a_command():
    dash = b"\xf8" + bytes(15)
    assert topic_id_text(dash).startswith("-")
    assert not topic_id_text(new_topic_id(ScriptedRng(dash, bytes(16)))).startswith("-")
