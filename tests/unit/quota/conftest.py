"""Each test of a meter runs on the compiled form and on the interpreted one."""

import pytest

from tests.unit.quota.forms import EACH, skip_unless_it_is_there


@pytest.fixture(params=EACH)
def form(request):
    skip_unless_it_is_there(request.param)
    return request.param
