import gc
import os
import sys

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: threads only wait for each other


@pytest.fixture(scope="session")
def _installed_plugins():
    from nabla_core.host import default_host

    return default_host()


@pytest.fixture(autouse=True)
def _plugins_of_this_process(_installed_plugins):
    """The command line makes the plugins that it was given those of the process."""
    from nabla_core.host import use_host

    yield
    use_host(_installed_plugins)


@pytest.fixture(autouse=True)
def _rules_of_one_package(request, _no_door_of_torch_stays_replaced, monkeypatch):
    """Tests of the instrument and of exact rules are not about whole runs; RUN rules are."""
    folder = request.path.parent.name
    if folder in ("guard", "audit") and request.node.get_closest_marker("all_rules") is None:
        monkeypatch.setenv("NABLA_IGNORE", "RUN")


@pytest.fixture(autouse=True)
def _compiled_code_is_forgotten():
    """A process in which anything was compiled is watched with more care; tests are not related."""
    yield
    dynamo = sys.modules.get("torch._dynamo")
    utils = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and utils is not None and utils.counters["frames"]:
        dynamo.reset()
        utils.counters.clear()


@pytest.fixture(autouse=True)
def _nobody_watches_any_more():
    """A session that a test leaves open would hear what the tests after it do."""
    yield
    core = sys.modules.get("nabla_core.session")
    if core is not None:
        assert core.current_session() is None, "the test left a session open"


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_already_is_out_of_the_way():
    """Neither the collector nor a watch goes through the objects of all files imported so far."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def _doors():
    import torch

    return [
        (torch.nn.Module, "__call__", torch.nn.Module.__call__),
        (torch.Tensor, "backward", torch.Tensor.backward),
    ]


@pytest.fixture(autouse=True)
def _no_door_of_torch_stays_replaced(_doors):
    """What a test leaves replaced is in the way of every test after it."""
    yield
    left = [
        (owner, name, original)
        for owner, name, original in _doors
        if vars(owner)[name] is not original
    ]
    for owner, name, original in left:
        setattr(owner, name, original)
    assert not left, f"the test left torch replaced: {[name for _, name, _ in left]}"
