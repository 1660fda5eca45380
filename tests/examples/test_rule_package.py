"""A rule package of a third party: the example, and what ``nabla plugin new`` writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nabla_core.cli.shell import run_shell
from nabla_core.plugin_template import files_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "acme_rules"


def run(words, cwd, *paths):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example, built as a wheel and unpacked where Python finds it."""
    import zipfile

    folder = tmp_path_factory.mktemp("site")
    done = run(["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")], EXAMPLE)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "packages")
    return folder / "packages"


def test_the_example_is_small_and_what_the_template_writes():
    written = files_for("acme-rules", "ACM")
    lines = 0
    for name in ("pyproject.toml", "acme_rules.py"):
        text = (EXAMPLE / name).read_text()
        assert text == written[name]
        lines += sum(bool(line.strip()) for line in text.splitlines())
    assert lines <= 30
    assert (EXAMPLE / "test_acme_rules.py").read_text() == written["test_acme_rules.py"]


def test_its_rule_is_listed_explained_and_selected(installed, tmp_path):
    listed = run(
        ["-m", "nabla", "rules", "--prefix", "ACM", "--format", "json"], tmp_path, installed
    )
    assert [rule["id"] for rule in json.loads(listed.stdout)] == ["ACM101"]
    assert listed.stderr == ""

    explained = run(["-m", "nabla", "rule", "acme-rules-loss-ceiling"], tmp_path, installed)
    assert explained.stdout.startswith("ACM101")
    assert "plugin acme_rules" in explained.stdout


def test_its_rule_judges_a_training_script(installed, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "w = torch.nn.Parameter(torch.tensor([1.0]))\n"
        "optimizer = torch.optim.SGD([w], lr=0.01)\n"
        "for scale in (1.0, 2.0, 50.0):\n"
        "    optimizer.zero_grad()\n"
        "    loss = (scale * w).sum()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    words = ["-m", "nabla", "run", "--select", "ACM", "--format", "json=out.json", str(script)]
    done = run(words, tmp_path, installed)
    report = json.loads((tmp_path / "out.json").read_text())

    assert [(issue["rule"], issue["step"]) for issue in report["issues"]] == [("ACM101", 2)], (
        done.stderr
    )
    assert report["issues"][0]["plugin"] == "acme_rules"
    assert "acme-rules" in report["run"]["versions"]


def test_a_new_plugin_passes_its_own_test(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_shell(["plugin", "new", "loss-watch", "--prefix", "LOW"]) == 0
    assert "pip install -e" in capsys.readouterr().err
    folder = tmp_path / "loss-watch"
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)], tmp_path, folder)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["Bad Name"], "lower-case words"),
        (["fine", "--prefix", "NUM"], "belongs to 'guard'"),
        (["fine", "--prefix", "x1"], "three or four capitals"),
    ],
)
def test_mistakes_are_told(tmp_path, monkeypatch, capsys, words, reason):
    monkeypatch.chdir(tmp_path)
    assert run_shell(["plugin", "new", *words]) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    assert run_shell(["plugin", "new", "taken"]) == 2
    assert "exists" in capsys.readouterr().err
