"""Kafka's error codes: the table is complete, and errors read well."""

import pickle

import pytest

from ottla.errors import CorruptFile, ErrorCode, KafkaError, MalformedMessage, OttlaError

kio_codes = pytest.importorskip("kio.schema.errors")


def test_codes_run_without_a_gap_from_minus_one_to_133() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, 134))


def test_names_and_retriability_agree_with_kio() -> None:
    theirs = {code.value: code for code in kio_codes.ErrorCode}
    assert len(theirs) > 100
    for value, code in theirs.items():
        ours = ErrorCode(value)
        assert (ours.name.lower(), ours.retriable) == (code.name, code.retriable), value


def test_every_text_is_a_sentence_of_its_own() -> None:
    texts = [code.text for code in ErrorCode]
    assert len(set(texts)) == len(texts)
    assert all(text.endswith(".") for text in texts)


def test_a_code_is_its_number() -> None:
    assert ErrorCode.NOT_COORDINATOR == 16
    assert ErrorCode(16) is ErrorCode.NOT_COORDINATOR
    assert ErrorCode(16).retriable
    assert not ErrorCode.INVALID_REQUEST.retriable


def test_kafka_error_says_name_number_and_reason() -> None:
    assert str(KafkaError(ErrorCode.INVALID_PARTITIONS, "flights: 0 partitions")) == (
        "INVALID_PARTITIONS (37): flights: 0 partitions"
    )
    assert str(KafkaError(ErrorCode.NONE)) == "NONE (0): No error."


def test_errors_survive_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(KafkaError(ErrorCode.NONE, "why")))
    assert (error.code, error.why) == (ErrorCode.NONE, "why")


def test_corrupt_file_names_the_place() -> None:
    assert str(CorruptFile("a/0.log", "bad CRC", 61)) == "a/0.log at byte 61: bad CRC"
    assert str(CorruptFile("a/0.log", "is empty")) == "a/0.log: is empty"


def test_one_root() -> None:
    assert issubclass(MalformedMessage, OttlaError)


def test_every_error_goes_to_another_process_whatever_it_asks_for() -> None:
    from ottla.client.library.failures import Undecodable
    from ottla.client.wire.errors import NoAnswer

    errors = (
        NoAnswer("h", 9092, "silence", unserved=True),
        Undecodable("no JSON", topic="t", partition=0, offset=7, field="key", data=b"{"),
        CorruptFile("a", "b", 7),
    )
    for error in errors:
        found = pickle.loads(pickle.dumps(error))
        assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
