import pytest

import nabla
from nabla_core import integrations
from nabla_core.declarations import Adapter
from nabla_core.integrations import Attachment, Integrations


class Host:
    adapters = (
        Adapter(name="here", target="json:dumps"),
        Adapter(name="lame", target="json:dumps", requires="no_such_framework"),
    )


class Run:
    def __init__(self, model, optimizer, **options):
        self.made = (model, optimizer, options)
        self.rows = []
        self.issues = ("live",)
        self.ended = 0

    def log(self, step, **signals):
        self.rows.append((step, signals))

    def finish(self):
        self.ended += 1
        return self


@pytest.fixture
def adapters(monkeypatch):
    monkeypatch.setattr(integrations, "default_host", Host)
    return Integrations()


@pytest.fixture
def attachment(monkeypatch):
    monkeypatch.setattr(integrations, "public_name", lambda name: Run)
    return Attachment({"quiet": True})


def test_an_installed_adapter_is_loaded(adapters):
    assert adapters.here([1]) == "[1]"
    assert dir(adapters) == ["here", "lame"]
    assert "here, lame" in repr(adapters)


def test_what_is_missing_says_how_to_get_it(adapters):
    with pytest.raises(ModuleNotFoundError, match="pip install no_such_framework"):
        adapters.lame()
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"nabla\[hf\]\""):
        adapters.hf()
    with pytest.raises(AttributeError, match="has no adapter 'flax'"):
        adapters.flax()


def test_it_is_a_name_of_nabla():
    assert "integrations" in dir(nabla)
    assert isinstance(nabla.integrations, Integrations)


def test_an_attachment_watches_one_training_after_the_other(attachment):
    assert attachment.issues == ()
    assert attachment.finish() is None

    attachment.start("model", ["optimizer"])
    first = attachment._run
    assert first.made == ("model", ["optimizer"], {"quiet": True})
    assert attachment.issues == ("live",)

    attachment.start("model")
    assert first.ended == 1
    assert attachment.finish() is attachment.finish() is attachment.report


def test_only_numbers_are_taken_from_what_a_framework_logs(attachment):
    attachment.row(3, {"val_loss": 1.0})  # nobody watches: nothing happens
    attachment.start("model")

    attachment.row(4, {"val_loss": "2.5 s", "flag": True, "none": None, "list": [1, 2]})
    attachment.row(5, {"val_loss": 2.5})

    assert attachment._run.rows == [(5, {"val_loss": 2.5})]
