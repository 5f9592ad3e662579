import errno
import socket

import pytest

from ottla.cli import serving
from ottla.cli.failure import Exit, Failure, explain
from ottla.cli.serve import read_config
from ottla.cli.serve_nodes import Asked, run_nodes
from ottla.cli.serving import Listening, ready_lines
from ottla.client.wire.errors import ConnectionFailed
from ottla.config import broker as options
from ottla.config.listeners import Endpoint
from ottla.env.real_net import AsyncioNet, CannotListen
from ottla.errors import ErrorCode, KafkaError
from tests.certificates import certificates


def test_options_win_over_definitions_over_the_file(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nlog.dirs=/file\nlisteners=PLAINTEXT://:1\nnode.id=9\n")
    config = read_config(
        path, ["num.partitions=3", "log.dirs=/defined"], data="/option", port=5, listen=None
    )
    assert config[options.NODE_ID] == 9
    assert config[options.NUM_PARTITIONS] == 3
    assert config[options.LOG_DIRS] == ("/option",)
    assert config[options.LISTENERS] == (Endpoint("PLAINTEXT", "", 5),)


def test_a_toml_file_is_known_by_its_name(tmp_path):
    path = tmp_path / "ottla.toml"
    path.write_text("[num]\npartitions = 4\n")
    assert read_config(path, [])[options.NUM_PARTITIONS] == 4


def test_an_address_of_ipv6_can_be_listened_on():
    config = read_config(None, [], listen="::1", port=0)
    assert config[options.LISTENERS] == (Endpoint("PLAINTEXT", "::1", 0),)


def test_notes_about_ignored_keys_are_told(tmp_path, capsys):
    read_config(None, ["num.io.threads=8"])
    assert "num.io.threads is ignored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("log.retenton.ms=5", "did you mean log.retention.ms"),
        ("num.partitions=0", "Value must be at least 1"),
        ("num.partitions", "key=value"),
        ("ssl.provider=x", "cannot be honoured"),
        ("log.retention.ms=7x", "is not a duration"),
    ],
)
def test_a_bad_option_says_what_and_why(definition, words):
    with pytest.raises(Failure, match=words) as caught:
        read_config(None, [definition])
    assert caught.value.code is Exit.USAGE


MAP = "listener.security.protocol.map"
ETCD = {"ottla.cluster": "etcd://e1:2379/prod"}


def listening(name):
    return [
        f"listeners={name}://127.0.0.1:0",
        f"ssl.keystore.location={certificates() / 'server.pem'}",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
    ]


@pytest.mark.parametrize(
    ("definitions", "words"),
    [
        (["inter.broker.listener.name=INSIDE"], "no listener INSIDE; listeners has PLAINTEXT"),
        (["inter.broker.listener.name="], "no listener"),
        (["security.inter.broker.protocol=SSL"], "no listener SSL"),
        (["security.inter.broker.protocol=NONE"], "no listener NONE"),
        (
            ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
            "only one of it and security.inter.broker.protocol",
        ),
        (
            [
                *("listeners=PLAINTEXT://:0,C://:1", "controller.listener.names=C"),
                "inter.broker.listener.name=C",
            ],
            "no listener C; listeners has PLAINTEXT",
        ),
    ],
)
def test_a_listener_for_nodes_that_there_is_not_is_a_mistake(definitions, words):
    """Kafka does not start with it either."""
    with pytest.raises(Failure, match=words) as caught:
        read_config(None, definitions)
    assert caught.value.code is Exit.USAGE


def test_a_listener_for_nodes_is_looked_for_whatever_its_case():
    read_config(
        None,
        [
            "listeners=INSIDE://127.0.0.1:0",
            f"{MAP}=INSIDE:PLAINTEXT",
            "inter.broker.listener.name=inside",
        ],
    )


@pytest.mark.parametrize(
    "definitions",
    [
        ["security.inter.broker.protocol=SSL", *listening("SSL")],
        ["security.inter.broker.protocol=sasl_ssl", *listening("SASL_SSL")],
        ["inter.broker.listener.name=SSL", *listening("SSL")],
        ["inter.broker.listener.name=IN", *listening("IN"), f"{MAP}=IN:SASL_SSL"],
    ],
)
def test_hosts_that_are_to_encrypt_what_they_say_to_each_other_do_not_start(definitions, capsys):
    with pytest.raises(Failure, match="is not encrypted") as caught:
        read_config(None, definitions, further=ETCD)
    assert caught.value.code is Exit.USAGE
    read_config(None, definitions)  # Nodes of one machine have nothing to encrypt.
    assert "is ignored" in capsys.readouterr().err


@pytest.mark.parametrize(
    "definition",
    ["security.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name=PLAINTEXT"],
)
def test_hosts_log_in_to_each_other_in_any_case(definition):
    read_config(None, [definition], further=ETCD)


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(Failure, match="cannot read") as caught:
        read_config(tmp_path / "absent", [])
    assert caught.value.code is Exit.USAGE


def lines(**changes):
    facts = {
        "node_id": 1,
        "cluster_id": "Qm3v",
        "listeners": [Listening("PLAINTEXT", "127.0.0.1", 9092)],
        "data": "ottla-data",
        "data_is_new": True,
        "is_durable": True,
        "milliseconds": 83,
    }
    return ready_lines(**{**facts, **changes}).splitlines()


def test_ready_lines():
    first, kafka, data, hints = lines()
    assert "broker 1  cluster Qm3v  ready in 83 ms" in first
    assert "127.0.0.1:9092" in kafka
    assert "this machine only" in kafka
    assert "./ottla-data (new)    acks=all means fsynced" in data
    assert "ottla produce hello   |   kcat -b 127.0.0.1:9092 -L" in hints


def test_ready_lines_promise_no_more_than_there_is():
    _, kafka, data, hints = lines(
        listeners=[Listening("PLAINTEXT", "0.0.0.0", 19092)], data=None, is_durable=False
    )
    assert "no authentication" in kafka
    assert "gone with this process" in data
    assert "-b 127.0.0.1:19092" in hints
    assert "not yet fsynced" in lines(is_durable=False)[2]


def test_errors_of_the_system_become_advice():
    config = read_config(None, [], data="/d", port=1)
    explained = serving.explain_os_error(PermissionError(errno.EACCES, "Denied", "/d/x"), config)
    assert "data directory /d" in str(explained)
    assert "/d/x" in str(explained)
    explained = serving.explain_os_error(BlockingIOError(errno.EAGAIN, "busy"), config)
    assert "in use" in str(explained)


@pytest.fixture
def no_such_name(monkeypatch):
    """Return a name of nothing, as this machine has it: nobody is asked about it."""
    ask = socket.getaddrinfo

    def answer(host, *args, **more):
        if host == "nosuchhost.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ask(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return "nosuchhost.invalid"


async def why_not(config, host, port=0):
    """Return what is said when nobody can listen there."""
    with pytest.raises(CannotListen) as caught:
        await AsyncioNet().sockets(host, port, 1)
    return serving.explain_os_error(caught.value, config)


async def test_a_name_of_nothing_is_no_trouble_with_the_data(no_such_name):
    """The data directory was to blame, and --data the way out."""
    for host in (no_such_name, "a..b"):
        told = await why_not(read_config(None, [], listen=host, port=0), host)
        assert told.what == f"cannot listen on {host}:0"
        assert told.why
        assert told.fix.startswith("--listen 127.0.0.1")


async def test_an_address_of_another_machine_is_no_trouble_with_ports():
    first = read_config(None, ["listeners=A://:0,B://192.0.2.1:0", f"{MAP}={PLAIN}"])
    second = read_config(None, ["listeners=A://192.0.2.1:0,B://:0", f"{MAP}={PLAIN}"])
    for config, fix in ((second, "--listen 127.0.0.1"), (first, "listeners with an address")):
        told = await why_not(config, "192.0.2.1")
        assert told.what == "cannot listen on 192.0.2.1:0"
        assert told.why.startswith("this machine has no such address")
        assert told.fix.startswith(fix)


PLAIN = "A:PLAINTEXT,B:PLAINTEXT"


async def test_a_port_in_use_is_that_of_its_listener():
    """With several listeners it was said of the first."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # It does not listen: nobody answers.
        port = taken.getsockname()[1]
        for listeners, more, fix in (
            (f"A://127.0.0.1:{port},B://127.0.0.1:0", {}, "ottla serve --port "),
            (f"A://127.0.0.1:0,B://127.0.0.1:{port}", {}, "another port for it in listeners"),
            ("A://127.0.0.1:0,B://127.0.0.1:0", ETCD, "ottla.inter.broker.port "),
        ):
            config = read_config(None, [f"listeners={listeners}", f"{MAP}={PLAIN}"], further=more)
            told = await why_not(config, "127.0.0.1", port)
            assert told.what == f"127.0.0.1:{port} is in use"
            assert told.fix.startswith(fix)


def test_several_nodes_say_the_same_of_an_address(tmp_path, no_such_name):
    for host in (no_such_name, "192.0.2.1"):
        config = read_config(None, [], data=str(tmp_path / "data"), listen=host, port=0)
        with pytest.raises(Failure, match=f"cannot listen on {host}:0") as caught:
            run_nodes(config, (), None, Asked(2, None, is_memory=False, is_quiet=True, started=0.0))
        assert caught.value.fix.startswith("--listen 127.0.0.1")
        assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionFailed("h", 1, "connection refused", refused=True), Exit.UNREACHABLE),
        (ConnectionFailed("h", 1, "no connection within 1 s"), Exit.UNREACHABLE),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), Exit.NOT_FOUND),
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS), Exit.EXISTS),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), Exit.DENIED),
        (KafkaError(ErrorCode.INVALID_REQUEST), Exit.FAILED),
    ],
)
def test_exit_codes(error, code):
    assert explain(error).code is code
    assert str(explain(error)).startswith("error: ")


def test_a_file_of_kafkas_own_is_served(tmp_path, capsys):
    """As a single node of Kafka 4 has it, broker and controller in one."""
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "num.network.threads=3\n"
        "num.io.threads=8\n"
        "socket.send.buffer.bytes=102400\n"
        "socket.receive.buffer.bytes=102400\n"
        "socket.request.max.bytes=104857600\n"
        f"log.dirs={tmp_path}\n"
        "num.partitions=1\n"
        "num.recovery.threads.per.data.dir=1\n"
        "offsets.topic.replication.factor=1\n"
        "share.coordinator.state.topic.replication.factor=1\n"
        "share.coordinator.state.topic.min.isr=1\n"
        "transaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
        "log.retention.hours=168\n"
        "log.segment.bytes=1073741824\n"
        "log.retention.check.interval.ms=300000\n"
    )
    config = read_config(path, [])
    assert [str(each) for each in config[options.LISTENERS]] == ["PLAINTEXT://:9092"]
    advertised = config[options.ADVERTISED_LISTENERS]
    assert [str(each) for each in advertised] == ["PLAINTEXT://localhost:9092"]
    assert "CONTROLLER://:9093 of listeners is ignored" in capsys.readouterr().err
