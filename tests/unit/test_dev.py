"""dev.py, the newcomer's first minute: what it decides before it runs anything."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the doubles are shell scripts")


@pytest.fixture
def dev(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'machine'}:/usr/bin:/bin")
    monkeypatch.setattr(module.shutil, "which", lambda name: which(tmp_path / "machine" / name))
    return module


def which(path):
    return str(path) if path.exists() else None


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def java(path, version):
    return program(path, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 1)])
def test_java_tells_its_version(dev, tmp_path, text, major):
    assert dev.java_version(java(tmp_path / "java", text)) == major


def test_no_java_is_version_zero(dev, tmp_path):
    assert dev.java_version(tmp_path / "absent") == 0
    assert dev.java_version(program(tmp_path / "broken", "exit 1")) == 0


def test_java_home_comes_before_the_path(dev, tmp_path, monkeypatch):
    java(tmp_path / "machine" / "java", "17.0.1")
    java(tmp_path / "own" / "bin" / "java", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    assert dev.machine_java() == tmp_path / "own"


def test_an_old_java_home_gives_way_to_the_path(dev, tmp_path, monkeypatch):
    java(tmp_path / "old" / "bin" / "java", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    java(tmp_path / "jdk" / "bin" / "java", "17.0.1")
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "java").symlink_to(tmp_path / "jdk" / "bin" / "java")
    assert dev.machine_java() == tmp_path / "jdk"


def test_an_old_java_is_none(dev, tmp_path):
    java(tmp_path / "machine" / "java", "11.0.2")
    assert dev.machine_java() is None


def test_the_wrapper_drops_one_argument_and_keeps_the_others_whole(dev, tmp_path):
    echo = program(tmp_path / "echo args", 'printf "<%s>" "$@"')
    wrapper = program(tmp_path / "java", "")
    wrapper.write_text(dev.JAVA_WRAPPER.format(java=echo))
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME"]
    done = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b><><$HOME>"


def test_the_stamp_changes_with_what_the_environment_is_made_from(dev, tmp_path):
    (tmp_path / "pyproject.toml").write_text("1")
    first = dev.stamp()
    assert dev.stamp() == first
    (tmp_path / "pyproject.toml").write_text("2")
    second = dev.stamp()
    (tmp_path / "src/ottla/records").mkdir(parents=True)
    (tmp_path / "src/ottla/records/kernels.py").write_text("")
    assert len({first, second, dev.stamp()}) == 3


def test_a_python_without_venv_is_told_what_to_install(dev, tmp_path, monkeypatch):
    broken = program(tmp_path / "python", "exit 1")
    monkeypatch.setattr(dev.sys, "executable", str(broken))
    with pytest.raises(dev.SetupError, match=r"cannot make a virtual environment(.|\n)*fix: "):
        dev.create_environment()


def test_an_unknown_command_is_usage():
    command = [sys.executable, ROOT / "dev.py", "dance"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "python3 dev.py flights" in done.stderr
