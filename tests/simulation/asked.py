"""Requests by what their answers mean: faults wait for some of them."""

PROMISES = (
    "",
    "CreateTopicsRequest",
    "CreatePartitionsRequest",
    "DeleteTopicsRequest",
    "DeleteRecordsRequest",
    "IncrementalAlterConfigsRequest",
    "AlterReplicaLogDirsRequest",
    "ProduceRequest",
    "EndTxnRequest",
    "OffsetCommitRequest",
)
"""Requests whose answers promise something; the first stands for any."""
MAKES_PARTITIONS = {"CreateTopicsRequest", "CreatePartitionsRequest", "MetadataRequest"}
