"""Every block of the README and of docs runs, or stands here with the reason why not.

The Python blocks of most pages have tests of their own. Here are the README's tour, command by
command, with its output as printed (but for numbers), and what docs/testing.md says to other
languages.
"""

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", *(str(each.relative_to(ROOT)) for each in sorted(ROOT.glob("docs/**/*.md")))]
BIN = Path(sys.executable).parent
SECONDS = 100

RUN = {
    ("README.md", "python"): "test_readme",
    ("docs/client.md", "python"): "test_client_page",
    ("docs/schemas.md", "python"): "test_schemas_page",
    ("docs/spark.md", "python"): "test_spark_page",
    ("docs/testing.md", "python"): "test_testing_page",
    ("docs/testing.md", "sh"): "test_testing_control",
    ("docs/testing.md", "java"): "test_pages",
    ("docs/testing.md", "js"): "test_pages",
}
"""Kinds of blocks, and the test that runs all of them."""
TOUR = ("$ pip install .  ", "$ ottla topic create payments", "$ ottla log dump")
"""How the blocks of the README's tour begin."""
NOT_RUN = {
    ("README.md", "$ python3 dev.py flights"): "the main job: minutes, and data by the network",
    ("README.md", "$ python3 dev.py test"): "this very run",
    ("README.md", "$ pip install 'ottla[pipelines]'"): "its steps are test_pipeline's",
    ("docs/hosts.md", "$ pip install 'ottla[cluster]'"): "three hosts; tests/hosts.py starts such",
    ("docs/hosts.md", "default.replication.factor=3"): "options, not a program",
    ("docs/nodes.md", "$ ottla serve --nodes 4"): "nodes have tests of their own (tests/nodes.py)",
    ("docs/pipelines.md", "$ ottla pipeline init shop"): "its steps are test_pipeline's",
    ("docs/pipelines.md", "name: shop"): "what `pipeline init` writes",
    ("docs/security.md", "from aws_msk_iam_sasl_signer"): "needs an account at AWS",
    ("docs/testing.md", "http.Post("): "building it takes longer than the rest; only parsed",
    ("docs/spark.md", '{"$ottla"'): "a part of a checkpoint",
    ("docs/formats/parquet-export.md", "{"): "an example of a file",
}
"""Page and beginning of each block that does not run, and why."""


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def reasons(page, code):
    return [key for key in NOT_RUN if key[0] == page and code.startswith(key[1])]


def test_every_block_runs_or_has_a_reason_not_to():
    used = set()
    for page in PAGES:
        for language, code in blocks(page):
            found = reasons(page, code)
            used.update(found)
            is_run = (page, language) in RUN or (page == "README.md" and code.startswith(TOUR))
            assert is_run or found, f"{page}: who runs this?\n{code}"
    assert used == set(NOT_RUN)
    for name in RUN.values():
        assert (ROOT / "tests/e2e" / f"{name}.py").exists()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_in_python_and_json_can_be_read(page):
    for language, code in blocks(page):
        if language == "python":
            compile(code, page, "exec")
        elif language == "json":
            json.loads(code)


# ------------------------------------------------------------------------------ the README's tour


def steps(begins):
    """Return the commands of a block of the README, each with the output that is printed."""
    [code] = [code for language, code in blocks("README.md") if code.startswith(begins)]
    found = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append((re.sub(r"  +#.*", "", line[2:]), []))
        else:
            found[-1][1].append(line)
    return found


def shape(lines):
    """Return lines in order, without what differs from run to run."""
    shown = (re.split(r"\r|\x1b\[K", line)[-1] for line in lines if line.strip())
    text = "\n".join(line for line in shown if line)  # Progress is overwritten.
    text = re.sub(r"(?<=hello) -b \S+", "", text)  # The port is not the printed one.
    text = re.sub(r"(?<=crc )[0-9a-f]{8}", "#", text)
    text = re.sub(r"(?<=cluster )\S+", "#", text)
    text = re.sub(r"[\d.,:T+-]*\d[\d.,:T+-]*k?", "#", text)
    return sorted(re.sub(r" +", " ", line).strip() for line in text.splitlines())


def at_a_terminal(command, **options):
    """Return the exit code of a command of the shell, and what a terminal shows of it."""
    ours, its = pty.openpty()
    with subprocess.Popen(["bash", "-c", command], stdout=its, stderr=its, **options) as process:
        os.close(its)
        found = b""
        with contextlib.suppress(OSError):  # Its end.
            while more := os.read(ours, 65536):
                found += more
        os.close(ours)
        return process.wait(SECONDS), found.decode()


@pytest.fixture
def serving(tmp_path):
    """Run the tour's `ottla serve` on a free port, in a fresh directory."""
    _, (command, printed) = steps(TOUR[0])
    assert command == "ottla serve"
    process = subprocess.Popen(
        [BIN / "ottla", "serve", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = [process.stdout.readline().rstrip() for _ in printed]
    yield said, printed, re.search(r"127\.0\.0\.1:\d+", said[1])[0]
    process.terminate()
    process.communicate(timeout=SECONDS)


@pytest.mark.timeout(2 * SECONDS)
def test_the_tour_says_what_the_readme_prints(serving, tmp_path):
    said, printed, bootstrap = serving
    assert shape(said) == shape(printed)
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "OTTLA_BOOTSTRAP": bootstrap,
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    for command, expected in steps(TOUR[1]) + steps(TOUR[2]):
        if command.startswith("kcat") and shutil.which("kcat") is None:
            continue
        code, found = at_a_terminal(
            command.replace("127.0.0.1:9092", bootstrap), cwd=tmp_path, env=environment
        )
        assert code == 0, f"{command}\n{found}"
        assert shape(found.replace("\r\n", "\n").split("\n")) == shape(expected), command


# -------------------------------------------------------------------------------- other languages

JAVA = """\
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

public class It {{
    public static void main(String[] arguments) throws Exception {{
        var control = arguments[0];
        {code}
    }}
}}
"""
GO = """\
package main

import (
    "net/http"
    "os"
    "strings"
)

func main() {{
    control := os.Args[1]
    {code}
}}
"""


def block_in(language):
    [code] = [code for each, code in blocks("docs/testing.md") if each == language]
    return code


@pytest.mark.skipif(shutil.which("gofmt") is None, reason="Go is not installed")
def test_what_the_page_says_in_go_is_go(tmp_path):
    (tmp_path / "it.go").write_text(GO.format(code=block_in("go")))
    done = subprocess.run(["gofmt", "-e", "it.go"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("language", "what"), [("js", "delay of 2s for Fetch"), ("java", "drop")])
@pytest.mark.timeout(2 * SECONDS)
def test_another_language_plans_a_fault_as_the_page_says(language, what, tmp_path):
    program, name, code = {
        "js": ("node", "it.mjs", "const control = process.argv[2]\n" + block_in("js")),
        "java": ("java", "It.java", JAVA.format(code=block_in("java"))),
    }[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / name).write_text(code)
    with Broker(control=True) as broker:
        command = [program, name, broker.control_url]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stderr
        [told] = broker.faults.told()
        broker.faults.clear()  # Nothing met it.
        assert what in told
