"""A broker of the test's own, for the tests of what tests use."""

import pytest

from ottla.testing import Broker


@pytest.fixture
def in_thread():
    with Broker() as made:
        yield made
