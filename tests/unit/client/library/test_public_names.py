"""What the package promises by name is there: for type checkers, in the documentation, in use."""

import ast
import re
from pathlib import Path

import pytest

import ottla
import ottla.testing

ROOT = Path(__file__).resolve().parents[4]


def names_for_type_checkers(package):
    stub = Path(package.__file__).with_suffix(".pyi")
    imports = [
        each for each in ast.parse(stub.read_text()).body if isinstance(each, ast.ImportFrom)
    ]
    return sorted(name.asname or name.name for each in imports for name in each.names)


def documented_names():
    """The names in the first table of the page."""
    table = (ROOT / "docs" / "client.md").read_text().split("\n\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    return sorted({name for row in rows for name in re.findall(r"`(\w+)`", row)})


@pytest.mark.parametrize("package", [ottla, ottla.testing])
def test_a_name_that_type_checkers_see_is_there_at_run_time(package):
    names = names_for_type_checkers(package)
    assert names
    for name in names:
        assert getattr(package, name).__name__ == name
    assert sorted(package.__all__) == names


def test_every_documented_name_is_there():
    names = documented_names()
    assert {"Client", "Hooks", "Written"} <= set(names)
    assert set(names) == set(ottla.__all__)


def test_a_name_that_is_not_there_says_so():
    with pytest.raises(AttributeError, match="no attribute Nothing"):
        _ = ottla.Nothing
