"""The same random requests to Ottla and to a live Apache Kafka, in step; answers are compared.

    python tests/campaigns/beside_kafka.py --scripts 50 --seed 1
    python tests/campaigns/beside_kafka.py --script 1.17
    python tests/campaigns/beside_kafka.py --members            groups of either protocol
    python tests/campaigns/beside_kafka.py --members --mixed    groups of both

A script is some dozens of requests of any API and version about a few topics, groups and
producers of its own. Each request is made once and sent to both brokers with what each has called
things (topic ids, producer ids, fetch sessions); a script ends at the first answer that differs.
Reads are asked again before they count as different: a Kafka hears late of what it has done.
``beside.known`` has the differences that are known, and why they are there.
"""

import argparse
import collections
import json
import random
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from kio.serial.errors import SerialError

from tests.campaigns.beside.known import is_known
from tests.campaigns.beside.members import Members
from tests.campaigns.beside.references import Memory
from tests.campaigns.beside.requests import NAMING, Script, produce_of, request_of
from tools.differential import Play, Silence
from tools.kafka_peer import KafkaPeer
from tools.ottla_peer import OttlaPeer
from tools.wire_client import values_of

APIS = {
    # api: (versions, weight)
    "create_topics": ((2, 7), 6),
    "create_partitions": ((0, 3), 3),
    "delete_topics": ((1, 6), 2),
    "metadata": ((0, 13), 3),
    "describe_topic_partitions": ((0, 0), 2),
    "describe_configs": ((1, 4), 2),
    "alter_configs": ((0, 2), 2),
    "incremental_alter_configs": ((0, 1), 4),
    "delete_records": ((0, 2), 3),
    "list_offsets": ((1, 11), 6),
    "offset_for_leader_epoch": ((2, 4), 3),
    "produce": ((3, 13), 8),
    "fetch": ((4, 18), 8),
    "init_producer_id": ((0, 5), 6),
    "add_partitions_to_txn": ((0, 3), 8),
    "add_offsets_to_txn": ((0, 4), 4),
    "end_txn": ((0, 5), 6),
    "txn_offset_commit": ((0, 5), 4),
    "describe_transactions": ((0, 0), 3),
    "list_transactions": ((0, 2), 2),
    "describe_producers": ((0, 0), 3),
    "find_coordinator": ((0, 6), 2),
    "offset_commit": ((2, 10), 5),
    "offset_fetch": ((1, 10), 5),
    "offset_delete": ((0, 0), 2),
    "delete_groups": ((0, 2), 2),
    "list_groups": ((0, 5), 2),
    "describe_groups": ((0, 6), 2),
    "consumer_group_describe": ((0, 1), 1),
    "describe_log_dirs": ((1, 4), 1),
    "alter_replica_log_dirs": ((1, 2), 1),
    "describe_client_quotas": ((0, 1), 1),
    "alter_client_quotas": ((0, 1), 1),
    "describe_user_scram_credentials": ((0, 0), 1),
    "alter_user_scram_credentials": ((0, 0), 1),
    "elect_leaders": ((0, 2), 1),
    "alter_partition_reassignments": ((0, 1), 1),
    "list_partition_reassignments": ((0, 0), 1),
    "idempotent": ((3, 13), 6),
    "transactional": ((3, 13), 10),
}
CHANGES = ("create", "delete", "alter", "incremental", "add", "end", "write", "txn", "init")
AGAIN = 20
AGAIN_SECONDS = 0.1
SETTLING_SECONDS = 0.05
STEPS = 60
"""Of a script of members."""
REQUESTS = 120
OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": 5,
    "offsets.topic.num.partitions": 5,
    "node.id": 1,
}
IGNORED = frozenset(
    (
        "log_dir",
        "error_message",
        "batch_index_error_message",
        "transaction_start_time",
        "last_timestamp",
        "documentation",
    )
)


DEFAULTS = (
    "flush.messages",
    "min.insync.replicas",
    "local.retention.ms",
    "local.retention.bytes",
    "retention.ms",
)
"""Options whose defaults differ by intent, or by how the peer was made."""
FOREIGN = re.compile(r"s\d+-\d+-|__")
"""Names of any script's topics, groups and producers, and of internal topics."""
UNSENDABLE = collections.Counter()


class Side:
    """One of the two brokers."""

    def __init__(self, bootstrap, prefix):
        self.prefix = prefix
        self.play = Play(bootstrap)
        self.memory = Memory()

    def ask(self, api, version, fields):
        """Send the request; return the answer as it is compared, and as it came."""
        resolved = self.memory.resolve(fields)
        self.play.send("c", api, version, **resolved)
        try:
            answer = self.play.receive("c")
        except Silence:
            answer = {"silence": True}
        except SerialError as error:
            answer = {"unreadable": str(error)}
            self.play.note("c", api, answer)
        if answer.get("closed") or answer.get("silence"):
            self.play.drop("c")
        return self.compared(self.play.steps[-1].answer), answer

    def compared(self, value, key=""):
        """Leave out what differs between any two brokers; call producers by their names."""
        if isinstance(value, dict):
            kept = {name: one for name, one in value.items() if name not in IGNORED}
            return {name: self.compared(one, name) for name, one in kept.items()}
        if isinstance(value, list):
            known = [one for one in value if not self._is_foreign(one)]
            known = [one for one in known if key != "configs" or one.get("name") not in DEFAULTS]
            known = _together(known)
            return sorted((self.compared(one, key) for one in known), key=json.dumps)
        if key == "records":
            return [[offset, str(data)] for offset, data in values_of(bytes.fromhex(value or ""))]
        if key == "session_id":
            return bool(value)
        if key in ("producer_id", "producer_ids") and value >= 0:
            names = [name for name, (one, _) in self.memory.producers.items() if one == value]
            return names[0] if names else "another"
        return value

    def hear(self, script, api, fields, answer):
        """Remember what later requests refer to."""
        is_done = answer.get("error_code") == 0
        gives_id = is_done and answer.get("producer_id", -1) >= 0
        if api in ("init_producer_id", "end_txn") and gives_id:
            name = fields["transactional_id"] or script.idle
            self.memory.producers[name] = (answer["producer_id"], answer["producer_epoch"])
        if api == "fetch" and is_done:
            self.memory.sessions[""] = answer.get("session_id", 0)
        if api in ("create_topics", "delete_topics"):
            self.learn_ids(script)

    def learn_ids(self, script):
        names = [{"name": name, "topic_id": None} for name in script.topics]
        told = self.play.prepare("metadata", 12, topics=names, allow_auto_topic_creation=False)
        for topic in told["topics"]:
            if topic["error_code"] == 0:
                self.memory.topic_ids[topic["name"]] = topic["topic_id"]

    def _is_foreign(self, value):
        """Tell whether an element of a list is about what another script has made."""
        if not isinstance(value, dict):
            return False
        names = [value.get(key) for key in ("name", "topic_name", "group_id", "transactional_id")]
        names = [name for name in names if isinstance(name, str)]
        prefix = self.prefix
        return any(FOREIGN.match(name) and not name.startswith(prefix) for name in names)


def _together(elements):
    """Join the elements of a topic: who answers errors first names a topic twice."""
    joined = {}
    for one in elements:
        named = isinstance(one, dict) and [one.get(key) for key in ("name", "topic", "topic_id")]
        listed = [key for key in ("partitions", "partition_responses") if named and key in one]
        if not named or not listed or not any(named):
            return elements
        (key,) = listed
        before = joined.get(str(named))
        joined[str(named)] = one if before is None else one | {key: before[key] + one[key]}
    return list(joined.values())


def choose(script, apis):
    names = list(apis)
    api = script.rng.choices(names, [apis[name][1] for name in names])[0]
    low, high = apis[api][0]
    version = script.rng.randint(low, high)
    if api in ("idempotent", "transactional"):
        fields, place, after = produce_of(script, version, is_transactional=api == "transactional")
        return "produce", version, fields, (place, after)
    return api, version, request_of(script, api, version), None


def run_members(name, sides, counts, *, mixes):
    """Run one script of members of groups; return what differed, or None."""
    members = Members(name, sides, mixes=mixes)
    for side in sides:
        side.memory = Memory()
    members.set_up()
    for _ in range(STEPS):
        mine, theirs = members.step()
        for answer in mine.values():
            counts["members", mine == theirs, code_of(answer)] += 1
        if mine != theirs:
            return {
                "script": name,
                "request": members.done[-1],
                "answers": [mine, theirs],
                "differs": list(differences(mine, theirs)),
                "before": members.done[:-1],
            }
    return None


def script_name(name):
    return f"s{name}".replace(".", "-")


def run(name, sides, apis, counts):
    """Run one script; return what differed, or None."""
    script = Script(random.Random(name), script_name(name))
    for side in sides:
        side.memory = Memory()
    setup(script, sides)
    done = []
    for _ in range(REQUESTS):
        api, version, fields, place = choose(script, apis)
        if not is_sendable(api, version, fields, sides[0]):
            continue
        (mine, raw), (theirs, other) = (side.ask(api, version, fields) for side in sides)
        is_change = api.startswith(CHANGES)
        tries = 0
        while mine != theirs and not is_change and api != "produce" and tries < AGAIN:
            time.sleep(AGAIN_SECONDS)
            tries += 1
            (mine, raw), (theirs, other) = (side.ask(api, version, fields) for side in sides)
        counts[api, mine == theirs, code_of(raw)] += 1
        done.append(f"{api} v{version} {fields}")
        if mine != theirs:
            return {
                "script": name,
                "request": done[-1],
                "differs": list(differences(mine, theirs)),
                "before": done[:-1],
            }
        for side, answer in zip(sides, (raw, other), strict=True):
            side.hear(script, api, fields, answer)
        if place is not None and "closed" not in raw:
            (where, after) = place
            code = raw["responses"][0]["partition_responses"][0]["error_code"]
            if code == 0:
                script.sequences[where] = after
        if api == "init_producer_id":
            name_of = fields["transactional_id"] or script.idle
            for where in [one for one in script.sequences if one[0] == name_of]:
                script.sequences.pop(where)
        if is_change:
            time.sleep(SETTLING_SECONDS)
    return None


def differences(mine, theirs, where=""):
    """Yield where two answers differ, and what Ottla and Kafka say there."""
    if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() == theirs.keys():
        for name in mine:
            yield from differences(mine[name], theirs[name], f"{where}.{name}")
    elif isinstance(mine, list) and isinstance(theirs, list):
        ours, others = ({name_of(one): one for one in some} for some in (mine, theirs))
        for name in sorted(ours.keys() | others.keys()):
            one, other = ours.get(name, "absent"), others.get(name, "absent")
            yield from differences(one, other, f"{where}[{name}]")
        if len(mine) != len(theirs):
            yield f"{where}: {len(mine)} / {len(theirs)} elements"
    elif mine != theirs:
        yield f"{where}: {mine} / {theirs}"


def name_of(element):
    """Return what tells an element of a list from others."""
    if isinstance(element, dict):
        named = [str(value) for name, value in element.items() if name in NAMING]
        return " ".join(named) or json.dumps(element, sort_keys=True)
    return json.dumps(element)


def is_sendable(api, version, fields, side):
    """Tell whether the library that encodes requests takes these values."""
    try:
        side.play.connection("c").encode(api, version, **side.memory.resolve(fields))
    except (SerialError, ValueError, TypeError, OverflowError) as error:
        UNSENDABLE[api, str(error)[:100]] += 1
        return False
    return True


def code_of(answer):
    for key, value in answer.items():
        if key == "error_code" and value:
            return value
        for one in value if isinstance(value, list) else ():
            code = code_of(one) if isinstance(one, dict) else 0
            if code:
                return code
    return "closed" if "closed" in answer else 0


def setup(script, sides):
    """Let two topics and the producers be there."""
    for side in sides:
        for name, count in zip(script.topics[:2], (1, 2), strict=True):
            side.play.create_topic(name, count)
        side.learn_ids(script)
        side.play.wait_for_coordinator(*script.groups)
        side.play.prepare(
            "find_coordinator", 4, key_type=1, coordinator_keys=list(script.producers)
        )
        for producer in (*script.producers, None):
            deadline = time.monotonic() + 30
            while True:
                told = side.play.prepare(
                    "init_producer_id",
                    4,
                    transactional_id=producer,
                    transaction_timeout=60_000,
                )
                if told["error_code"] == 0:
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no producer id: {told}")
                time.sleep(0.1)
            known = (told["producer_id"], told["producer_epoch"])
            side.memory.producers[producer or script.idle] = known


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", type=int, default=50)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--script", help="this one only")
    parser.add_argument("--apis", help="only those, by commas")
    parser.add_argument("--members", action="store_true", help="members of groups only")
    parser.add_argument("--mixed", action="store_true", help="... of both protocols in one")
    parser.add_argument("-o", "--output")
    given = parser.parse_args(arguments)
    apis = {
        name: value
        for name, value in APIS.items()
        if given.apis is None or name in given.apis.split(",")
    }
    names = [given.script] if given.script else [f"{given.seed}.{n}" for n in range(given.scripts)]
    counts = collections.Counter()
    found, known = [], 0
    with tempfile.TemporaryDirectory() as directory:
        peers = [
            OttlaPeer(Path(directory) / "ottla", OPTIONS),
            KafkaPeer(Path(directory) / "kafka", OPTIONS),
        ]
        try:
            for peer in peers:
                peer.start()
            for name in names:
                sides = [Side(peer.bootstrap, f"{script_name(name)}-") for peer in peers]
                if given.members:
                    difference = run_members(name, sides, counts, mixes=given.mixed)
                else:
                    difference = run(name, sides, apis, counts)
                for side in sides:
                    side.play.__exit__()
                if difference and is_known(difference["request"], difference["differs"]):
                    known += 1
                elif difference:
                    found.append(difference)
                    print(json.dumps(difference, indent=1, default=str), flush=True)
        finally:
            for peer in peers:
                peer.kill9()
    report = {
        "scripts": len(names),
        "differed": len(found),
        "ended at a known difference": known,
        "requests": sum(counts.values()),
        "unsendable": {f"{a}: {why}": n for (a, why), n in UNSENDABLE.items()},
        "answers": {f"{a} {c}": n for (a, _, c), n in sorted(counts.items(), key=str)},
    }
    print(json.dumps(report, indent=1))
    if given.output:
        Path(given.output).write_text(json.dumps(found, indent=1, default=str))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
