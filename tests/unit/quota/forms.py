"""The meter of quotas in both forms, with the modules that are built on it."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

import ottla

NAMES = ("ottla.quota.meter", "ottla.quota.clients", "ottla.handlers.quotas")


def _named(modules):
    return SimpleNamespace(**dict(zip(("meter", "clients", "handlers"), modules, strict=True)))


def _interpreted():
    """Return copies of the modules, of which the first is made from its .py file."""
    modules = []
    with patch.dict(sys.modules):
        for name in NAMES:
            path = Path(ottla.__file__).parent.joinpath(*name.split(".")[1:]).with_suffix(".py")
            spec = importlib.util.spec_from_file_location(name, path)
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
            modules.append(sys.modules[name])
    return _named(modules)


COMPILED = _named([importlib.import_module(name) for name in NAMES])
INTERPRETED = _interpreted()
EACH = [pytest.param(COMPILED, id="compiled"), pytest.param(INTERPRETED, id="interpreted")]


def skip_unless_it_is_there(form):
    """Skip the compiled form where there was no compiler."""
    if form is COMPILED and not form.meter.COMPILED:
        pytest.skip("the extension is not built")
