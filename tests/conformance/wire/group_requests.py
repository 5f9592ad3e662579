"""The fields of requests about groups, with values for what a test does not name."""


def subscription(*topics, version=1):
    """A consumer's metadata: version, topics, no user data, nothing owned."""
    data = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        data += len(topic).to_bytes(2, "big") + topic.encode()
    return data + b"\xff\xff\xff\xff" + (b"\x00\x00\x00\x00" if version else b"")


def joining(group, member_id="", *, topics=("t",), protocols=("range",), instance=None, **fields):
    given = {
        "group_id": group,
        "member_id": member_id,
        "session_timeout": 30_000,
        "rebalance_timeout": 20_000,
        "protocol_type": "consumer",
        "protocols": [{"name": one, "metadata": subscription(*topics)} for one in protocols],
    } | fields
    if instance is not None:
        given["group_instance_id"] = instance
    return given


def syncing(group, member_id, generation, assignments=(), **fields):
    return {
        "group_id": group,
        "member_id": member_id,
        "generation_id": generation,
        "assignments": [
            {"member_id": one, "assignment": assignment} for one, assignment in assignments
        ],
    } | fields


def committing(group, offset, *, topic="t", index=0, generation=-1, member_id="", metadata=None):
    part = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": topic, "partitions": [part]}],
    }


def all_of(*groups, **fields):
    return {"groups": [{"group_id": group, "topics": None} | fields for group in groups]}


def unknown_id():
    import uuid

    return uuid.UUID(int=5)
