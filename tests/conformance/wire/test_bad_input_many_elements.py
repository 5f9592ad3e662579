"""One request that names 60,000 things: everybody else goes on meanwhile, whichever API it is.

What held the loop is judged in ``tests/conftest.py``: by the CPU time of one turn, as the broker's
own log tells it. Served in one turn these took 0.9 to 4 s of CPU each.
"""

import struct

import pytest

from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.messages import create_topics, write_txn_markers
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from tools.wire_client import WireClient

NAMES = [f"n{number}" for number in range(60_000)]


def of_topics(names, **fields):
    return create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for name in names
        ],
        **fields,
    )


REQUESTS = {
    "delete groups": (ApiKey.DELETE_GROUPS, 2, lambda: DeleteGroupsRequest(groups_names=NAMES)),
    "describe groups": (ApiKey.DESCRIBE_GROUPS, 5, lambda: DescribeGroupsRequest(groups=NAMES)),
    "markers": (
        ApiKey.WRITE_TXN_MARKERS,
        1,
        lambda: write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=True,
                    coordinator_epoch=0,
                    topics=[
                        write_txn_markers.WritableTxnMarkerTopic(
                            name="nothing", partition_indexes=[*range(60_000)]
                        )
                    ],
                )
            ]
        ),
    ),
    "valid topics": (
        ApiKey.CREATE_TOPICS,
        7,
        lambda: of_topics(NAMES[:10_000], validate_only=True),
    ),
}


def frame_of(key, version, request):
    body = bytearray(struct.pack(">hhih", key, version, 7, -1))
    if version in request.FLEXIBLE:
        body.append(0)
    API_TABLE[key].request.encoder(version)(request, body, [])
    return bytes(body)


@pytest.mark.parametrize("what", REQUESTS)
def test_what_names_very_much_keeps_nobody_waiting(target, target_kind, what):
    if target_kind != "ottla":
        pytest.skip("its log does not tell how long it was busy")
    key, version, request = REQUESTS[what]
    with WireClient(target.bootstrap) as client, WireClient(target.bootstrap) as other:
        client.socket.settimeout(100)
        other.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
        client.send_frame(frame_of(key, version, request()))
        assert other.call("api_versions", 0)["error_code"] == 0
        assert struct.unpack_from(">i", client.receive_frame()) == (7,)
