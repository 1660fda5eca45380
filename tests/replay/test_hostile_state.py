"""A state file that a stranger made: a typed error, nothing executed, nothing large allocated."""

import io
import json
import os
import struct
import tracemalloc
import zipfile

import pytest
import torch

from nabla_core.artifacts.opening import UnsafePathError
from nabla_core.artifacts.strict_json import StrictJsonError
from nabla_core.errors import InputError
from nabla_replay.codec.container import MAX_HEADER_BYTES
from nabla_replay.codec.inline import unpack
from nabla_replay.codec.reading import load_state
from nabla_replay.codec.writing import save_state
from nabla_replay.errors import CheckpointError, StateFormatError


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def header(tensors, tree=None, **metadata):
    about = {"schema": "nabla.state/1", "tree": {"x": {"$tensor": "x"}} if tree is None else tree}
    found = {**tensors, "__metadata__": {"nabla": json.dumps({**about, **metadata})}}
    return json.dumps(found).encode()


GOOD = header({"x": entry()})
LIES = {
    "shape of 2^40": (header({"x": entry(shape=[2**40], offsets=[0, 2**42])}), 8),
    "shape whose product wraps": (header({"x": entry(shape=[2**32, 2**32], offsets=[0, 8])}), 8),
    "a wide and an empty axis": (header({"x": entry(shape=[2**62, 2**62, 0], offsets=[0, 0])}), 0),
    "negative size": (header({"x": entry(shape=[-2, -1])}), 8),
    "size that is no integer": (header({"x": entry(shape=[2.0])}), 8),
    "size that is true": (header({"x": entry(shape=[True, 2])}), 8),
    "65 axes": (header({"x": entry(shape=[1] * 64 + [2])}), 8),
    "end before begin": (header({"x": entry(offsets=[8, 0])}), 8),
    "offsets past the file": (header({"x": entry(offsets=[8, 16])}), 8),
    "offsets of three": (header({"x": {**entry(), "data_offsets": [0, 4, 8]}}), 8),
    "unknown dtype": (header({"x": entry(dtype="PICKLE")}), 8),
    "dtype of another width": (header({"x": entry(dtype="F64")}), 8),
    "an extra key": (header({"x": {**entry(), "more": 1}}), 8),
    "overlap": (header({"x": entry(), "y": entry(offsets=[4, 12])}), 12),
    "gap": (header({"x": entry(), "y": entry(offsets=[12, 20])}), 20),
    "zero-size tensor inside another": (
        header({"x": entry(), "y": entry(shape=[0], offsets=[4, 4])}),
        8,
    ),
    "bytes after the last tensor": (GOOD, 9),
    "fewer bytes than the tensors": (GOOD, 7),
    "key twice": (b'{"x":1,"x":1,' + GOOD[1:], 8),
    "NaN in the header": (GOOD.replace(b'"F32"', b"NaN"), 8),
    "infinite number": (GOOD.replace(b"[2]", b"[1e999]"), 8),
    "no JSON": (b"\x80\x04" + b"x" * 40, 8),
    "no UTF-8": (b'{"\xff":1}', 8),
    "a list": (b"[]", 8),
    "brackets": (b"[" * 200_000, 8),
    "brackets in the metadata": (
        json.dumps({"__metadata__": {"nabla": "[" * 200_000}}).encode(),
        0,
    ),
    "metadata is no object": (b'{"__metadata__":[]}', 0),
    "metadata is no string": (b'{"__metadata__":{"nabla":{}}}', 0),
    "no metadata": (json.dumps({"x": entry()}).encode(), 8),
    "another schema": (header({"x": entry()}, schema="nabla.state/9"), 8),
    "a tree without its tensor": (header({"x": entry()}, tree=[]), 8),
    "a tensor that is not there": (header({"x": entry()}, tree=[{"$tensor": "y"}]), 8),
}
TREES = {
    "unknown tag": {"$exec": "os.system('x')"},
    "tag beside a key": {"$int": "0x1", "a": 1},
    "two tags": {"$int": "0x1", "$float": "0"},
    "module as dtype": {"$dtype": "nn"},
    "function as dtype": {"$dtype": "load"},
    "dtype path": {"$dtype": "nn.functional"},
    "device with a path": {"$device": "cuda:0; import os"},
    "unknown device": {"$device": "toaster"},
    "int that is text": {"$int": "rm"},
    "float of 3 digits": {"$float": "7ff"},
    "complex of one part": {"$complex": ["7ff0000000000000"]},
    "bytes that are no base64": {"$bytes": "?"},
    "negative size": {"$size": [-1]},
    "object scalar": {"$scalar": ["|O8", "AAAAAAAAAAA="]},
    "scalar of other width": {"$scalar": ["<f8", "AAAA"]},
    "huge scalar": {"$scalar": ["|V1000000000", ""]},
    "set of lists": {"$set": [[1]]},
    "tuple that is an object": {"$tuple": {"a": 1}},
    "map of another kind": {"$map": ["os.environ", [], None]},
    "map with a factory": {"$map": ["defaultdict", [], "eval"]},
    "map of triples": {"$map": ["dict", [[1, 2, 3]], None]},
    "map with a key twice": {"$map": ["dict", [[1, 2], [1, 3]], None]},
    "map with a list as key": {"$map": ["dict", [[[], 2]], None]},
    "tensor of a false shape": {"$tensor": ["x", "complex128", [5]]},
    "tensor of a false dtype": {"$tensor": ["x", "__class__", [1]]},
    "tensor of a huge shape": {"$tensor": ["x", "float64", [2**62, 4]]},
    "array of objects": {"$array": ["x", "|O8", [1]]},
    "array of a false shape": {"$array": ["x", "<f8", [7]]},
}


def deep(levels):
    tree = 1
    for _ in range(levels):
        tree = [tree]
    return tree


@pytest.mark.parametrize("name", LIES)
def test_a_header_that_lies_is_refused(store, tmp_path, nothing_runs, name):
    text, count = LIES[name]
    path = store.state_file(tmp_path / "x", text, b"\0" * count)
    tracemalloc.start()

    with nothing_runs(), pytest.raises(StateFormatError) as refusal:
        load_state(path)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in str(refusal.value) and len(str(refusal.value)) < 500
    assert peak < 20_000_000


@pytest.mark.parametrize("name", TREES)
def test_a_tree_that_lies_is_refused(store, tmp_path, nothing_runs, name):
    octets = entry(dtype="U8", shape=[16], offsets=[0, 16])
    path = store.state_file(
        tmp_path / "x", header({"x": octets}, tree=[{"$tensor": "x"}, TREES[name]]), b"\0" * 16
    )

    with nothing_runs(), pytest.raises(StateFormatError):
        load_state(path)


@pytest.mark.parametrize(("levels", "fits"), [(64, True), (65, False), (500, False)])
def test_a_tree_is_read_to_a_bounded_depth(store, tmp_path, levels, fits):
    path = store.state_file(tmp_path / "x", header({}, tree=deep(levels)))

    if fits:
        load_state(path)
    else:
        with pytest.raises(StateFormatError):
            load_state(path)


@pytest.mark.parametrize("name", TREES)
def test_a_packed_tree_that_lies_is_refused(nothing_runs, name):
    octets = ["U8", [16], "A" * 20 + "AA=="]

    with nothing_runs(), pytest.raises(StateFormatError):
        unpack({"tree": [{"$tensor": "x"}, TREES[name]], "tensors": {"x": octets}})


@pytest.mark.parametrize(
    "packed",
    [
        None,
        [],
        {},
        {"tree": 1},
        {"tree": 1, "tensors": []},
        {"tree": [{"$tensor": "x"}], "tensors": {"x": ["F32", [2**40], "AAAA"]}},
        {"tree": [{"$tensor": "x"}], "tensors": {"x": ["F32", [1], "??"]}},
        {"tree": [{"$tensor": "x"}], "tensors": {"x": ["F32", [1]]}},
    ],
)
def test_a_packed_state_that_lies_is_refused(packed):
    with pytest.raises(StateFormatError):
        unpack(packed)


@pytest.mark.parametrize("length", [2**62, 2**64 - 1, MAX_HEADER_BYTES + 1, 200])
def test_a_length_that_lies_is_refused_before_anything_is_read(tmp_path, length):
    (tmp_path / "x").write_bytes(struct.pack("<Q", length) + b"x" * 100)

    with pytest.raises(StateFormatError, match="header"):
        load_state(tmp_path / "x")


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_file_without_a_header_is_refused(tmp_path, size):
    (tmp_path / "x").write_bytes(b"\0" * size)

    with pytest.raises(StateFormatError, match="too few"):
        load_state(tmp_path / "x")


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


def test_a_pickle_under_the_name_of_a_state_is_not_executed(tmp_path, nothing_runs):
    torch.save({"model": Evil(tmp_path / "executed")}, tmp_path / "x.safetensors")

    with nothing_runs(), pytest.raises(StateFormatError):
        load_state(tmp_path / "x.safetensors")

    assert not (tmp_path / "executed").exists()


def test_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("data.pkl", io.BytesIO().getvalue())

    with pytest.raises(StateFormatError):
        load_state(tmp_path / "x")


@pytest.mark.parametrize("place", ["length", "header", "data", "last byte"])
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_changed_bit_is_found_by_the_recorded_checksum(store, nothing_runs, place, bit):
    folder = store.run()
    path = store.checkpoint(folder)
    size = path.stat().st_size
    store.flip(
        path, {"length": 0, "header": 60, "data": size - 700, "last byte": size - 1}[place], bit
    )

    with nothing_runs(), pytest.raises(CheckpointError):
        store.load(folder)


def test_every_truncation_is_found(tmp_path):
    save_state(tmp_path / "x", {"a": torch.arange(3.0), "b": [1, (2,)]})
    octets = (tmp_path / "x").read_bytes()

    for size in range(len(octets)):
        (tmp_path / "x").write_bytes(octets[:size])
        with pytest.raises(StateFormatError):
            load_state(tmp_path / "x")


def test_no_changed_byte_of_a_header_gives_anything_but_a_typed_error(tmp_path):
    state = {"a": torch.arange(2.0), "b": (1, 2.5), "c": {3: "x"}}
    save_state(tmp_path / "x", state)
    octets = (tmp_path / "x").read_bytes()

    for at in range(len(octets) - 8):
        for change in (1, 128):
            (tmp_path / "x").write_bytes(
                octets[:at] + bytes([octets[at] ^ change]) + octets[at + 1 :]
            )
            try:
                load_state(tmp_path / "x")
            except InputError:
                continue


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_what_is_no_regular_file_is_not_opened(tmp_path, in_child, kind):
    path = tmp_path / "x"
    if kind == "link":
        save_state(tmp_path / "real", {})
        path.symlink_to(tmp_path / "real")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = "/dev/zero"

    def load():
        try:
            load_state(path)
        except UnsafePathError:
            return "unsafe"
        except InputError:
            return "refused"
        return "read"

    assert in_child(load, 5.0) == "unsafe"


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_state(tmp_path / "x")


def test_strict_errors_are_all_errors_about_input():
    assert issubclass(StateFormatError, InputError) and issubclass(StrictJsonError, InputError)
