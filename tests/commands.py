"""Runs `ottla` as a person does, in a process of its own, against a broker of the tests."""

import subprocess
import sys

from tools.ottla_peer import OttlaPeer


def run_command(bootstrap, *arguments, text="", login=None):
    """Return (exit code, stdout, stderr) of `ottla ARGUMENTS`.

    ``text``: its standard input. ``login``: (mechanism, user, password), or None. A traceback fails
    the test.
    """
    environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    environment["OTTLA_BOOTSTRAP"] = bootstrap
    if login is not None:
        names = ("sasl.mechanism", "sasl.username", "sasl.password")
        settings = [("security.protocol", "SASL_PLAINTEXT"), *zip(names, login, strict=True)]
        arguments += tuple(part for key, value in settings for part in ("-X", f"{key}={value}"))
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        input=text.encode(),
        capture_output=True,
        timeout=40,
        env=environment,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return done.returncode, out, err


def ottla(peer, *arguments, text=""):
    """Run a command, against ``peer``, that must succeed; return what it says."""
    code, out, err = run_command(peer.bootstrap, *arguments, text=text)
    assert code == 0, err
    return out
