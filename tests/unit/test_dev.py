"""dev.py, the newcomer's first minute: what it decides before it runs anything."""

import importlib.util
import os
import shutil
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


def test_the_machines_own_java_is_taken(dev, tmp_path, monkeypatch):
    monkeypatch.setattr(dev, "PYTHON", program(tmp_path / "python", "echo /opt/jdk"))
    assert dev.java_home() == "/opt/jdk"
    assert dev.environment_variables()["PATH"].split(":")[1] == "/opt/jdk/bin"


def test_a_java_is_brought_where_there_is_none(dev, tmp_path, monkeypatch):
    text = f"[ -e {tmp_path}/brought ] && echo /wheel || exit 1"
    monkeypatch.setattr(dev, "PYTHON", program(tmp_path / "python", text))
    monkeypatch.setattr(dev, "pip_install", lambda name: (tmp_path / "brought").touch())
    assert dev.java_home() == "/wheel"


def test_the_stamp_changes_with_what_the_environment_is_made_from(dev, tmp_path):
    (tmp_path / "pyproject.toml").write_text("1")
    first = dev.stamp()
    assert dev.stamp() == first
    (tmp_path / "pyproject.toml").write_text("2")
    second = dev.stamp()
    (tmp_path / "src/ottla/records").mkdir(parents=True)
    (tmp_path / "src/ottla/records/kernels.pxd").write_text("")
    third = dev.stamp()
    (tmp_path / "src/ottla/records/kernels.py").write_text("")
    assert len({first, second, third, dev.stamp()}) == 4


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


def test_tests_do_not_begin_on_a_disk_that_they_would_fill(dev, tmp_path, monkeypatch, capsys):
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(dev.shutil, "disk_usage", lambda _: usage(100 << 30, 99 << 30, 1 << 30))
    monkeypatch.setattr(dev, "ensure_environment", lambda: None)
    monkeypatch.setattr(dev, "module", lambda *_: pytest.fail("the tests began"))
    assert dev.main(["test"]) == 1
    words = capsys.readouterr().err
    assert "has 1.0 GiB left" in words
    assert "TMPDIR=" in words
