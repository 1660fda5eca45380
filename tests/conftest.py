import sys

import pytest


@pytest.fixture(autouse=True)
def _compiled_code_is_forgotten():
    """A process in which anything was compiled is watched with more care; tests are not related."""
    yield
    dynamo = sys.modules.get("torch._dynamo")
    utils = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and utils is not None and utils.counters["frames"]:
        dynamo.reset()
        utils.counters.clear()
