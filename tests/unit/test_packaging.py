"""What an installed Ottla has beside its modules."""

import tomllib
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_template_is_left_out_of_the_wheel():
    """A ``*`` of setuptools' globs passes over names that begin with a dot."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    package = ROOT / "src/ottla/spark/pipelines"
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    packed = {
        package / name for each in patterns for name in glob(each, root_dir=package, recursive=True)
    }
    there = {path for path in (package / "templates").rglob("*.template") if path.is_file()}
    assert len(there) > 8
    assert there <= packed
