"""JVMs of tests read their classes from an archive that fits, and work without."""

import os
import subprocess

import pytest

from tools import class_archives
from tools.kafka_peer import SHORT_LIVED


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A Java that writes down what it is asked, and an empty cache."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("OTTLA_KAFKA_DIR", str(tmp_path / "cache" / "kafka"))
    return program


def test_without_an_archive_the_jvm_is_only_made_for_a_short_life(java):
    assert class_archives.java_options("spark") == list(SHORT_LIVED)


def test_an_archive_is_of_one_java_and_one_program(java):
    spark, kafka = (class_archives.path_of(name) for name in ("spark", "kafka"))
    assert spark != kafka
    spark.parent.mkdir(parents=True)
    spark.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={spark}" in class_archives.java_options("spark")
    os.utime(java, ns=(0, 0))
    assert class_archives.path_of("spark") != spark, "Java is another version now"


def test_without_java_there_is_no_archive(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert class_archives.path_of("kafka") is None
    assert class_archives.java_options("kafka") == list(SHORT_LIVED)


def test_what_cannot_be_made_is_said_and_stops_nobody(java, capsys, monkeypatch):
    def refuse(work, options):
        raise OSError("no room")

    monkeypatch.setattr(class_archives, "_serve_with_kafka", refuse)
    monkeypatch.setattr(class_archives, "_work_with_spark", refuse)
    assert class_archives.main() == 0
    assert capsys.readouterr().out.count("no room") == 2
    assert not list(class_archives.path_of("spark").parent.iterdir())


@pytest.mark.parametrize("name", ["kafka", "spark"])
def test_a_jvm_that_an_archive_does_not_fit_says_nothing(name, tmp_path):
    archive = class_archives.path_of(name)
    if archive is None or not archive.exists():
        pytest.skip("no archive was made")
    options = class_archives.java_options(name)
    done = subprocess.run(
        ["java", *options, "-cp", str(tmp_path), "NoSuchClass"], capture_output=True, text=True
    )
    assert "NoSuchClass" in done.stderr
    assert "archive" not in done.stdout + done.stderr
