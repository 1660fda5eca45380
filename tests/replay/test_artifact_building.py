"""The program of a replay comes from the person, never from the run."""

import pytest

from nabla_core.cli.shell import run_shell
from nabla_core.errors import InputError, UsageError
from nabla_replay.building import load_factory


@pytest.fixture
def program(tmp_path):
    (tmp_path / "helper_of_program.py").write_text("VALUE = 41\n")
    path = tmp_path / "program.py"
    path.write_text(
        "from helper_of_program import VALUE\n"
        "def build():\n    return VALUE + 1\n"
        "class Names:\n    make = staticmethod(lambda: 7)\n"
        "number = 3\n"
    )
    return path


def test_a_function_of_a_file_is_found_with_its_neighbours(program, tmp_path):
    assert load_factory(f"{program}:build", tmp_path / "run")() == 42
    assert load_factory(f"{program}:Names.make", tmp_path / "run")() == 7


def test_a_function_of_a_module_is_found(tmp_path):
    assert load_factory("math:sqrt", tmp_path)(9) == 3


@pytest.mark.parametrize("target", ["build", "a.py:", ":build", ""])
def test_what_is_no_target_is_refused(tmp_path, target):
    with pytest.raises(UsageError, match="file.py:function"):
        load_factory(target, tmp_path)


@pytest.mark.parametrize("target", ["none.py:f", "no_such_module_at_all:f", "math:none"])
def test_what_is_not_there_is_refused(tmp_path, target):
    with pytest.raises(InputError):
        load_factory(target, tmp_path)


def test_what_cannot_be_called_is_refused(program, tmp_path):
    with pytest.raises(InputError, match="cannot be called"):
        load_factory(f"{program}:number", tmp_path / "run")


@pytest.mark.parametrize("name", ["train.py", "ckpt/train.py", "../run/train.py"])
def test_code_that_came_with_a_run_is_not_executed(store, name):
    folder = store.run()
    (folder / "train.py").write_text("raise SystemExit('executed')\n")
    (folder / "ckpt" / "train.py").write_text("raise SystemExit('executed')\n")

    with pytest.raises(UsageError, match="inside the run"):
        load_factory(f"{folder / name}:build", folder)


def test_a_link_from_outside_does_not_hide_that_it_is_inside(store, tmp_path):
    folder = store.run()
    (folder / "train.py").write_text("raise SystemExit('executed')\n")
    (tmp_path / "mine.py").symlink_to(folder / "train.py")

    with pytest.raises(UsageError, match="inside the run"):
        load_factory(f"{tmp_path / 'mine.py'}:build", folder)


@pytest.mark.parametrize(("damage", "code"), [(False, 0), (True, 1)])
def test_verify_only_compares_checksums(store, capsys, damage, code):
    folder = store.run()
    if damage:
        store.flip(store.checkpoint(folder))

    assert (
        run_shell(["--no-plugins", "--no-config", "replay", str(folder), "--verify-only"]) == code
    )

    out = capsys.readouterr().out
    assert ("6 steps and 1 checkpoint intact" if damage else "2 checkpoints intact") in out
    assert ("REP201" in out) == damage


def test_a_replay_without_a_program_says_what_is_missing(store, capsys):
    code = run_shell(["--no-plugins", "--no-config", "replay", str(store.run())])

    assert code == 2 and "--build file.py:function" in capsys.readouterr().err
