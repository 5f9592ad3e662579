"""Mapping rules beside the class that Kafka's brokers use: a certificate is the same user here."""

import subprocess
from pathlib import Path

import pytest

from ottla.config.mapping_rules import NoRuleFits, read_mapping_rules
from tests.principal_names import PAIRS

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(120)]
PROGRAM = Path(__file__).with_name("java") / "PrincipalNames.java"


def in_hex(text):
    return text.encode().hex() or "-"


def ours(rules, name):
    try:
        return f"user {read_mapping_rules(rules).user_of(name).encode().hex()}"
    except NoRuleFits:
        return "nobody"
    except ValueError:
        return "refused"


def test_a_certificate_is_the_same_user_as_with_kafka(kafka_libs):
    lines = [f"{in_hex(rules)} {in_hex(name)}" for rules, name in PAIRS]
    done = subprocess.run(
        ["java", "-Xshare:auto", "-cp", f"{kafka_libs}/*", str(PROGRAM)],
        input="\n".join(lines),
        text=True,
        capture_output=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(PAIRS)
    assert sum(told.startswith("user ") for told in theirs) > len(PAIRS) / 2
    different = [
        (*pair, their, our)
        for pair, their in zip(PAIRS, theirs, strict=True)
        if (our := ours(*pair)) != their
        # Whom Kafka refuses because a rule fails for each name is refused at the start here.
        and (our, their) != ("refused", "nobody")
    ]
    assert different == []
