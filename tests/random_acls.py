"""Random ACLs and filters of ACLs, and the small world of names that they are about."""

TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
TOPICS = ("t-a", "t-b", "x")
NAMES = {
    TOPIC: (*TOPICS, "nobody"),
    GROUP: ("g-a", "g-b", "h"),
    CLUSTER: ("kafka-cluster",),
    TRANSACTION: ("tx-a", "tx-b"),
}
PREFIXES = {TOPIC: ("t-", "x", "n"), GROUP: ("g-", "h"), TRANSACTION: ("tx-",)}
OPERATIONS = {
    TOPIC: (2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 10, 11),
    GROUP: (2, 3, 3, 6, 8, 10, 11),
    CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12, 6),
    TRANSACTION: (2, 4, 4, 8),
}


def random_acl(rng):
    kind = rng.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLUSTER, TRANSACTION))
    pattern, name = 3, rng.choice((*NAMES[kind], "*"))
    if kind != CLUSTER and rng.random() < 0.3:
        pattern, name = 4, rng.choice((*PREFIXES[kind], "*"))
    if kind == CLUSTER:
        name = "kafka-cluster"
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": rng.choice(("User:alice", "User:alice", "User:bob", "User:*", "Group:alice")),
        "host": rng.choice(("*", "*", "*", "127.0.0.1", "10.0.0.1")),
        "operation": rng.choice(OPERATIONS[kind]),
        "permission_type": 2 if rng.random() < 0.25 else 3,
    }


def random_filter(rng):
    one = random_acl(rng)
    pick = rng.random
    return {
        "resource_type_filter": one["resource_type"] if pick() < 0.5 else 1,
        "resource_name_filter": one["resource_name"] if pick() < 0.5 else None,
        "pattern_type_filter": rng.choice((1, 2, 3, 4)),
        "principal_filter": one["principal"] if pick() < 0.3 else None,
        "host_filter": one["host"] if pick() < 0.2 else None,
        "operation": one["operation"] if pick() < 0.3 else 1,
        "permission_type": one["permission_type"] if pick() < 0.3 else 1,
    }
