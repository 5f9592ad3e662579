"""OffsetDelete: what is deleted, and that others have their turns meanwhile."""

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode
from ottla.sliced import STRIDE


def test_a_deletion_of_very_many_offsets_looks_at_few_topics_in_a_turn(groups, words, monkeypatch):
    """Once at all: a thousand expressions and ten thousand partitions held the broker for 0.8 s."""
    groups.commit("g", (0, 5), (1, 6))
    groups.settle()
    looked, at = [], []
    monkeypatch.setattr(ClassicGroup, "is_subscribed_to", lambda _, topic: looked.append(topic))
    in_steps = Shard.in_steps

    def watched(shard, steps):
        in_steps(shard, (at.append(len(looked)) for _ in steps))

    monkeypatch.setattr(Shard, "in_steps", watched)
    wanted = [("t", index) for index in range(STRIDE * 5)]
    pending = groups.coordinator.delete_offsets("g", wanted)
    fetched = groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=True)
    groups.clock.advance(0)
    groups.settle()
    assert at == [STRIDE * count - 1 for count in range(1, 6)]
    assert words.result_of(pending) == [ErrorCode.NONE] * len(wanted)
    (offset,) = words.result_of(fetched)
    assert offset.committed is None, "it stood behind the deletion"
    assert groups.fetch("g") == {}
