"""Random members of groups, of both protocols, in step on two brokers.

Each client has a connection of its own, on which at most one request waits. After each request both
brokers get time to answer whoever waits: the same clients have to be answered, with the same.
"""

import random
import struct
import time

SETTLED_SECONDS = 0.06
"""How long nobody is answered before a step is over."""
PATIENCE_SECONDS = 3.0
"""How long one broker may answer later than the other."""
CLIENTS = 5
NOTHING = {"member_id": "", "generation": -1, "members": (), "leader": ""}
"""What a new client knows."""


def subscription(topics):
    """Return a classic consumer's metadata, version 0."""
    named = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + named + struct.pack(">i", -1)


class Client:
    """What one client knows, on each of the two brokers."""

    def __init__(self, number):
        self.name = f"c{number}"
        self.group = None
        self.instance = None
        self.is_modern = False
        self.waits = None
        """The API whose answer has not come."""
        self.known = [dict(NOTHING), dict(NOTHING)]


class Members:
    """A script: who asks what next."""

    def __init__(self, name, sides, *, mixes):
        self.mixes = mixes
        """Groups have members of both protocols."""
        self.rng = random.Random(name)
        self.prefix = f"s{name}".replace(".", "-")
        self.groups = [f"{self.prefix}-g{number}" for number in range(2)]
        self.topics = [f"{self.prefix}-t{number}" for number in range(2)]
        """The second one does not exist: who gets what of several follows from their ids."""
        self.sides = sides
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.done = []

    def set_up(self):
        for side in self.sides:
            side.memory.topic_ids[self.topics[0]] = side.play.create_topic(self.topics[0], 4)
            side.play.wait_for_coordinator(*self.groups)
            for group in self.groups:
                side.play.wait_for_topics(group, self.topics[0])

    # One step.

    def step(self):
        """Ask something; return what came, on each side: answers by client."""
        idle = [client for client in self.clients if client.waits is None]
        if idle:
            client = self.rng.choice(idle)
            api, version, made = self._request(client)
            self._send(client, api, version, made)
        return self._settle()

    def _send(self, client, api, version, made):
        client.waits = api
        for side, known in zip(self.sides, client.known, strict=True):
            fields = made(known, side)
            side.play.send(client.name, api, version, **fields)
            if side is self.sides[0]:
                self.done.append(f"{client.name}: {api} v{version} {fields}")

    def _settle(self):
        answered = [{}, {}]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            news = False
            for number, side in enumerate(self.sides):
                for client in self.clients:
                    is_due = client.waits is not None and client.name not in answered[number]
                    if is_due and self._has_answer(side, client):
                        news = True
                        answered[number][client.name] = self._take(number, side, client)
            same = answered[0].keys() == answered[1].keys()
            if not news and (same or time.monotonic() > deadline):
                break
        for client in self.clients:
            if client.name in answered[0] or client.name in answered[1]:
                client.waits = None
        return answered

    def _has_answer(self, side, client):
        peek = side.play.connection(client.name).socket
        peek.settimeout(SETTLED_SECONDS / CLIENTS)
        try:
            return peek.recv(1, 2) is not None
        except TimeoutError:
            return False
        finally:
            peek.settimeout(20.0)

    def _take(self, number, side, client):
        answer = side.play.receive(client.name)
        if answer.get("closed"):
            side.play.drop(client.name)
        known = client.known[number]
        code = answer.get("error_code")
        if client.waits == "join_group":
            if answer.get("member_id"):
                known["member_id"] = answer["member_id"]
            if code == 0:
                known |= {
                    "generation": answer["generation_id"],
                    "members": [one["member_id"] for one in answer["members"]],
                    "leader": answer["leader"],
                }
        elif client.waits == "consumer_group_heartbeat" and code == 0:
            known |= {"member_id": answer["member_id"], "generation": answer["member_epoch"]}
            if answer["assignment"] is not None:
                known["owned"] = [
                    {"topic_id": one["topic_id"], "partitions": one["partitions"]}
                    for one in answer["assignment"]["topic_partitions"]
                ]
        compared = side.compared(side.play.steps[-1].answer)
        if client.waits == "consumer_group_heartbeat" and compared.get("assignment"):
            # Which ones follows from the order of the topics' ids.
            given = compared["assignment"]["topic_partitions"]
            compared["assignment"] = sum(len(one["partitions"]) for one in given)
        return compared

    # What is asked.

    def _request(self, client):
        if client.group is None or self.rng.random() < 0.04:
            client.group = self.rng.choice(self.groups)
            client.is_modern = self.groups.index(client.group) == 1
            if self.mixes:
                client.is_modern = self.rng.random() < 0.5
            client.instance = self.rng.choice((None, None, "i1", "i2"))
            client.name = f"{client.name.split('.')[0]}.{len(self.done)}"  # A new one.
            client.known = [dict(NOTHING), dict(NOTHING)]
        wanted = ["join"] * 4 + ["sync"] * 4 + ["heartbeat", "commit", "describe", "leave", "fetch"]
        if client.is_modern:
            wanted = ["beat"] * 10 + ["commit", "describe_modern", "gone", "fetch"]
        wanted += ["list", "delete"] if self.rng.random() < 0.1 else []
        return getattr(self, f"_{self.rng.choice(wanted)}")(client)

    def _is_odd(self):
        return self.rng.random() < 0.06

    def _off(self):
        return self.rng.choice((-1, 1)) if self._is_odd() else 0

    def _join(self, client):
        version = self.rng.choice((0, 3, 4, 5, 7, 9))
        names = self.rng.choice((["range"], ["range", "sticky"], ["sticky", "range"], ["other"]))
        if self.rng.random() < 0.8:
            names = ["range", "sticky"]
        metadata = subscription(self.rng.choice((self.topics, self.topics[:1])))
        kind = "connect" if self._is_odd() else "consumer"
        is_new, instance = self._is_odd(), client.instance if version >= 5 else None

        def made(known, side):
            del side
            fields = {
                "group_id": client.group,
                "session_timeout": 45_000,
                "member_id": "" if is_new else known["member_id"],
                "protocol_type": kind,
                "protocols": [{"name": name, "metadata": metadata} for name in names],
            }
            if version >= 1:
                fields["rebalance_timeout"] = 60_000
            if version >= 5:
                fields["group_instance_id"] = instance
            return fields

        return "join_group", version, made

    def _sync(self, client):
        version, off = self.rng.choice((0, 2, 3, 4)), self._off()

        def made(known, side):
            del side
            is_leader = known["leader"] == known["member_id"]
            assignments = [
                {"member_id": one, "assignment": one.split("-")[0].encode()}
                for one in (known["members"] if is_leader else ())
            ]
            return self._as_member(client, known, version, off) | {"assignments": assignments}

        return "sync_group", version, made

    def _heartbeat(self, client):
        version, off = self.rng.choice((0, 2, 3, 4)), self._off()

        return (
            "heartbeat",
            version,
            lambda known, side: self._as_member(client, known, version, off),
        )

    def _as_member(self, client, known, version, off):
        """Return the fields by which SyncGroup and Heartbeat say who asks."""
        fields = {
            "group_id": client.group,
            "generation_id": known["generation"] + off,
            "member_id": known["member_id"],
        }
        return fields | ({"group_instance_id": client.instance} if version >= 3 else {})

    def _leave(self, client):
        version, by_name = self.rng.choice((0, 2, 3, 5)), self.rng.random() < 0.3

        def made(known, side):
            del side
            if version < 3:
                return {"group_id": client.group, "member_id": known["member_id"]}
            one = {"member_id": known["member_id"], "group_instance_id": client.instance}
            if by_name and client.instance:
                one["member_id"] = ""
            return {"group_id": client.group, "members": [one]}

        return "leave_group", version, made

    def _commit(self, client):
        off, offset, topic = self._off(), self.rng.randrange(9), self.rng.choice(self.topics)
        is_simple = self.rng.random() < 0.1

        def made(known, side):
            del side
            part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
            return {
                "group_id": client.group,
                "generation_id_or_member_epoch": -1 if is_simple else known["generation"] + off,
                "member_id": "" if is_simple else known["member_id"],
                "group_instance_id": client.instance,
                "topics": [{"name": topic, "partitions": [part]}],
            }

        return "offset_commit", self.rng.choice((7, 8, 9)), made

    def _fetch(self, client):
        by_member = self.rng.random() < 0.5

        def made(known, side):
            del side
            group = {"group_id": client.group, "topics": None}
            if by_member:
                group |= {"member_id": known["member_id"], "member_epoch": known["generation"]}
            return {"groups": [group]}

        return "offset_fetch", 9, made

    def _describe(self, client):
        version = self.rng.choice((3, 5, 6))
        return "describe_groups", version, lambda known, side: {"groups": [client.group]}

    def _describe_modern(self, client):
        version = self.rng.choice((0, 1))
        return "consumer_group_describe", version, lambda known, side: {"group_ids": [client.group]}

    def _list(self, client):
        del client
        return "list_groups", 5, lambda known, side: {}

    def _delete(self, client):
        return "delete_groups", 2, lambda known, side: {"groups_names": [client.group]}

    def _beat(self, client, *, epoch=None):
        joins, off = self._is_odd(), self._off()
        topics = self.rng.choice((self.topics, self.topics[:1], self.topics[1:]))
        says_topics, assignor = self.rng.random() < 0.3, self.rng.choice((None, None, "range"))
        forgets = self._is_odd()

        def made(known, side):
            del side
            member_id = known["member_id"] or f"{self.prefix}-{client.name}"
            at = known["generation"] + off
            if joins or known["generation"] <= 0:
                at = 0
            if epoch is not None:
                at = epoch
            fields = {
                "group_id": client.group,
                "member_id": member_id,
                "member_epoch": at,
                "instance_id": client.instance,
            }
            if at == 0 or says_topics:
                fields |= {
                    "rebalance_timeout": 60_000,
                    "subscribed_topic_names": topics,
                    "server_assignor": assignor,
                    "topic_partitions": [] if at == 0 or forgets else known.get("owned", []),
                }
            else:
                fields["topic_partitions"] = known.get("owned")
            return fields

        return "consumer_group_heartbeat", 1, made

    def _gone(self, client):
        return self._beat(client, epoch=-2 if client.instance and self.rng.random() < 0.5 else -1)
