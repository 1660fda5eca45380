import subprocess
import sys

import pytest

import nabla
import nabla_core


def test_the_core_is_at_the_door():
    assert nabla.Session is nabla_core.Session
    assert nabla.Severity.HIGH > nabla.Severity.LOW
    assert {"Issue", "Rule", "Session", "Severity", "allow"} <= set(dir(nabla))


def test_a_missing_plugin_says_how_to_install_it(monkeypatch):
    from nabla_core import facade

    monkeypatch.setattr(facade, "entry_points", lambda group: ())
    monkeypatch.delitem(vars(nabla), "trace", raising=False)

    with pytest.raises(ModuleNotFoundError) as caught:
        nabla.trace  # noqa: B018
    assert str(caught.value) == 'nabla.trace is not installed; run: pip install "nabla[trace]"'
    with pytest.raises(ImportError, match=r'pip install "nabla\[trace\]"'):
        from nabla import trace  # noqa: F401


def test_unknown_names_stay_attribute_errors():
    assert not hasattr(nabla, "nonsense")
    assert not hasattr(nabla, "_private")


def test_importing_the_facade_imports_nothing_heavy():
    code = (
        "import sys, nabla, nabla_core; nabla.Severity; "
        "print([m for m in ('torch', 'numpy', 'click', 'pluggy', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_of_the_core_resolves():
    for name in nabla_core.__all__:
        assert getattr(nabla_core, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        nabla_core.nonsense  # noqa: B018
