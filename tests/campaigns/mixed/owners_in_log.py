"""Who owned what, by the coordinator's own log: the members' steps of a KIP-848 group, replayed.

What a member holds or has still to give up must be nobody else's, after every record. Takes the
files that a killed broker left; knows nothing of processes.
"""

import struct
from pathlib import Path

from ottla.coordinator.group.consumer.tables import CURRENT_MEMBER, CurrentMemberValue
from tools.wire_client import batches, records_of

_INT16 = struct.Struct(">h")


def owners_in_log(data, group):
    """Return (records of members' steps, problems)."""
    count = 0
    problems = []
    for path in sorted(Path(data).glob("__consumer_offsets-*/*.log")):
        holds = {}
        for header in batches(path.read_bytes()):
            for offset, key, value in records_of(header):
                member = _member_of(key, group)
                if member is None:
                    continue
                count += 1
                holds[member] = set() if value is None else _held(value)
                for other, held in holds.items():
                    if other != member and held & holds[member]:
                        both = sorted(held & holds[member])
                        problems.append(f"record {offset} gives {both} of {other} to {member}")
    return count, problems


def _member_of(key, group):
    """Return whose step a record is; None if it is something else."""
    if not key or _INT16.unpack_from(key)[0] != CURRENT_MEMBER:
        return None
    end = 4 + _INT16.unpack_from(key, 2)[0]
    return key[end + 2 :] if key[4:end] == group.encode() else None


def _held(value):
    found, _ = CurrentMemberValue.decoder(0)(memoryview(value), 2, len(value))
    return {
        (topic.topic_id, number)
        for topic in (*found.assigned, *found.pending_revocation)
        for number in topic.partitions
    }
