"""Members of both group protocols in one group, and the records that it leaves in its log."""

import struct
import uuid


def text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def partitions_of(owned):
    parts = [struct.pack(">i", len(owned))]
    for topic, numbers in owned.items():
        parts += [text(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


def subscription(topics, owned=None, *, version=1, generation=-1, rack=None):
    """What a consumer says in JoinGroup."""
    parts = [struct.pack(">hi", version, len(topics)), *map(text, topics), struct.pack(">i", -1)]
    if version >= 1:
        parts.append(partitions_of(owned or {}))
    if version >= 2:
        parts.append(struct.pack(">i", generation))
    if version >= 3:
        parts.append(struct.pack(">h", -1) if rack is None else text(rack))
    return b"".join(parts)


def assignment(owned, version=1):
    """What a leader gives in SyncGroup."""
    return struct.pack(">h", version) + partitions_of(owned) + struct.pack(">i", -1)


class Mixed:
    """Short words for what members of either protocol send. Classic ones have connections."""

    def __init__(self, play, group, topics):
        self.play, self.group, self.topics = play, group, list(topics)
        self.counts = topics
        self.ids = {name: play.create_topic(name, count) for name, count in topics.items()}
        play.wait_for_coordinator(group)
        play.wait_for_topics(group, *topics)
        self.members = {}

    # The classic protocol.

    def ask_join(self, name, member_id=None, *, version=9, subscribed=None, **fields):
        names = fields.pop("names", ("range",))
        data = subscription(self.topics) if subscribed is None else subscribed
        asked = {
            "group_id": self.group,
            "session_timeout": 30_000,
            "rebalance_timeout": 60_000,
            "member_id": self.members.get(name, ("", 0))[0] if member_id is None else member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": one, "metadata": data} for one in names],
        } | fields
        self.play.send(name, "join_group", version, **asked)

    def joined(self, name):
        answer = self.play.receive(name)
        self.members[name] = (answer["member_id"], answer["generation_id"])
        return answer

    def join(self, name, member_id=None, **fields):
        self.ask_join(name, member_id, **fields)
        return self.joined(name)

    def come(self, name, **fields):
        """Join with the id that the first JoinGroup gives."""
        self.join(name, **fields)
        return self.join(name, **fields)

    def ask_sync(self, name, given=None, *, generation=None, version=5, **fields):
        member_id, known = self.members[name]
        asked = {
            "group_id": self.group,
            "generation_id": known if generation is None else generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                {"member_id": self.members[one][0], "assignment": data}
                for one, data in (given or {}).items()
            ],
        } | fields
        self.play.send(name, "sync_group", version, **asked)

    def sync(self, name, given=None, **fields):
        self.ask_sync(name, given, **fields)
        return self.play.receive(name)

    def classic_beat(self, name, generation=None, **fields):
        member_id, known = self.members[name]
        asked = {
            "group_id": self.group,
            "member_id": member_id,
            "generation_id": known if generation is None else generation,
        } | fields
        return self.play.call(name, "heartbeat", 4, **asked)

    def classic_leave(self, *members, version=5):
        self.play.call("c", "leave_group", version, group_id=self.group, members=list(members))

    def stable(self, name="k1", **fields):
        """A classic group of one member that has everything."""
        self.come(name, **fields)
        everything = {topic: list(range(count)) for topic, count in self.counts.items()}
        self.sync(name, {name: assignment(everything)})

    # The consumer protocol.

    def beat(self, member, epoch, *, owned=None, **fields):
        if owned is not None:
            given = {self.topics[0]: owned} if isinstance(owned, list) else owned
            fields["topic_partitions"] = [
                {"topic_id": self.ids[topic], "partitions": numbers}
                for topic, numbers in given.items()
                if numbers
            ]
        fields.setdefault("topic_partitions", None)
        fields.setdefault("subscribed_topic_names", None)
        self.play.call(
            "c",
            "consumer_group_heartbeat",
            1,
            group_id=self.group,
            member_id=member,
            member_epoch=epoch,
            **fields,
        )
        self.look()

    def subscribe(self, member, **fields):
        asked = {
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": self.topics,
            "topic_partitions": [],
        } | fields
        self.beat(member, 0, **asked)

    # Both.

    def look(self):
        """Describe the group in either way."""
        self.play.call("c", "consumer_group_describe", 1, group_ids=[self.group])
        self.play.call("c", "describe_groups", 6, groups=[self.group])

    def commit(self, name, generation, version=9, **fields):
        member_id = self.members[name][0] if name in self.members else name
        part = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
        asked = {
            "group_id": self.group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [{"name": self.topics[0], "partitions": [part]}],
        } | fields
        self.play.call("c", "offset_commit", version, **asked)

    def fetch(self, name, epoch):
        member_id = self.members[name][0] if name in self.members else name
        topics = [{"name": self.topics[0], "partition_indexes": [0]}]
        asked = {"group_id": self.group, "topics": topics}
        asked |= {"member_id": member_id, "member_epoch": epoch}
        self.play.call("c", "offset_fetch", 9, groups=[asked])

    def records(self):
        """Compare what stands in the log of the group: batch by batch, when all is there."""
        asked = [{"group_id": self.group, "topics": []}]
        self.play.prepare("offset_fetch", 8, groups=asked, require_stable=True)
        for batch in batches_of(self.play, self.group):
            self.play.note("c", "records", batch)


def batches_of(play, group):
    """The records of a group, as values, batch by batch, in the order in which they stand."""
    from ottla.coordinator.records import decode_slice

    connection = play.connection("prepare")
    offset, batches = 0, []
    while True:
        fetched = connection.fetch(
            "__consumer_offsets", offset=offset, partition_max_bytes=1 << 20, max_wait=0
        )
        data = bytes(fetched["records"] or b"")
        if not data:
            return batches
        while data:
            end = 12 + int.from_bytes(data[8:12], "big")
            piece, data = decode_slice(data[:end]), data[end:]
            offset = piece.next_offset
            found = [plain for one in piece.entries if (plain := record_of(one, group))]
            # Kafka goes through members and targets in the order of a hash map.
            batches += [sorted(found, key=lambda one: one[0])] if found else []


def record_of(stored, group):
    """What a record says; nothing if it is of another group, or another kind of thing."""
    from ottla.coordinator.group import record_bytes
    from ottla.coordinator.group.classic import tables
    from ottla.coordinator.group.consumer import tables as consumer_tables

    member = consumer_tables.ConsumerGroupMemberKey
    kinds = {
        2: (tables.GroupMetadataKey, tables.GroupMetadataValue),
        3: (consumer_tables.ConsumerGroupKey, consumer_tables.GroupValue),
        5: (member, consumer_tables.MemberValue),
        6: (consumer_tables.ConsumerGroupKey, consumer_tables.TargetEpochValue),
        7: (member, consumer_tables.TargetMemberValue),
        8: (member, consumer_tables.CurrentMemberValue),
    }
    kind = record_bytes.key_type(stored)
    if kind not in kinds:
        return None
    key_table, value_table = kinds[kind]
    key, _ = key_table.decoder(2 * (kind == 2))(memoryview(stored.key), 2, len(stored.key))
    if key.group != group:
        return None
    if stored.value is None:
        return kind, getattr(key, "name", ""), None
    version = int.from_bytes(stored.value[:2], "big")
    value, end = value_table.decoder(version)(memoryview(stored.value), 2, len(stored.value))
    assert end == len(stored.value)
    return kind, getattr(key, "name", ""), version, fields_of(value)


def fields_of(value):
    if isinstance(value, list):
        return [fields_of(one) for one in value]
    if hasattr(value, "FIELDS"):
        # The leader is whom a hash map has first.
        left_out = {"current_state_timestamp", "assignment_timestamp", "metadata_hash", "leader"}
        kept = {name: getattr(value, name) for name in value.FIELDS if name not in left_out}
        if "topic_id" in kept:
            kept["topic_id"] = uuid.UUID(bytes=kept["topic_id"])
        return {name: fields_of(one) for name, one in kept.items()}
    return value
