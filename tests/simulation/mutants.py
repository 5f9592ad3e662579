"""Faults that are planted in the broker, to see whether the simulation finds them.

A mutant is some pieces of source and what stands in their place. They are put in while the modules
are imported, in a process of its own; nothing is written. A mutant whose source has moved on is an
error here, not a mutant that is never found.
"""

import importlib.abc
import importlib.machinery
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import ottla

SOURCE = Path(ottla.__file__).parent
LIST = Path(__file__).with_name("mutants.txt")


def read_list(text):
    """Return by name the pieces of each mutant: file name, before, after."""
    mutants = {}
    for part in text.split("\n= ")[1:]:
        name, *lines = part.split("\n")
        pieces = mutants[name] = []
        for line in lines:
            if line.startswith("@ "):
                pieces.append((line[2:], [], []))
            elif line.startswith(("-", "+")):
                pieces[-1][1 if line[0] == "-" else 2].append(line[1:])
        mutants[name] = [(stem, "\n".join(old), "\n".join(new)) for stem, old, new in pieces]
    return mutants


MUTANTS = read_list(LIST.read_text())
MUTANTS_OF_SEVERAL = read_list((LIST.parent / "cluster" / LIST.name).read_text())
"""Those of several nodes."""


class Stale(Exception):
    """A mutant's source is not what it was."""


class Mutant(NamedTuple):
    name: str
    patches: list[tuple[str, str, str]]
    """Module, the piece as it stands there once, the piece instead."""


def mutant_of(name):
    """Find the modules of a mutant. Raises Stale."""
    pieces = (MUTANTS | MUTANTS_OF_SEVERAL)[name]
    return Mutant(
        name,
        [(_module(name, stem, before), before, after) for stem, before, after in pieces],
    )


def _module(name, stem, before):
    """Return the module that has the piece once: the one of this file name, or the only one."""
    found = [path for path, text in _sources().items() if text.count(before) == 1]
    named = [path for path in found if path.stem == stem]
    if len(named or found) != 1:
        places = [str(path.relative_to(SOURCE)) for path in found]
        raise Stale(f"{name}: renew {LIST.name}: in {places or 'no file'} is once {before!r}")
    return ".".join((named or found)[0].relative_to(SOURCE.parent).with_suffix("").parts)


@cache
def _sources():
    return {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def patched(text, module, mutant):
    """Return a module's source with the mutant in it."""
    for where, before, after in mutant.patches:
        if where == module:
            text = text.replace(before, after)
    return text


class _Loader(importlib.machinery.SourceFileLoader):
    mutant = None

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        text = patched(self.get_data(path).decode(), fullname, self.mutant)
        return compile(text, path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant):
        self._modules = {module for module, _, _ in mutant.patches}
        self._loader = type("Loader", (_Loader,), {"mutant": mutant})

    def find_spec(self, fullname, path, target=None):
        if fullname not in self._modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        spec.loader = self._loader(fullname, spec.origin)
        return spec


def plant(name):
    """Put a mutant in the way of the imports to come."""
    mutant = mutant_of(name)
    known = sorted(module for module, _, _ in mutant.patches if module in sys.modules)
    if known:
        raise Stale(f"{name}: {', '.join(known)} was imported before")
    sys.meta_path.insert(0, _Finder(mutant))
