"""Random requests by random users under random ACLs, for a comparison with a live Kafka."""

import random
import time

from tests.authorized_requests import KEYS, KINDS, TIME, Requests
from tests.logging_in import MODULES, shake_hands, token
from tests.random_acls import GROUP, NAMES, TOPICS, TRANSACTION, random_acl
from tools.differential import Play
from tools.wire_client import WireClient

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = ("alice", "bob")
PASSWORDS = " ".join(f'user_{name}="{name}"' for name in (*USERS, "root"))
OPTIONS = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:root",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"{MODULES}.plain.PlainLoginModule required {PASSWORDS};"
    ),
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "auto.create.topics.enable": "false",
    "log.retention.ms": -1,
}
ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


class SecuredPlay(Play):
    """A play whose connections, but for "prepare", log in by the name before the dash."""

    def __init__(self, bootstrap: str) -> None:
        self.open, self.secured = bootstrap.split(" ")
        super().__init__(self.open)

    def connection(self, name: str) -> WireClient:
        if name not in self._connections and name != "prepare":
            wire = WireClient(self.secured, client_id=name)
            user = name.partition("-")[0]
            shake_hands(wire, "PLAIN")
            assert token(wire, f"\0{user}\0{user}")["error_code"] == 0
            self._connections[name] = wire
        return super().connection(name)

    def _plain(self, value, key=""):
        if key in {"producer_id", "last_timestamp", "current_txn_start_offset"} and value != -1:
            return "<some>"
        if key in {"controller_id", "leader_id"} and isinstance(value, int) and value >= 0:
            return "<a node>"
        if key in {
            "replica_nodes",
            "isr_nodes",
            "brokers",
            "total_bytes",
            "log_dir",
            "aborted_transactions",
            "usable_bytes",
        }:
            return "<left out>"
        if key == "configs" and isinstance(value, tuple | list):
            return [one["name"] for one in value if one["name"] in KEYS]
        return super()._plain(value, key)


def random_play(seed, rounds, requests, kinds=KINDS):
    """Return a script: rounds of a new ACL set, and requests under it."""

    def script(play):
        rng = random.Random(seed)
        prepare = play.connection("prepare")
        known = prepare.call("metadata", 12, topics=None, allow_auto_topic_creation=False)
        ids = {one["name"]: one["topic_id"] for one in known["topics"]}
        for name in TOPICS:
            if name not in ids:
                ids[name] = play.create_topic(name, 1)
        for kind, names in ((0, NAMES[GROUP]), (1, NAMES[TRANSACTION])):
            wait_for(prepare, kind, names)
        wait_for_producer_ids(prepare)
        known = prepare.call("metadata", 12, topics=None, allow_auto_topic_creation=False)
        for one in sorted(known["topics"], key=lambda one: one["name"]):
            play._name(str(one["topic_id"]))
        made = Requests(rng, ids)
        for _ in range(rounds):
            play.prepare("delete_acls", 3, filters=[ANY_ACL])
            wait_for_acls(prepare, [])
            creations = [random_acl(rng) for _ in range(rng.randint(1, 14))]
            play.call("root", "create_acls", 3, creations=creations)
            wait_for_acls(prepare, creations)
            for _ in range(requests):
                user = rng.choice(("alice", "alice", "alice", "bob"))
                api, version, fields = getattr(made, rng.choice(kinds))()
                play.call(user, api, version, **fields)

    return script


def wait_for_acls(wire, created):
    """Wait until exactly these are in force; with Kafka that is a moment after the answer."""
    wanted = len({tuple(sorted(one.items())) for one in created})
    deadline = time.monotonic() + 60
    while True:
        found = wire.call("describe_acls", 3, **ANY_ACL)["resources"]
        if sum(len(one["acls"]) for one in found) == wanted:
            return
        assert time.monotonic() < deadline, found


def wait_for_producer_ids(wire):
    deadline = time.monotonic() + 60
    while True:
        found = wire.call("init_producer_id", 4, transactional_id=None, transaction_timeout=TIME)
        if found["error_code"] == 0:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def wait_for(wire, key_type, names):
    deadline = time.monotonic() + 60
    while True:
        found = wire.call("find_coordinator", 4, key_type=key_type, coordinator_keys=list(names))
        if all(one["error_code"] == 0 for one in found["coordinators"]):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
