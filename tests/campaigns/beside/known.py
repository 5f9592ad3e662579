"""Where Ottla and Kafka are known to differ, and why: a script that comes to one of these ends.

A script goes on only while both brokers are in the same state, so the rest of it says nothing.
"""

import re

KNOWN = {
    r"(delete_groups|offset_delete).*error_code: 69 / 0": (
        "Kafka keeps a group in memory whose only OffsetCommit was refused for its metadata"
    ),
    r"list_groups.*: absent / ": "the same group",
    r"offset_commit.*error_code: (22|0) / 25": "the same group",
    r"fetch.*aborted_transactions: \[\] / None": "none either way",
    r"produce.*log_start_offset: -1 / 0$": "of a batch that its log refuses",
    r"produce.*partition_responses: \d / \d elements": "a topic id that nobody has, named twice",
    r"produce.*log_append_time: \d+ / \d+": "clocks",
    r"produce.*error_code: 48 / 6": "Kafka asks the coordinator a moment after a creation",
    r"end_txn.*error_code: 0 / 51": "Kafka writes markers later",
    r"delete_records.*low_watermark: 0 / [1-9]": "Kafka looks for what is too old half a minute on",
    r"describe_configs.*configs\[share\.": "share groups are not served",
    r"describe_configs.*error_code: 0 / 42": "Kafka refuses all because one resource is odd",
    r"alter_configs.*error_code: 17 / 4[02]": "which of two errors is told",
    r'alter_configs.*"resource_name": ""': "which of two errors is told",
    r"alter_configs.*error_code: (0|42) / (0|40|42)": "the values of a broker's options",
    r"describe_topic_partitions.*error_code: 17 / -1": "a bad name fails the whole in Kafka",
    r"alter_replica_log_dirs.*error_code: 57 / 17": "which of two errors is told",
    r"create_topics.*delete / delete,delete": "a policy is named once",
    r"join_group.*error_code: 25 / -1": "a static member whose id is unknown",
    r"join_group.*generation_id: \d+ / 0": "a classic member in the place of a newer static one",
    r"\.(leader|members|protocol_name)\b": "Kafka's choice follows from the order of a hash table",
    r"\.c\d\.assignment: ": "which member gets one more follows from that, too",
    r"groups\[.*\]\.members\[": "the same",
    r"'error_code': 69.*'error_code': 27": "a group that cannot be upgraded makes all join again",
}


def is_known(api, lines):
    """Tell whether a line of a difference is known: the others follow from it."""
    return any(any(re.search(one, f"{api} {line}", re.DOTALL) for one in KNOWN) for line in lines)
