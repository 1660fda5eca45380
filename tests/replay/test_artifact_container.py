"""The container of evidence: written whole, read as if a stranger had made it."""

import hashlib
import json
import os

import pytest

from nabla_core.artifacts.manifest import ArtifactFormatError, Manifest
from nabla_core.artifacts.opening import (
    UnsafePathError,
    is_plain_name,
    open_regular,
    read_regular,
)
from nabla_core.artifacts.reading import read_artifact, read_listed
from nabla_core.artifacts.sanitizing import sanitize_artifact
from nabla_core.artifacts.strict_json import StrictJsonError, dump_json, parse_json, parse_object
from nabla_core.artifacts.writing import ArtifactContent, write_artifact_folder
from nabla_core.errors import InputError

ABOUT = Manifest(kind="check", subject="op", seed=7, fingerprints=("ab",))


@pytest.fixture
def make(tmp_path):
    def write(name="artifact", **others):
        content = ArtifactContent(
            about=ABOUT,
            documents={
                "issues.json": [{"rule": "CHK201", "message": "m"}],
                "setting.json": {"n": 1},
            },
            texts={"reproduction.py": "raise SystemExit(1)\n"},
            **others,
        )
        return write_artifact_folder(tmp_path / name, content)

    return write


def kinds(folder):
    return {fault.name: fault.kind for fault in read_artifact(folder).faults}


def edit_manifest(folder, **changes):
    found = json.loads((folder / "manifest.json").read_text())
    found.update(changes)
    (folder / "manifest.json").write_text(json.dumps(found))


def test_an_artifact_comes_back(make):
    artifact = read_artifact(make(tensors={"x.npy": b"\x93NUMPY"}))

    assert artifact.is_intact
    assert (artifact.manifest.kind, artifact.manifest.seed) == ("check", 7)
    assert artifact.manifest.raw_tensors
    assert sorted(artifact.manifest.files) == [
        "issues.json",
        "reproduction.py",
        "setting.json",
        "tensors/x.npy",
    ]
    assert read_listed(artifact, "tensors/x.npy", 100) == b"\x93NUMPY"


def test_values_of_tensors_are_for_their_owner_only(make):
    folder = make(tensors={"x.npy": b"1"})

    assert (folder / "tensors" / "x.npy").stat().st_mode & 0o077 == 0


def test_without_tensors_the_manifest_says_so(make):
    assert not read_artifact(make()).manifest.raw_tensors


def test_tensors_of_an_earlier_writing_are_still_told(make):
    make(tensors={"x.npy": b"1"})

    assert read_artifact(make()).manifest.raw_tensors


@pytest.mark.parametrize("name", ["issues.json", "tensors/x.npy"])
def test_damage_is_found(make, name):
    folder = make(tensors={"x.npy": b"12345"})
    path = folder / name
    original = path.read_bytes()

    path.write_bytes(original[:-1] + b"#")
    assert kinds(folder) == {name: "changed"}
    path.write_bytes(original + b"#")
    assert kinds(folder) == {name: "changed"}
    path.unlink()
    assert kinds(folder) == {name: "missing"}
    os.mkfifo(path)
    assert kinds(folder) == {name: "unsafe"}
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert kinds(folder) == {name: "unsafe"}


def test_what_is_not_listed_is_found(make):
    folder = make()
    (folder / "model.pt").write_bytes(b"PK\x03\x04")
    (folder / "deep").mkdir()
    (folder / "deep" / "x").write_text("")
    (folder / "link").symlink_to("/")

    assert kinds(folder) == {"deep/x": "unlisted", "link": "unsafe", "model.pt": "unlisted"}


@pytest.mark.parametrize("target", ["link", "pipe"])
def test_an_artifact_that_is_a_link_or_a_pipe_is_refused(make, tmp_path, target):
    folder = make()
    odd = tmp_path / "odd"
    odd.symlink_to(folder) if target == "link" else os.mkfifo(odd)

    with pytest.raises(UnsafePathError):
        read_artifact(odd)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a\\b", "a/b/c/d", "a\nb"]
)
def test_a_listed_name_cannot_lead_out_of_the_folder(make, name):
    folder = make()
    edit_manifest(folder, files={name: {"sha256": "0" * 64, "size_bytes": 1}})

    with pytest.raises(ArtifactFormatError, match="out of the folder"):
        read_artifact(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": "2.0"},
        {"schema_version": None},
        {"kind": 1},
        {"seed": "7"},
        {"files": []},
        {"files": {"x": 1}},
        {"files": {"x": {"sha256": "zz", "size_bytes": 1}}},
        {"files": {"x": {"sha256": "0" * 64, "size_bytes": -1}}},
        {"files": {"x": {"sha256": "0" * 64, "size_bytes": True}}},
        {"files": {f"f{i}": {"sha256": "0" * 64, "size_bytes": 1} for i in range(10_001)}},
        {"raw_tensors": "no"},
    ],
)
def test_a_manifest_of_the_wrong_form_is_refused(make, changes):
    folder = make()
    edit_manifest(folder, **changes)

    with pytest.raises(ArtifactFormatError):
        read_artifact(folder)


@pytest.mark.parametrize("text", ["", "[", "[]", '{"a":1,"a":2}', "NaN", "[" * 200_000])
def test_a_manifest_that_is_no_strict_json_is_refused(make, text):
    folder = make()
    (folder / "manifest.json").write_text(text)

    with pytest.raises(StrictJsonError):
        read_artifact(folder)


def test_a_size_that_lies_is_found_before_the_file_is_read(make):
    folder = make()
    with open(folder / "setting.json", "ab") as stream:
        stream.truncate(1 << 34)  # a hole: reading it would take long

    assert kinds(folder) == {"setting.json": "changed"}


def test_a_sanitized_copy_has_neither_tensors_nor_source(make, tmp_path):
    folder = make(tensors={"x.npy": b"1"})

    written, left_out = sanitize_artifact(folder, tmp_path / "copy")

    copy = read_artifact(written)
    assert copy.is_intact and sorted(copy.manifest.files) == ["issues.json", "setting.json"]
    assert not copy.manifest.raw_tensors and copy.manifest.fingerprints == ("ab",)
    assert sorted(left_out) == ["reproduction.py", "tensors/x.npy"]


def test_a_sanitized_copy_is_redacted_again(make, tmp_path):
    folder = make()
    secret = json.dumps([{"message": "api_key=abcdefgh12345", "path": "/home/somebody/x"}])
    (folder / "issues.json").write_text(secret)
    entry = {"sha256": hashlib.sha256(secret.encode()).hexdigest(), "size_bytes": len(secret)}
    edit_manifest(folder, files={"issues.json": entry})
    for name in ("reproduction.py", "setting.json"):
        (folder / name).unlink()

    written, _ = sanitize_artifact(folder, tmp_path / "copy")

    text = (written / "issues.json").read_text()
    assert "abcdefgh12345" not in text and "somebody" not in text


def test_a_damaged_artifact_is_not_copied(make, tmp_path):
    folder = make()
    (folder / "issues.json").write_text("[]")

    with pytest.raises(InputError, match="not intact"):
        sanitize_artifact(folder, tmp_path / "copy")
    with pytest.raises(InputError, match="exists"):
        sanitize_artifact(make("other"), folder)


def test_reading_runs_nothing(make, nothing_runs):
    folder = make(tensors={"x.npy": b"1"})

    with nothing_runs():
        read_artifact(folder)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a.json", True),
        ("ä b", True),
        ("a/b", False),
        ("..", False),
        ("\x1b[0m", False),
        ("", False),
    ],
)
def test_plain_names(name, plain):
    assert is_plain_name(name) is plain


def test_a_file_beyond_the_limit_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")

    assert read_regular(tmp_path / "x", max_bytes=5) == b"12345"
    with pytest.raises(InputError, match="at most 4"):
        read_regular(tmp_path / "x", max_bytes=4)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(path):
    with pytest.raises(UnsafePathError, match="device"):
        open_regular(path, max_bytes=10)


@pytest.mark.parametrize(
    "text", [b"1e999", b'{"a":{"b":1,"b":1}}', b"-Infinity", b"\xff", b"{'a':1}"]
)
def test_json_that_is_not_strict_is_refused(text):
    with pytest.raises(StrictJsonError, match="thing"):
        parse_json(text, "thing")


def test_strict_json_comes_back():
    value = {"a": [1, 2.5, None, True, "\ud800é"], "b": {}}

    assert parse_object(dump_json(value), "x") == value
    with pytest.raises(ValueError, match="JSON compliant"):
        dump_json([float("nan")])
