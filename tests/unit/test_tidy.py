"""The house's rules that no linter knows."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX, CLASS_LINES_MAX, METHODS_MAX = 500, 400, 30
OTTLA_IMPORT_MS_MAX = 15
SHUNNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
NOT_OURS = re.compile(
    r"/(?:work|root|home/\w+)/|/tmp/(?!kafka-logs)[a-z]|\b(?:pypi\.org|files\.pythonhosted\.org|repo1?\.maven\.org"
    r"|registry\.npmjs\.org|proxy\.golang\.org|deb\.debian\.org)\b"
)
TEXT_SUFFIXES = {".py", ".md", ".toml", ".cfg", ".ini", ".yml", ".yaml", ".json", ".txt", ".sh", ""}


def tracked_files():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix in TEXT_SUFFIXES]


def source_files():
    return sorted((ROOT / "src").rglob("*.py"))


@functools.cache
def tree_of(path):
    return ast.parse(path.read_bytes())


@functools.cache
def nodes_of(path):
    return list(ast.walk(tree_of(path)))


def test_no_file_names_a_machine_or_a_registry():
    this = Path(__file__)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked_files()
        if path != this
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NOT_OURS.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_file_is_too_long():
    found = {}
    for path in [*source_files(), *sorted((ROOT / "tests").rglob("*.py"))]:
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > LINES_MAX:
            found[str(path.relative_to(ROOT))] = count
    assert not found


def test_no_class_is_too_large():
    found = {}
    for path in source_files():
        for node in nodes_of(path):
            if not isinstance(node, ast.ClassDef):
                continue
            lines = node.end_lineno - node.lineno + 1
            methods = sum(
                isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body
            )
            if lines > CLASS_LINES_MAX or methods > METHODS_MAX:
                found[node.name] = f"{lines} lines, {methods} methods"
    assert not found


LOG_ARROWS_MAX = 45


def test_few_parts_of_the_log_know_each_other():
    """Counted are its rooms, and the files that stand in none."""
    log = ROOT / "src/ottla/log"
    parts = {path.stem if path.is_file() else path.name for path in log.iterdir()}
    arrows = set()
    for path in log.rglob("*.py"):
        within = path.relative_to(log)
        importer = within.parts[0].removesuffix(".py")
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ottla.log."):
                imported = node.module.split(".")[2]
                assert imported in parts, (path, node.module)
                if imported != importer:
                    arrows.add((importer, imported))
    assert 20 < len(arrows) <= LOG_ARROWS_MAX


def test_every_source_file_says_what_it_is():
    silent = [path for path in source_files() if not ast.get_docstring(tree_of(path))]
    assert not silent


def test_no_module_has_a_name_that_says_nothing():
    assert not [path for path in source_files() if path.stem in SHUNNED_NAMES]


def test_only_the_ports_open_files():
    """The linter's table of banned names does not reach builtins."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in source_files()
        if "env" not in path.relative_to(ROOT / "src").parts
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
    assert not found


def test_packages_only_gather_names():
    """An __init__.py has a docstring, imports and names, no code but what imports a name late."""
    plain = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.Try, ast.If)
    found = [
        path
        for path in source_files()
        if path.name == "__init__.py"
        for node in tree_of(path).body
        if not isinstance(node, plain) and getattr(node, "name", "") != "__getattr__"
    ]
    assert not found


def run_python(code):
    """Run code in a fresh interpreter on this source tree and return what it prints."""
    setup = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_ottla_costs_nothing():
    code = "import time; t = time.perf_counter(); import ottla; print(time.perf_counter() - t)"
    best_ms = min(float(run_python(code)) for _ in range(3)) * 1000
    assert best_ms <= OTTLA_IMPORT_MS_MAX


@pytest.mark.parametrize(
    ("module", "shunned"),
    [
        ("ottla.broker", "pyspark numpy pyarrow pandas rich typer starlette importlib.metadata"),
        ("ottla.broker", "random ottla.env.memory_disk ottla.env.memory_net"),
        ("ottla.broker", "ottla.metadata.memory_store"),
        ("ottla.broker", "ottla.testing ottla.env.jumping_clock ottla.env.faulty_disk"),
        ("ottla.testing.plugin", "asyncio ottla.broker ottla.client ottla.env"),
        ("ottla.cli.main", "pyspark numpy pyarrow pandas starlette ottla.broker"),
        ("pyspark_ottla", "numpy pyarrow pandas uvloop asyncio ottla.client ottla.records"),
    ],
)
def test_a_module_imports_nothing_heavy_that_it_does_not_need(module, shunned):
    own = f"import {module}; seen = set(sys.modules)"
    if module == "pyspark_ottla":  # what pyspark brings by itself is not ours to judge
        pytest.importorskip("pyspark")
        own = f"import pyspark.sql.datasource; a = set(sys.modules); {own} - a"
    print_found = f"print(*[name for name in {shunned.split()!r} if name in seen])"
    assert run_python(f"{own}; {print_found}").split() == []


def test_the_brokers_rooms_begin_tasks_in_one_place_only():
    """Where whoever begins one says who hears of its end: none dies silently."""
    found = []
    for path in sorted((ROOT / "src/ottla").rglob("*.py")):
        if path.relative_to(ROOT / "src/ottla").parts[0] in {"cli", "client", "spark", "testing"}:
            continue  # They are not the broker; what a command does ends with it.
        names = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in nodes_of(path)
            if isinstance(node, ast.Attribute | ast.Name)
        }
        if names & {"create_task", "ensure_future", "TaskGroup", "run_coroutine_threadsafe"}:
            found.append(path.name)
    assert found == ["tasks.py"]
