"""Coordinators: state that lives in the partitions of an internal topic and is served from memory.

``runtime`` and ``shard`` know logs and durability, and nothing of groups; ``group`` knows groups,
and nothing of logs. Above replication, below the handlers. Source: Kafka's coordinator runtime.
"""
