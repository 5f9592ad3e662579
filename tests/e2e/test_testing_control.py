"""The control endpoint of brokers for tests: what docs/testing.md shows with curl, as printed."""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ottla.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
[SCRIPT] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def broker():
    with Broker(control=True) as broker:
        yield broker


def ask(broker, path="/", body=None, method=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.control_url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_page_works_as_printed():
    command = [sys.executable, "-m", "ottla.testing"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        said = json.loads(process.stdout.readline())
        script = f"set -e\nCONTROL={said['control']}\n{SCRIPT}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=50)
        process.stdin.close()
        assert process.wait(20) == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == SCRIPT.count("curl"), done
    assert not [each for each in answers if "error" in each]
    assert answers[0]["bootstrap"] == said["bootstrap"]
    assert answers[1]["time_ms"] - answers[0]["time_ms"] >= 7 * 86_400_000
    assert [each["number"] for each in answers[5]] == [1, 2, 3]
    assert [each["number"] for each in answers[7]] == [2, 3]
    assert answers[8]["what"] == "rolling_restart(times=2, seed=7)"
    assert answers[9]["bootstrap"] == said["bootstrap"]


def test_it_is_off_unless_asked_for():
    with Broker() as broker:
        assert not broker.control_url


def test_a_fault_strikes_and_is_counted(broker):
    topic = broker.create_topic()
    fault = {"fault": "error", "api": "Produce", "code": "NOT_LEADER_OR_FOLLOWER", "topic": topic}
    status, said = ask(broker, "/faults", fault)
    assert (status, said["number"], said["struck"]) == (200, 1, 0)
    import ottla

    with ottla.Client(broker.bootstrap) as client:
        client.produce(topic, "1")
    assert ask(broker, "/faults") == (200, [{**said, "struck": 1}])
    assert ask(broker, "/faults/1", method="DELETE") == (200, {**said, "struck": 1})
    assert ask(broker, "/faults") == (200, [])
    assert len(broker.records(topic)) == 1


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/nothing", {}, 404, "no POST of /nothing"),
        ("/faults", {}, 400, "none of error, delay"),
        ("/faults", {"fault": "error", "api": "Producer", "code": 1}, 400, "did you mean Produce"),
        ("/faults", {"fault": "error", "api": "Produce"}, 400, "code"),
        ("/faults", {"fault": "delay", "api": "Produce", "span": "2s", "tpoic": 1}, 400, "tpoic"),
        ("/faults", {"fault": "__init__"}, 400, "none of"),
        ("/faults", {"fault": "slow_disk", "seed": "x"}, 400, "seed must be a whole number"),
        ("/faults", {"fault": "slow_disk", "up_to": "-1s"}, 400, ""),
        ("/faults", {"fault": "leader_moves", "times": 0}, 400, "at least 1"),
        ("/faults", {"fault": "rolling_restart", "times": "3"}, 400, "whole number"),
        ("/faults", {"fault": "error", "api": 5, "code": 1}, 400, "no API 5"),
        ("/faults", {"fault": "drop", "api": []}, 400, "no API"),
        ("/faults", {"fault": "error", "api": "Produce", "code": 1.5}, 400, "no error 1.5"),
        ("/faults", {"fault": "error", "api": "Produce", "code": None}, 400, "no error"),
        ("/faults", {"fault": "drop", "api": "Fetch", "rate": "x"}, 400, "probability"),
        ("/faults", {"fault": "drop", "api": "Fetch", "after": "no"}, 400, "true or false"),
        ("/faults", {"fault": "fsync_error", "nth": "x"}, 400, "whole number"),
        ("/faults", {"fault": "fsync_error", "nth": 0}, 400, "at least 1"),
        ("/faults", {"fault": "fsync_error", "nth": None}, 400, "whole number"),
        ("/restart", {"kill": "no"}, 400, "true or false"),
        ("/faults", [], 400, "no JSON object"),
        ("/clock/advance", {}, 400, "by is missing"),
        ("/clock/advance", {"by": "-1d"}, 400, ""),
        ("/clock/advance", {"by": "soon"}, 400, "soon"),
        ("/clock/advance", {"by": [1]}, 400, ""),
        ("/restart", {"kil": True}, 400, "known: kill, power_loss"),
    ],
)
def test_what_is_wrong_is_said(broker, path, body, status, why):
    found, said = ask(broker, path, body)
    assert found == status, said
    assert why in said
    assert ask(broker)[0] == 200
    broker.produce(broker.create_topic(), "it works as before")


def test_a_web_page_is_refused(broker):
    assert ask(broker, Origin="http://evil.example")[0] == 403
    assert ask(broker, Host="evil.example:80")[0] == 403


def test_it_ends_with_the_broker():
    with Broker(control=True, process=True) as broker:
        assert ask(broker, "/restart", {"kill": False})[0] == 200
        url = broker.control_url
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)
