"""Wheels of all distributions, built once, and an environment made from nothing else."""

import base64
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def offline_environment():
    """The environment without settings that would let pip or coverage reach elsewhere."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PIP_", "COV", "NABLA", "PYTHONPATH", "UV_"))
    }
    return kept | {"PIP_CONFIG_FILE": os.devnull, "NO_COLOR": "1"}


def run(*command, **options):
    answer = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=offline_environment(),
        timeout=300,
        **options,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def write_wheel(folder, name, version, files):
    """Write a pure Python wheel; ``files`` maps paths to bytes."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        **files,
    }
    record = "".join(
        f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items()
    )
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def repack(folder, name):
    """Make a wheel of an installed pure Python distribution again."""
    found = importlib.metadata.distribution(name)
    skipped = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
    files = {
        str(path): path.locate().read_bytes()
        for path in found.files or ()
        if ".." not in path.parts and "__pycache__" not in path.parts and path.name not in skipped
    }
    write_wheel(folder, name, found.version, files)


@pytest.fixture(scope="session")
def projects():
    """The pyproject of every distribution by its folder."""
    folders = [ROOT, *ROOT.glob("nabla_*"), *ROOT.glob("plugins/nabla_*")]
    return {
        folder: tomllib.loads((folder / "pyproject.toml").read_text())
        for folder in sorted(folders)
        if (folder / "pyproject.toml").exists()
    }


@pytest.fixture(scope="session")
def wheels(projects, tmp_path_factory):
    """A folder with one wheel per distribution."""
    target = tmp_path_factory.mktemp("wheels")
    for folder in projects:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target, cwd=folder)
    return target


@pytest.fixture(scope="session")
def wheel_folder(wheels):
    """The wheels with what they need from outside; torch is a name only, nothing here calls it."""
    for name in ("click", "packaging", "pluggy"):
        repack(wheels, name)
    write_wheel(wheels, "torch", "2.13.0", {"torch/__init__.py": b"raise ImportError('a stub')\n"})
    return wheels


@pytest.fixture(scope="session")
def guard_environment(wheel_folder, tmp_path_factory):
    """``bin`` of a fresh environment with ``nabla[guard]`` from the wheel folder."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(
        *(sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"),
        *("--python", folder / "bin" / "python"),
        *("install", "-q", "--no-index", "--find-links", wheel_folder, "nabla[guard]"),
        cwd=folder,
    )
    return folder / "bin"


@pytest.fixture(scope="session")
def run_in():
    """Run a command without the settings of this process; return its output."""
    return run
