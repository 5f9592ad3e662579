"""The operations that a client may do, as bit fields (KIP-430). Without an authorizer: all.

Bit n stands for AclOperation n. The values are those of a live Kafka 4.3 without authorizer.
"""

CLUSTER_OPERATIONS = 8096
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""
TOPIC_OPERATIONS = 3576
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""
GROUP_OPERATIONS = 3400
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""
