"""The tasks of ``test_cli_tasks`` from sizes and groups on: what an administrator asks."""

import json

import pytest

from tests.cli_tasks import NUMBERS, TIME, made, open_transaction, until, without

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("tasks of the command line")]


def test_15_sizes_by_topic_and_partition(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        sizes = [row["size_bytes"] for row in asked.shown(f"topic size {name}")]
        (row,) = [row for row in asked.shown("topic size") if row["topic"] == name]
        # Not the sizes themselves: how many batches there are is a matter of time.
        assert sum(sizes) == row["size_bytes"]
        assert min(sizes) > 150
        # It may be the only topic: tests come in any order.
        held = sum(each["size_bytes"] for each in asked.shown("cluster logdirs"))
        return len(sizes), row["replicas"], len(asked.shown("cluster logdirs")), held >= sum(sizes)

    assert both(task) == (2, 2, 2, True)


def test_16_a_groups_members_and_lag(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        asked.run(f"group reset {name}-g --to latest --topic {name}:0 --yes")
        asked.run(f"consume {name} -g {name}-g -n 5")
        told = asked.shown(f"group describe {name}-g")
        return without(told, "coordinator", "type", "assignor", "partitions"), told["lag"]

    told, lag = both(task)
    assert (told["state"], told["members"], lag) == ("Empty", [], 5)


def test_17_watching_a_group(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        asked.run(f"group reset {name}-g --to 4 --topic {name} --yes")
        out = asked.run(f"group watch {name}-g -n 2 --every 100ms -o jsonl")
        return [(row["lag"], row["empty_in_ms"]) for row in map(json.loads, out.splitlines())]

    assert both(task) == [(12, None), (12, None)]


def test_18_the_lag_of_all_groups(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        for each in "ab":
            asked.run(f"group reset {name}-{each} --to 9 --topic {name} --yes")
        rows = asked.shown("group describe --all")
        return {row["group"]: row["lag"] for row in rows if row["group"].startswith(name)}

    assert both(task) == {f"{name}-a": 2, f"{name}-b": 2}


def test_19_offsets_are_reset_to_a_time_or_a_place(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        group = f"group reset {name}-g --topic {name}"
        asked.run(f"{group} --to latest --yes")
        planned = asked.shown(f"{group} --to @{TIME + 7000} --dry-run")
        asked.run(f"{group} --to -2 --yes")
        return planned, asked.shown(f"group describe {name}-g")["lag"]

    planned, lag = both(task)
    assert [(row["old"], row["new"]) for row in planned] == [(10, 4), (10, 3)]
    assert lag == 4


def test_20_offsets_are_shifted_read_from_a_file_and_deleted(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        file = asked.server.directory / f"{name}.csv"
        file.write_text(f"{name},0,6\n{name},1,2\n")
        asked.run(f"group reset {name}-g --from-file {file} --yes")
        shifted = asked.shown(f"group reset {name}-g --shift -3 --yes")
        asked.run(f"group offsets delete {name}-g {name}:1 --yes")
        left = asked.shown(f"group describe {name}-g")["partitions"]
        return shifted, [(row["partition"], row["committed"]) for row in left]

    shifted, left = both(task)
    assert [(row["old"], row["new"]) for row in shifted] == [(6, 3), (2, 0)]
    assert left == [(0, 3)]


def test_21_open_transactions_are_found_and_aborted(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        producer = open_transaction(asked.peer, name, f"{name}-x")
        (row,) = [row for row in asked.shown("txn ages") if row["transactional_id"] == f"{name}-x"]
        stable = asked.shown(f"topic describe {name}")["partitions"][0]
        asked.run(f"txn abort {name}-x --yes")
        del producer

        def states(rows):
            return [row["state"] for row in rows if row["transactional_id"] == f"{name}-x"]

        asked.eventually("txn list", lambda rows: states(rows) == ["Empty"])
        held = stable["stable"], stable["end"]
        return (
            row["partitions"],
            held,
            asked.run(f"consume {name} --read-committed"),
        )

    partitions, held, read = both(task)
    assert (held, read) == ((1, 2), "v0\n")
    assert name in json.dumps(partitions)


def test_22_producers_of_a_partition_and_hanging_transactions(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        producer = open_transaction(asked.peer, name, f"{name}-x")
        rows = asked.shown(f"txn producers {name}")
        asked.run(f"txn hanging {name}")  # It is known to its coordinator: it does not hang.
        asked.run(f"txn abort {name}-x --yes")
        del producer
        return sorted(
            (row["epoch"], row["last_sequence"], row["open_since_offset"] or -1) for row in rows
        )

    assert both(task) == [(0, 0, -1), (0, 0, 1)]


def test_23_a_topics_config_with_source_and_default(both, name):
    def task(asked):
        asked.run(f"topic create {name} -c retention.ms=1d")
        rows = asked.shown(f"config get topic/{name} --all")
        # Ottla flushes each message, and says so; Kafka's format sets the other for the cluster.
        others = ("flush.messages", "min.insync.replicas")
        everything = [row for row in rows if row["key"] not in others]
        told = asked.shown(f"config explain topic/{name} retention.ms")
        return everything, asked.shown(f"config get topic/{name}"), without(told, "documentation")

    everything, own, told = both(task)
    assert [row["key"] for row in own] == ["retention.ms"]
    assert (told["value"], told["source"], told["type"]) == ("86400000", "topic", "long")
    assert {row["source"] for row in everything} == {"default", "topic"}


def test_24_configs_of_brokers_the_cluster_and_groups(both, name):
    def task(asked):
        asked.run("config set cluster log.cleaner.backoff.ms=20s")
        asked.run("config set broker/1 log.cleaner.backoff.ms=25s")
        told = asked.eventually(
            "config explain broker/1 log.cleaner.backoff.ms", lambda told: len(told["layers"]) == 3
        )
        for each in ("broker/1", "cluster"):
            asked.run(f"config unset {each} log.cleaner.backoff.ms")
        asked.run(f"config set group/{name} consumer.session.timeout.ms=50s")
        return told["layers"], asked.eventually(f"config get group/{name}", bool)

    layers, group = both(task)
    assert [(row["source"], row["value"]) for row in layers] == [
        ("broker", "25000"),
        ("cluster", "20000"),
        ("default", "15000"),
    ]
    assert [(row["key"], row["value"]) for row in group] == [
        ("consumer.session.timeout.ms", "50000")
    ]


def test_25_the_cluster_and_its_brokers(both):
    def task(asked):
        def agrees(told):
            (broker,) = asked.shown("cluster brokers")
            return broker["leads"] == broker["replicas"] == told["partitions"]

        told = asked.eventually("cluster info", agrees)
        (broker,) = asked.shown("cluster brokers")
        assert f"{broker['host']}:{broker['port']}" == asked.peer.bootstrap
        return told["brokers"], told["controller_id"], broker["broker_id"]

    assert both(task) == (1, 1, 1)


def test_26_api_versions(both):
    answers = {}

    def task(asked):
        answers[asked.kind] = {
            row["api"]: (row["first"], row["last"]) for row in asked.shown("cluster apis")
        }
        return {api: answers[asked.kind][api] for api in ("PRODUCE", "FETCH", "METADATA")}

    assert both(task) == {"PRODUCE": (0, 13), "FETCH": (4, 18), "METADATA": (0, 13)}
    shared = answers["ottla"].keys() & answers["kafka"].keys()
    assert {api: answers["ottla"][api] for api in shared} == {
        api: answers["kafka"][api] for api in shared
    }


def test_27_records_are_deleted_up_to_a_place(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        rows = asked.shown(f"topic trim {name}:1 --to 6 --yes")
        return rows, len(asked.run(f"consume {name}").split())

    rows, left = both(task)
    assert rows == [{"topic": name, "partition": 1, "start": 0, "new_start": 6, "end": 10}]
    assert left == 14


def test_28_users_acls_and_quotas(both, name):
    def task(asked):
        secret = asked.server.directory / f"{name}.password"
        secret.write_text("secret\n")
        asked.run(f"user set {name} --password-file {secret}")
        asked.run(f"acl add --allow-principal User:{name} --operation read --topic {name}")
        asked.run(f"quota set producer_byte_rate=100000 --user {name}")
        rows = (
            [row for row in asked.eventually("user list", bool) if row["user"] == name],
            asked.eventually(f"acl list --principal User:{name}", bool),
            asked.eventually(f"quota list --user {name}", bool),
        )
        asked.run(f"user delete {name} --yes")
        asked.run(f"acl remove --allow-principal User:{name} --operation read --topic {name} --yes")
        asked.run(f"quota unset producer_byte_rate --user {name}")
        return rows

    users, acls, quotas = both(task)
    assert users == [{"user": name, "mechanism": "SCRAM-SHA-256", "iterations": 4096}]
    assert [(row["operation"], row["permission"], row["name"]) for row in acls] == [
        ("READ", "ALLOW", name)
    ]
    assert [(row["key"], row["bound"]) for row in quotas] == [("producer_byte_rate", 100_000)]


def test_29_replicas_and_leaders_are_moved(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        (before,) = asked.shown(f"topic size {name}")
        dirs = {row["log_dir"] for row in asked.shown("cluster logdirs")}
        (target,) = dirs - {before["log_dir"]}
        (plan,) = asked.shown(f"topic move {name} --log-dir {target}")
        assert (plan["from"], plan["to"]) == (before["log_dir"], target)

        def is_there():
            return [row["log_dir"] for row in asked.shown(f"topic size {name}")] == [target]

        until(is_there)
        answers = (
            asked.shown(f"topic move {name}:0 --brokers 1"),
            asked.shown("topic move"),
            asked.shown(f"topic elect {name}"),
        )
        asked.run(f"topic move {name} --brokers 1,7", code=5)
        asked.run(f"topic move {name} --cancel", code=1)
        return *answers, asked.err, asked.run(f"consume {name}")

    moved, under_way, elected, err, read = both(task)
    assert [(row["from"], row["to"], row["note"]) for row in moved] == [("1", "1", "")]
    assert (under_way, read) == ([], "v0\n")
    assert "NO_REASSIGNMENT_IN_PROGRESS" in err
    assert [(row["leader"], row["preferred"]) for row in elected] == [(1, 1)]
    assert [row["note"] for row in elected] == ["leads already"]


def test_30_logging_in_by_options_or_kafkas_own_file(both, task_peers, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        place = asked.peer.secured["SASL_PLAINTEXT"]
        file = asked.server.directory / f"{asked.kind}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nacks=all\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule"
            ' required username="root" password="root-secret";\n'
        )
        by_file = asked.run(f"consume {name} --command-config {file} -b {place}")
        login = "-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN"
        ann = f"{login} -X sasl.username=ann -X sasl.password"
        asked.run(f"consume {name} -b {place} {ann}=wrong", code=4)
        asked.run(f"topic delete {name} --yes -b {place} {ann}=ann-secret", code=4)
        return by_file, asked.err

    by_file, denied = both(task)
    assert by_file == "v0\n"
    assert "TOPIC_AUTHORIZATION_FAILED" in denied


def test_31_a_cluster_by_a_name(both, name):
    def task(asked):
        profile = f"{name}-{asked.kind}"
        asked.run(f"profile set {profile} -b {asked.peer.bootstrap}")
        made(asked, name, 1, NUMBERS[:1])
        said = asked.run(f"consume {name} --profile {profile}", bootstrap="127.0.0.1:1")
        return said, asked.run(f"profile delete {profile}")

    assert both(task) == ("v0\n", "")


def test_32_the_tab_key_knows_topics_and_groups(both, name):
    def task(asked):
        made(asked, f"{name}.events", 1, NUMBERS[:1])
        asked.run(f"group reset {name}-g --topic {name}.events --to 0 --yes")
        asked.run("completion bash")
        # A cluster has 200 ms to tell names; a busy machine's needs more than one try.
        until(lambda: asked.run(f"__complete topic describe {name}") == f"{name}.events\n")
        until(lambda: asked.run(f"__complete group describe {name}") == f"{name}-g\n")
        return asked.run("__complete topic desc")

    assert both(task) == "describe\n"


@pytest.mark.parametrize("verb", ["produce", "consume", "latency"])
def test_33_a_load_test(both, verb):
    def task(asked):
        rows = asked.shown(f"bench {verb} --for 150ms")
        asked.eventually("topic list", lambda rows: all("bench" not in row["name"] for row in rows))
        return [sorted(row) for row in rows], [row.get("errors", 0) for row in rows]

    ((columns,), errors) = both(task)
    assert len(columns) > 4
    assert errors == [0]


def test_34_a_healthy_cluster(both):
    def task(asked):
        troubles = asked.shown("cluster health")
        told = asked.shown(f"doctor {asked.peer.bootstrap} --no-logins")
        return troubles, told["brokers"], told["brokers_reached"]

    assert both(task) == ([], 1, 1)


def test_35_files_are_read_without_a_broker(both, name):
    def task(asked):
        made(asked, name, 1, [(0, "k0", "v0", 0), (0, "k1", "v1", 1)])
        (replica,) = asked.shown(f"topic size {name}")
        file = f"{replica['log_dir']}/{name}-0/00000000000000000000.log"
        batches = json.loads(asked.run(f"log dump {file} --deep -o json", bootstrap="127.0.0.1:1"))
        assert all(batch["is_valid"] for batch in batches)
        return [record for batch in batches for record in batch["records"]]

    records = both(task)
    assert [(each["offset"], each["timestamp"], each["value"]) for each in records] == [
        (0, TIME, "v0"),
        (1, TIME + 1000, "v1"),
    ]


def test_36_waiting_until_a_topic_is_there(both, name):
    def task(asked):
        environment = {"OTTLA_BOOTSTRAP": asked.peer.bootstrap}
        words = ("cluster", "wait", "--topic", name, "--for", "60s")
        waiting = asked.server.start(*words, environment=environment)
        asked.run(f"topic create {name}")
        return asked.server.finish(waiting).code, asked.run(f"cluster wait --topic {name}")

    assert both(task) == (0, "")


def test_37_scripts_get_codes_and_json(both, name):
    def task(asked):
        asked.run(f"topic describe {name} -o json", code=5)
        return json.loads(asked.err), asked.run(f"group describe {name} --no-header", code=5)

    told, out = both(task)
    assert told["error"]["code"] == "NOT_FOUND"
    assert out == ""


def test_38_test_data_at_a_rate(both, name):
    def task(asked):
        made(asked, name)
        template = ("--template", '{"id": %i}', "-k", "%i")
        asked.run(f"produce {name} -q -n 5 --rate 200", *template)
        return asked.run(f"consume {name} -f", "%k %v\\n")

    assert both(task) == "".join(f'{n} {{"id": {n}}}\n' for n in range(5))


def test_39_two_topics_are_compared(both, name):
    def task(asked):
        made(asked, f"{name}-a", 2, NUMBERS)
        made(asked, f"{name}-b", 2, [*NUMBERS[:-1], (1, "k19", "other", 19)])
        return json.loads(asked.run(f"topic diff {name}-a {name}-b -o json", code=1))

    same, other = both(task)
    assert same["first_digest"] == same["second_digest"]
    assert other["first_digest"] != other["second_digest"]
    assert "9" in other["note"]


def test_41_a_tail_goes_on_when_its_broker_comes_back(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        words = ("consume", name, "--tail", "--from", "earliest", "-n", "2")
        environment = {"OTTLA_BOOTSTRAP": asked.peer.bootstrap}
        tail = asked.server.start(*words, environment=environment)
        until(lambda: tail.out.exists() and tail.out.read_text() == "v0\n")
        if asked.kind == "ottla":
            asked.peer._asked_port = asked.peer.port
            asked.peer.secured.clear()  # It will have another port.
        asked.peer.kill9()
        asked.peer.start()
        asked.run(f"produce {name} -q", stdin="later\n")
        said = asked.server.finish(tail)
        assert said.code == 0, (asked.kind, said)
        return said.out

    assert both(task) == "v0\nlater\n"
