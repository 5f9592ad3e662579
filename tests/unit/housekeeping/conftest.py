"""What keeps house, over the replica manager of the replication tests."""

import importlib.util
from pathlib import Path

path = Path(__file__).parents[1] / "replication" / "conftest.py"
spec = importlib.util.spec_from_file_location("replication_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

make_node = doubles.make_node
node = doubles.node
words = doubles.words
