"""``ottla group`` and ``ottla consume --group`` as a person or a script types them."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tools.ottla_peer import OttlaPeer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with OttlaPeer(
        tmp_path_factory.mktemp("groups") / "data", {"group.initial.rebalance.delay.ms": 0}
    ) as peer:
        peer.start()
        yield peer


@pytest.fixture
def command(broker):
    """The start of a command line, and its environment."""
    environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    environment["OTTLA_BOOTSTRAP"] = broker.bootstrap
    return [sys.executable, "-m", "ottla"], environment


@pytest.fixture
def ottla(command):
    """Run a command; returns (exit code, stdout, stderr)."""
    words, environment = command

    def run(*arguments, text=""):
        done = subprocess.run(
            [*words, *arguments],
            input=text.encode(),
            capture_output=True,
            timeout=40,
            env=environment,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, err
        return done.returncode, out, err

    return run


@pytest.fixture
def topic(ottla, topic_name):
    """A topic of three partitions with the numbers 0 to 29, ten in each."""
    assert ottla("topic", "create", topic_name, "-p", "3")[0] == 0
    for partition in range(3):
        numbers = "\n".join(str(partition * 10 + index) for index in range(10))
        assert ottla("produce", topic_name, "-p", str(partition), text=numbers)[0] == 0
    return topic_name


def numbers(out):
    return sorted(int(line) for line in out.split())


def described(ottla, group):
    code, out, err = ottla("group", "describe", group, "-o", "json")
    assert code == 0, err
    return json.loads(out)


def test_a_group_reads_on_where_it_was(ottla, topic):
    group = f"g-{topic}"
    first = numbers(ottla("consume", topic, "-g", group, "-n", "12")[1])
    rest = numbers(ottla("consume", topic, "--group", group)[1])
    assert len(first) == 12
    assert sorted(first + rest) == list(range(30))
    assert ottla("consume", topic, "-g", group)[1] == ""
    found = described(ottla, group)
    assert (found["state"], found["type"], found["lag"]) == ("Empty", "consumer", 0)
    assert [each["committed"] for each in found["partitions"]] == [10, 10, 10]


def test_a_new_group_may_begin_elsewhere(ottla, topic):
    code, out, _ = ottla("consume", topic, "-g", f"late-{topic}", "--from", "-2")
    assert (code, numbers(out)) == (0, [8, 9, 18, 19, 28, 29])


class Tail:
    """A member of a group that waits for more."""

    def __init__(self, command, topic, group):
        words, environment = command
        self.process = subprocess.Popen(
            [*words, "consume", topic, "-g", group, "--tail"],
            stdout=subprocess.PIPE,
            env=environment,
            # As in a shell of a person's: a script's background jobs ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(  # noqa: PLW1509 - no thread of ours is running
                signal.SIGINT, signal.default_int_handler
            ),
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.out = b""

    def wait_for(self, count):
        """Wait until so many numbers have been printed; return them."""
        deadline = time.monotonic() + 30
        while self.out.count(b"\n") < count:
            assert time.monotonic() < deadline, self.out
            self.out += self.process.stdout.read() or b""
            time.sleep(0.02)
        return numbers(self.out.decode())

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


@pytest.fixture
def tail(command):
    tails = []

    def start(topic, group):
        tails.append(Tail(command, topic, group))
        return tails[-1]

    yield start
    for each in tails:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
            each.process.stdout.close()


def test_the_three_kinds_of_no_lag(ottla, topic, tail):
    group = f"lag-{topic}"
    for partition, offset in ((0, "10"), (1, "4")):
        chosen = f"{topic}:{partition}"
        assert ottla("group", "reset", group, "--to", offset, "--topic", chosen, "-y")[0] == 0
    found = described(ottla, group)
    assert [(row["partition"], row["lag"]) for row in found["partitions"]] == [(0, 0), (1, 6)]
    assert found["lag"] == 6
    assert ottla("topic", "create", f"{topic}-new")[0] == 0
    member = tail(f"{topic}-new", f"new-{topic}")
    deadline = time.monotonic() + 30
    while True:
        code, out, _ = ottla("group", "describe", f"new-{topic}", "-o", "json")
        rows = json.loads(out)["partitions"] if code == 0 else []
        if rows:
            break
        assert time.monotonic() < deadline
    assert [(row["lag"], row["note"]) for row in rows] == [(None, "never committed")]
    assert member.stop() == 130


def test_two_members_share_and_one_takes_over(ottla, topic, tail):
    group = f"two-{topic}"
    first = tail(topic, group)
    assert first.wait_for(30) == list(range(30))
    second = tail(topic, group)
    deadline = time.monotonic() + 30
    while True:
        members = described(ottla, group)["members"]
        if len(members) == 2 and all(one["partitions"] for one in members):
            break
        assert time.monotonic() < deadline, members
    code, _, err = ottla("group", "reset", group, "--to", "earliest", "-y")
    assert (code, "has members" in err) == (1, True)
    assert first.stop() == 130
    for partition in range(3):
        ottla("produce", topic, "-p", str(partition), text=f"{30 + partition}\n")
    assert second.wait_for(3) == [30, 31, 32]
    assert second.stop() == 130
    rows = described(ottla, group)["partitions"]
    assert [row["committed"] for row in rows] == [11, 11, 11], "Ctrl-C commits what was printed"


def test_a_member_that_reads_to_the_end_waits_for_its_share(ottla, topic, tail):
    group = f"share-{topic}"
    first = tail(topic, group)
    assert first.wait_for(30) == list(range(30))
    code, out, err = ottla("consume", topic, "-g", group, "-f", "%p\\n")
    # What the first has read and committed is not read again; the rest of its share is.
    assert (code, err) == (0, "")
    assert out == ""
    for partition in range(3):
        ottla("produce", topic, "-p", str(partition), text=f"{30 + partition}\n")
    assert first.wait_for(33) == list(range(33)), "the first has everything again"
    assert first.stop() == 130


def test_a_group_that_keeps_to_the_classic_protocol(ottla_server_factory, command):
    words, environment = command
    server = ottla_server_factory({"group.consumer.migration.policy": "disabled"})
    environment = environment | {"OTTLA_BOOTSTRAP": server.bootstrap}

    def run(*arguments, text=b""):
        done = subprocess.run(
            [*words, *arguments], input=text, capture_output=True, timeout=60, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("topic", "create", "t", "-p", "2")
    run("produce", "t", "-p", "0", text=b"1\n2\n")
    cat = [*words, "cat", "-u", "-q", "-o", "beginning", "-G", "g", "t"]
    with subprocess.Popen(cat, stdout=subprocess.PIPE, env=environment) as member:
        assert [member.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        assert run("consume", "t", "-g", "g", "-f", "%v\\n") in (b"", b"1\n2\n")
        (group,) = json.loads(run("group", "list", "-o", "json"))
        assert group["type"] == "classic"
        member.send_signal(signal.SIGTERM)
        assert member.wait(20) == 128 + signal.SIGTERM


def test_reset_shows_before_it_does(ottla, topic):
    group = f"reset-{topic}"
    ottla("consume", topic, "-g", group)
    code, out, err = ottla("group", "reset", group, "--to", "earliest", "--dry-run", "-o", "json")
    assert code == 0
    assert [(row["old"], row["new"]) for row in json.loads(out)] == [(10, 0)] * 3
    assert "nothing was changed" in err
    assert ottla("consume", topic, "-g", group)[1] == ""
    code, _, err = ottla("group", "reset", group, "--to", "earliest")
    assert (code, "--yes" in err) == (2, True)
    assert ottla("group", "reset", group, "--to", "-3", "-y")[0] == 0
    assert numbers(ottla("consume", topic, "-g", group)[1]) == [7, 8, 9, 17, 18, 19, 27, 28, 29]
    assert ottla("group", "reset", group, "--to", "2100-01-01", "-y")[0] == 0
    assert ottla("consume", topic, "-g", group)[1] == ""
    assert ottla("group", "reset", group, "--to", "nowhere", "-y")[0] == 2
    assert ottla("group", "reset", group, "--to", "0", "--topic", f"{topic}:9", "-y")[0] == 5
    assert ottla("group", "reset", group, "--to", "0", "--topic", "nobody", "-y")[0] == 5
    code, _, err = ottla("group", "reset", f"{group}-new", "--to", "0", "-y")
    assert (code, "--topic" in err) == (1, True)


def test_list_and_delete(ottla, topic):
    group = f"list-{topic}"
    ottla("consume", topic, "-g", group, "-n", "1")
    rows = json.loads(ottla("group", "list", "-o", "json")[1])
    mine = [row for row in rows if row["group"] == group]
    expected = {"group": group, "type": "consumer", "state": "Empty", "protocol": "consumer"}
    assert mine == [expected]
    assert group in ottla("group", "list", "--state", "empty", "--type", "consumer")[1]
    assert group not in ottla("group", "list", "--state", "Stable")[1]
    code, _, err = ottla("group", "describe", group + "x")
    assert (code, f"did you mean {group}" in err) == (5, True)
    assert ottla("group", "delete", group, "--dry-run")[0] == 0
    assert ottla("group", "delete", group)[0] == 2
    assert ottla("group", "delete", group, "-y")[1] == f"deleted {group}\n"
    assert ottla("group", "delete", group, "-y")[0] == 5
    assert ottla("group", "delete", group, "-y", "--if-exists")[0] == 0


def test_a_group_and_a_partition_exclude_each_other(ottla, topic):
    code, _, err = ottla("consume", topic, "-g", "g", "-p", "0")
    assert (code, "-g and -p" in err) == (2, True)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_groups_of_a_kafka_of_both_protocols(kafka_server_factory, topic_name):
    """Whatever cluster it is asked about: also one with groups that Ottla does not serve yet."""
    from confluent_kafka import Consumer

    kafka = kafka_server_factory()
    environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    environment["OTTLA_BOOTSTRAP"] = kafka.bootstrap

    def ottla(*arguments, text=""):
        return subprocess.run(
            [sys.executable, "-m", "ottla", *arguments],
            input=text.encode(),
            capture_output=True,
            timeout=60,
            env=environment,
        )

    assert ottla("topic", "create", topic_name, "-p", "2").returncode == 0
    assert ottla("produce", topic_name, "-p", "0", text="1\n2\n3\n").returncode == 0
    assert numbers(ottla("consume", topic_name, "-g", "ours").stdout.decode()) == [1, 2, 3]
    assert ottla("consume", topic_name, "-g", "ours").stdout == b""
    assert numbers(
        ottla("cat", "-e", "-o", "beginning", "-G", "of-cat", topic_name).stdout.decode()
    ) == [1, 2, 3]
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "newer",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic_name])
    read = []
    deadline = time.monotonic() + 60
    while len(read) < 3:
        assert time.monotonic() < deadline
        read += consumer.consume(10, 0.2)
    consumer.commit(asynchronous=False)
    rows = json.loads(ottla("group", "list", "-o", "json").stdout)
    assert {(row["group"], row["type"]) for row in rows} == {
        ("ours", "consumer"),
        ("of-cat", "classic"),
        ("newer", "consumer"),
    }
    found = json.loads(ottla("group", "describe", "newer", "-o", "json").stdout)
    assert (found["type"], found["state"], found["lag"]) == ("consumer", "Stable", 0)
    (member,) = found["members"]
    assert sorted(member["partitions"]) == [f"{topic_name}-0", f"{topic_name}-1"]
    assert [row["note"] for row in found["partitions"]] == ["", "never committed"]
    refused = ottla("group", "reset", "newer", "--to", "earliest", "-y")
    assert b"has members" in refused.stderr
    consumer.close()
    assert ottla("group", "delete", "newer", "ours", "of-cat", "-y").returncode == 0
    assert ottla("group", "list", "--no-header").stdout == b""
