"""What a person sees of runs, artifacts and checkpoints on the command line."""

import json
import os
import sys

import pytest
import torch
from click.testing import CliRunner

from nabla_core.cli.shell import run_shell
from nabla_core.errors import InputError, UsageError
from nabla_replay import importing
from nabla_replay.codec.reading import load_state
from nabla_replay.importing import import_checkpoint
from nabla_replay.inspecting.inspection import size_text
from nabla_replay.inspecting.path import inspect_path
from nabla_replay.progress import ProgressBar


@pytest.fixture
def nabla(capsys):
    def run(*words):
        code = run_shell(["--no-plugins", "--no-config", *map(str, words)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def artifact(tmp_path):
    from nabla_core.artifacts.manifest import Manifest
    from nabla_core.artifacts.writing import ArtifactContent, write_artifact_folder

    content = ArtifactContent(
        about=Manifest(kind="check", subject="kernels.op", seed=7),
        documents={"issues.json": [{"rule": "CHK201", "message": "differs by 0.5"}]},
        texts={"reproduction.py": "raise SystemExit(1)\n"},
        tensors={"x.npy": b"1"},
    )
    return write_artifact_folder(tmp_path / "artifact", content)


def facts(path):
    return dict(inspect_path(path).facts)


def test_a_run_is_told_in_a_few_facts(store, nabla):
    code, out, _ = nabla("inspect", store.run())

    assert code == 0
    assert "steps        0 to 5 (6 records)" in out
    assert "steps 0, 3" in out and out.endswith("\nintact\n")


def test_a_damaged_run_is_told_with_its_place(store, nabla):
    folder = store.run()
    store.flip(store.checkpoint(folder))

    code, out, _ = nabla("inspect", folder)

    assert code == 1
    assert "REP201 record-corrupt" in out and "checkpoint of step 3 cannot be used" in out
    assert out.endswith("not intact: 1 issue\n")


def test_an_unclosed_run_is_told_and_passes(store, nabla):
    folder = store.run()
    lines = store.log(folder).read_bytes().splitlines(keepends=True)
    store.log(folder).write_bytes(b"".join(lines[:-1]))

    code, out, _ = nabla("inspect", folder)

    assert code == 0 and "not closed" in out and "REP202" in out


def test_a_run_with_a_log_that_is_a_link_is_still_told(store):
    folder = store.run()
    store.log(folder).rename(store.root / "moved")
    store.log(folder).symlink_to(store.root / "moved")

    found = inspect_path(folder)

    assert [issue.rule for issue in found.issues] == ["REP203"]
    assert "steps" not in dict(found.facts)


def test_a_run_as_json(store, nabla):
    code, out, _ = nabla("inspect", "--json", store.run())

    told = json.loads(out)
    assert code == 0 and told["kind"] == "captured run" and told["facts"]["run"] == "run"


def test_an_artifact_is_told(artifact, nabla):
    for words in (["inspect", artifact], ["artifact", "inspect", artifact]):
        code, out, _ = nabla(*words)
        assert code == 0 and "check of kernels.op" in out
        assert "CHK201 differs by 0.5" in out and "do not hand them on" in out


def test_a_changed_artifact_is_told(artifact, nabla):
    (artifact / "issues.json").write_text("[]")
    (artifact / "evil.pt").write_bytes(b"PK\x03\x04")

    code, out, _ = nabla("artifact", "inspect", artifact)

    assert code == 1 and "REP201" in out and "REP203" in out
    assert "CHK201 differs" not in out  # a changed document is not shown


def test_an_artifact_can_be_sanitized(artifact, nabla, tmp_path):
    code, out, err = nabla("artifact", "sanitize", artifact, tmp_path / "copy")

    assert code == 0 and out.strip() == str(tmp_path / "copy")
    assert "left out: tensors/x.npy" in err
    assert facts(tmp_path / "copy")["tensor values"] == "not stored"


def test_a_checkpoint_file_is_told_without_making_its_tensors(store, monkeypatch):
    path = store.checkpoint(store.run())
    monkeypatch.setattr(torch, "empty", None)

    told = facts(path)

    assert told["step"] == "3" and told["largest"] == "model.weight F32 [20, 30]"


def test_a_file_of_another_program_is_told_by_its_first_bytes(tmp_path, nothing_runs):
    torch.save({"a": torch.ones(3)}, tmp_path / "x.pt")
    torch.save({"a": 1}, tmp_path / "y.pt", _use_new_zipfile_serialization=False)

    with nothing_runs():
        assert facts(tmp_path / "x.pt")["looks like"] == "a zip, as torch.save writes it"
        assert facts(tmp_path / "y.pt")["caution"] == "reading it can run code; it was not read"


@pytest.mark.parametrize("octets", [b"", b"hello", b"\0" * 100, b"\xff" * 100])
def test_a_file_of_nothing_known_does_not_pass(tmp_path, nabla, octets):
    (tmp_path / "x").write_bytes(octets)

    code, out, _ = nabla("inspect", tmp_path / "x")

    assert code == 1 and "no state file" in out


def test_a_path_that_cannot_be_looked_at_is_a_usage_error(tmp_path, nabla):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path)
    for name, words in [
        ("none", "looked at"),
        ("", "neither"),
        ("pipe", "a pipe"),
        ("link", "link"),
    ]:
        code, out, err = nabla("inspect", tmp_path / name)
        assert (code, out) == (2, "") and words in err


def test_names_from_a_file_cannot_steer_a_terminal(store, tmp_path):
    name = "\x1b[2J\u202e"
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path = store.state_file(tmp_path / "x", header, b"\0" * 4)

    assert "\x1b" not in inspect_path(path).format()


def test_a_checkpoint_of_another_program_is_taken_over(tmp_path, nabla):
    state = {"weight": torch.rand(3), "lr": [0.1], "step": 7}
    torch.save(state, tmp_path / "x.pt")

    code, out, _ = nabla("import-checkpoint", tmp_path / "x.pt", tmp_path / "x.safetensors")

    back = load_state(tmp_path / "x.safetensors")
    assert code == 0 and "sha256" in out
    assert torch.equal(back.pop("weight"), state.pop("weight")) and back == state


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, nabla):
    torch.save({"x": Evil(tmp_path / "ran")}, tmp_path / "x.pt")

    code, _, err = nabla("import-checkpoint", tmp_path / "x.pt", tmp_path / "out")

    assert code == 2 and "mkdir" in err and "weights_only=False" not in err
    assert not (tmp_path / "ran").exists() and not (tmp_path / "out").exists()


def test_an_import_overwrites_nothing(tmp_path):
    torch.save({}, tmp_path / "x.pt")
    (tmp_path / "out").write_text("mine")

    with pytest.raises(InputError, match="exists"):
        import_checkpoint(tmp_path / "x.pt", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("version", ["2.5.1", "1.13", "odd"])
def test_an_import_needs_a_torch_whose_reader_is_safe(tmp_path, monkeypatch, version):
    torch.save({}, tmp_path / "x.pt")
    monkeypatch.setattr(importing.torch, "__version__", version)

    with pytest.raises(UsageError, match=r"2\.6"):
        import_checkpoint(tmp_path / "x.pt", tmp_path / "out")


def test_only_the_import_reads_pickles_and_only_with_the_restricted_reader(replay_sources):
    found = {path.name for path in replay_sources if "torch.load(" in path.read_text()}
    text = next(p for p in replay_sources if p.name == "importing.py").read_text()

    assert found == {"importing.py", "rules.py"}  # the one of the rules is a bad example
    assert text.count("torch.load(") == 1 and "weights_only=True" in text


def test_commands_have_help_without_importing_torch():
    from nabla_replay import cli

    for command in (cli.inspect, cli.artifact, cli.import_checkpoint):
        assert CliRunner().invoke(command, ["--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB")]
)
def test_sizes_are_for_people(size, text):
    assert size_text(size) == text


def test_a_bar_is_drawn_on_terminals_only(capsys, monkeypatch):
    with ProgressBar("replay") as bar:
        bar(1, 2)
    assert capsys.readouterr().err == ""

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressBar("replay") as bar:
        bar(1, 2)
    assert "replay ###" in (shown := capsys.readouterr().err) and shown.endswith("\r")
