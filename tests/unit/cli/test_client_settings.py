"""Which address a command takes when several are told."""

import pytest

from ottla.cli.run import client_settings


@pytest.mark.parametrize(
    ("given", "setting", "in_file", "in_environment", "port"),
    [
        (None, None, None, None, 9092),
        (None, None, None, 4, 4),
        (None, None, 3, 4, 3),
        (None, 2, 3, 4, 2),
        (1, 2, 3, 4, 1),
        (9092, None, 3, 4, 9092),
    ],
)
def test_the_environment_never_wins_over_a_file_that_was_named(
    given, setting, in_file, in_environment, port, tmp_path, monkeypatch
):
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    if in_environment is not None:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", f"127.0.0.1:{in_environment}")
    path = tmp_path / "client.properties"
    path.write_text("" if in_file is None else f"bootstrap.servers=127.0.0.1:{in_file}\n")
    found = client_settings(
        None if given is None else f"127.0.0.1:{given}",
        [] if setting is None else [f"bootstrap.servers=127.0.0.1:{setting}"],
        path,
        "1s",
    )
    assert [each.port for each in found.bootstrap] == [port]
