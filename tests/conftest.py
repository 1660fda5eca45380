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
def _rules_of_one_package(request, monkeypatch):
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
