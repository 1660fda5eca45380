"""What a person gets who installs ``nabla[guard]`` from the wheel folder."""

import json
import subprocess


def test_guard_brings_the_rule_packs_along_and_nothing_else(guard_environment, run_in, tmp_path):
    answer = run_in(guard_environment / "nabla", "plugins", "--format", "json", cwd=tmp_path)

    listing = json.loads(answer)
    names = {plugin["name"] for plugin in listing["plugins"]}
    assert names == {"core", "guard", "audit", "diagnose", "causal"}
    assert listing["problems"] == []


def test_a_missing_part_says_how_to_install_it(guard_environment, tmp_path):
    answer = subprocess.run(
        [str(guard_environment / "python"), "-c", "import nabla; nabla.trace"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )

    assert answer.stderr.strip().splitlines()[-1] == (
        'ModuleNotFoundError: nabla.trace is not installed; run: pip install "nabla[trace]"'
    )


def test_an_unknown_name_is_an_attribute_error(guard_environment, tmp_path):
    answer = subprocess.run(
        [str(guard_environment / "python"), "-c", "import nabla; nabla.tarce"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )

    assert answer.stderr.strip().splitlines()[-1].startswith("AttributeError: ")


def test_python_m_nabla_is_the_command(guard_environment, run_in, tmp_path):
    words = (guard_environment / "python", "-m", "nabla", "--version")

    assert run_in(*words, cwd=tmp_path) == "nabla 0.1.0\n"


def test_commands_of_missing_parts_are_unknown(guard_environment, tmp_path):
    answer = subprocess.run(
        [str(guard_environment / "nabla"), "check", "x.py:f"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )

    assert answer.returncode == 2
    assert "check" in answer.stderr and "Traceback" not in answer.stderr
