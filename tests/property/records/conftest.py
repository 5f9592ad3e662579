"""Both forms of the kernel, at once: what one says, the other must say."""

import importlib.util
from pathlib import Path

import pytest

import ottla.records
from ottla.records import kernels as imported


@pytest.fixture(scope="session")
def kernel_forms():
    """The kernel as imported (compiled where it is built) and its source, interpreted."""
    path = Path(ottla.records.__path__[0]) / "kernels.py"
    spec = importlib.util.spec_from_file_location("interpreted_kernels", path)
    interpreted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(interpreted)
    return imported.validate_records, interpreted.validate_records
