from dataclasses import dataclass
from typing import Literal

import pytest

from nabla_core import Severity, option
from nabla_core.config import Config
from nabla_core.errors import ConfigError, SelectorError
from nabla_core.host import PluginHost
from nabla_core.layers import environment_layer, file_layer, find_file, option_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    every: int = option(1, "steps between reads", minimum=1, maximum=1000)
    ratio: float = option(8.0, "limit")
    mode: Literal["light", "standard"] = option("light", "what is watched")
    modules: tuple[str, ...] = option((), "globs")
    source: bool = option(False, "capture source lines")
    budget: float | None = option(None, "seconds")


PLUGIN = """
from test_config_options import GuardOptions

@hookimpl
def nabla_options():
    return ("acme", GuardOptions)
"""


@pytest.fixture
def host(write_plugin, monkeypatch):
    import sys
    import types

    module = types.ModuleType("test_config_options")
    module.GuardOptions = GuardOptions
    monkeypatch.setitem(sys.modules, "test_config_options", module)
    host = PluginHost([write_plugin("acme", PLUGIN)])
    assert host.problems == []
    return host


def config(host, tmp_path, text):
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    return Config(host, [file_layer(path)])


def test_values_are_bound_to_the_plugins_dataclass(host, tmp_path):
    found = config(
        host,
        tmp_path,
        """
        [tool.nabla]
        fail-on = "medium"
        [tool.nabla.acme]
        every = 10
        ratio = 4
        mode = "standard"
        modules = ["head.*"]
        source = true
        budget = 1.5
        """,
    )
    assert found.core.fail_on is Severity.MEDIUM
    assert found.options(GuardOptions) == GuardOptions(
        every=10, ratio=4.0, mode="standard", modules=("head.*",), source=True, budget=1.5
    )


def test_all_mistakes_are_reported_at_once_with_the_closest_key(host, tmp_path):
    with pytest.raises(ConfigError) as caught:
        config(
            host,
            tmp_path,
            """
            [tool.nabla]
            igmore = ["NAB"]
            fail-on = "fatal"
            [tool.nabla.acne]
            every = 1
            [tool.nabla.acme]
            evry = 2
            every = 0
            ratio = "big"
            mode = "standart"
            source = 1
            """,
        )
    text = str(caught.value)
    assert len(caught.value.mistakes) == 8
    for part in (
        "[tool.nabla] igmore: unknown key (did you mean 'ignore'?)",
        "choose one of info, low, medium, high, critical",
        "[tool.nabla.acne]: unknown table (did you mean 'acme'?)",
        "[tool.nabla.acme] evry: unknown key (did you mean 'every'?)",
        "every = 0: needs at least 1",
        "ratio = 'big': needs a number",
        "choose one of 'light', 'standard' (did you mean 'standard'?)",
        "source = 1: needs true or false",
    ):
        assert part in text


@pytest.mark.parametrize(("value", "fits"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_ranges_include_their_ends(host, tmp_path, value, fits):
    text = f"[tool.nabla.acme]\nevery = {value}"
    if fits:
        assert config(host, tmp_path, text).options(GuardOptions).every == value
    else:
        with pytest.raises(ConfigError):
            config(host, tmp_path, text)


def test_command_line_beats_variables_beat_file_beats_default(host, tmp_path):
    path = tmp_path / "nabla.toml"
    path.write_text("ignore = ['NAB001']\n[acme]\nevery = 2\nratio = 2.0\nmode = 'standard'\n")
    variables = environment_layer(
        {"NABLA_ACME_EVERY": "3", "NABLA_ACME_RATIO": "3", "NABLA_IGNORE": "NAB002,NAB003"},
        ["acme"],
    )
    command = option_layer(["acme.every=4"], {})
    found = Config(host, [file_layer(path), variables, command])
    source = {(row.table, row.key): row.source for row in found.settings}

    assert found.options(GuardOptions) == GuardOptions(every=4, ratio=3.0, mode="standard")
    assert found.core.ignore == ("NAB002", "NAB003")
    assert source["acme", "every"] == "command line"
    assert source["acme", "ratio"] == source["", "ignore"] == "environment"
    assert source["acme", "mode"] == "nabla.toml"
    assert source["acme", "budget"] == "default"


def test_mistakes_are_spelled_as_the_person_wrote_them(host):
    with pytest.raises(ConfigError, match="NABLA_ACME_EVERY = 'x': needs a whole number"):
        Config(host, [environment_layer({"NABLA_ACME_EVERY": "x"}, ["acme"])])
    with pytest.raises(ConfigError, match="-o acme.evry: unknown key"):
        Config(host, [option_layer(["acme.evry=1"], {})])
    with pytest.raises(ConfigError, match="write it as table.key=value"):
        option_layer(["nonsense"], {})


def test_a_table_of_an_absent_plugin_is_a_warning(host, tmp_path):
    found = config(host, tmp_path, "[tool.nabla.trace]\nevery = 5")
    assert [problem.rule for problem in found.problems] == ["NAB006"]


def test_an_unknown_rule_names_the_file(host, tmp_path):
    found = config(host, tmp_path, "[tool.nabla]\nignore = ['NAB999']")
    with pytest.raises(SelectorError, match="pyproject.toml: ignore: no rule matches 'NAB999'"):
        found.selection(host.registry)


@pytest.mark.parametrize("text", ["[tool.nabla", "tool = 3\n[tool.nabla]", "[tool]\nnabla = 3"])
def test_a_damaged_file_is_a_clear_error(host, tmp_path, text):
    with pytest.raises(ConfigError):
        config(host, tmp_path, text)


def test_the_nearest_file_is_found_upwards(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.nabla]\npreview = true")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'")

    assert find_file(inner) == tmp_path / "pyproject.toml"
    (inner / "nabla.toml").write_text("")
    assert find_file(inner) == inner / "nabla.toml"


def test_options_of_a_stranger_are_refused(host):
    @dataclass(frozen=True)
    class Strange:
        x: int = 1

    with pytest.raises(ConfigError, match="Strange"):
        Config.defaults(host).options(Strange)
