"""docs/spark.md says of each platform which test runs it, or that none does."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAGE = ROOT / "docs" / "spark.md"
MODES = {
    "installed on every machine": "test_ottla_installed_on_every_machine",
    "`--archives`": "test_an_archive_with_an_environment",
    "`--py-files`": "test_a_zip_of_sources_that_is_registered",
    "another version on the executors": "test_executors_with_another_version_are_named",
    "a client that has Ottla": "test_a_connect_client[with ottla]",
    "one that has not": "test_a_connect_client[without]",
}
"""What the rows about a cluster name, and the test that runs it."""


def platforms():
    """Return the rows of the table: the platform, and what is said of it."""
    lines = PAGE.read_text().split("| platform | tried |\n")[1].splitlines()[1:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            return rows
        rows.append(tuple(each.strip() for each in line.strip("|").split(" | ")))
    return rows


def names_in(path):
    """Return the names of a file's tests, those with named cases once for each."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names.add(node.name)
            for each in ast.walk(ast.Module(body=node.decorator_list, type_ignores=[])):
                if isinstance(each, ast.keyword) and each.arg == "ids":
                    names |= {f"{node.name}[{case}]" for case in ast.literal_eval(each.value)}
    return names


@pytest.mark.parametrize(("platform", "told"), platforms(), ids=lambda text: text[:30])
def test_each_platform_is_run_by_a_test_or_not_tried(platform, told):
    if told == "in every test" or told.startswith("not tried"):
        return
    if told != "the same":
        place = re.search(r"\]\(([^)]*)\)", told)[1]
        assert (PAGE.parent / place).is_file(), f"{platform}: {place} is not there"


def test_each_mode_on_a_cluster_has_its_test():
    (cluster, connect) = (
        row for row in platforms() if "cluster (" in row[0] or "that clu" in row[0]
    )
    assert connect[1] == "the same"
    place = re.search(r"\]\(([^)]*)\)", cluster[1])[1]
    tests = names_in(PAGE.parent / place)
    said = cluster[0] + connect[0]
    for mode, test in MODES.items():
        assert mode in said
        assert test in tests
    spoken_of = [part for part in re.findall(r"`--[a-z-]+`", said) if part not in MODES]
    assert spoken_of == [], "a mode without a test"
