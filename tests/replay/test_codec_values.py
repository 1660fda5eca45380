"""Every value that can be stored comes back with the same bits and the same type."""

import math
import os
import struct
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest
import torch

from nabla_replay.codec.digest import digest
from nabla_replay.codec.encoding import encode, snapshot
from nabla_replay.codec.inline import pack, unpack
from nabla_replay.codec.reading import load_state
from nabla_replay.codec.writing import save_state


@pytest.fixture(params=["file", "inline"])
def through(request, tmp_path):
    """Store a value and read it back, in both forms."""

    def file(value):
        save_state(tmp_path / "state.safetensors", value)
        return load_state(tmp_path / "state.safetensors")

    return file if request.param == "file" else lambda value: unpack(pack(value))


def bits(value):
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, torch.Tensor):
        flat = value.contiguous().reshape(-1)
        octets = flat.view(torch.uint8).tolist() if value.numel() else []
        return (value.dtype, tuple(value.shape), octets)
    return value


PLAIN = [
    None,
    True,
    0,
    -1,
    2**53,
    -(2**53),
    2**70,
    -(2**200),
    "",
    "é \ud800 \0 $tensor",
    b"",
    b"\0\xff",
    1 + 2j,
    (),
    (1, (2,)),
    [],
    [[]],
    {},
    set(),
    {1, "a", (2,)},
    frozenset({1}),
    {"$tensor": 1},
    {"$": {"$int": "0x1"}},
    {(1, "a"): 2, 3: 4, None: 5, 2.5: 6, b"k": 7},
    OrderedDict([("b", 1), ("a", 2)]),
    Counter("abracadabra"),
    torch.Size([2, 0, 3]),
    torch.bfloat16,
    torch.device("cuda", 1),
]


def named(value):
    """A name that is the same in every process, which the order of a set is not."""
    return str(sorted(map(repr, value))) if isinstance(value, (set, frozenset)) else repr(value)


@pytest.mark.parametrize("value", PLAIN, ids=named)
def test_values_come_back_with_their_type(through, value):
    back = through({"value": value})["value"]

    assert type(back) is type(value)
    assert back == value
    if isinstance(value, dict):
        assert list(back) == list(value)


@pytest.mark.parametrize("value", [0.1 + 0.2, -0.0, 5e-324, math.inf, -math.inf, 1.7e308])
def test_floats_come_back_bit_for_bit(through, value):
    assert bits(through([value])[0]) == bits(value)


def test_a_nan_keeps_its_payload(through):
    (value,) = struct.unpack(">d", bytes.fromhex("7ff800000000beef"))

    assert bits(through([value])[0]) == bits(value)


def every_dtype():
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return sorted(
        found - {torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8, torch.quint8}, key=str
    )


@pytest.mark.parametrize("dtype", every_dtype(), ids=str)
def test_every_dense_dtype_comes_back_bit_for_bit(through, dtype):
    octets = torch.arange(160, dtype=torch.uint8)
    value = (octets % 2 if dtype is torch.bool else octets).view(dtype).reshape(2, -1)

    assert bits(through({"x": value})["x"]) == bits(value)


SHAPES = {
    "0-d": torch.tensor(3.5),
    "empty": torch.empty(0, 4),
    "strided": torch.arange(24.0).reshape(4, 6).t()[::2],
    "expanded": torch.arange(5.0).expand(4, 5),
    "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "conjugate": torch.rand(3, dtype=torch.complex64).conj(),
    "nan payload": torch.tensor([0x7FC00001, 0x7F800001, -1], dtype=torch.int32).view(
        torch.float32
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tensors_of_any_layout_come_back(through, name):
    value = SHAPES[name].resolve_conj()

    assert bits(through([SHAPES[name]])[0]) == bits(value)


def test_what_comes_back_can_be_written_to(through):
    back = through([torch.ones(3), np.ones(3)])

    back[0][0], back[1][0] = 5, 5
    assert back[0].tolist() == back[1].tolist() == [5, 1, 1]


ARRAYS = [
    np.arange(6).reshape(2, 3)[:, ::2],
    np.array([1.5, np.nan], dtype=">f4"),
    np.array(True),
    np.empty((0, 3), dtype=np.uint16),
    np.array([1 + 2j]),
]


@pytest.mark.parametrize("value", ARRAYS, ids=lambda value: value.dtype.str)
def test_arrays_come_back(through, value):
    back = through((value,))[0]

    assert back.dtype == value.dtype and back.shape == value.shape
    assert back.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    "value", [np.float32(1.1), np.int64(-3), np.bool_(True), np.float64("nan")]
)
def test_numpy_scalars_stay_numpy_scalars(through, value):
    back = through([value])[0]

    assert type(back) is type(value) and back.tobytes() == value.tobytes()


def test_the_states_of_random_generators_come_back(through):
    state = {
        "numpy": np.random.default_rng(3).bit_generator.state,
        "legacy": np.random.RandomState(3).get_state(legacy=False),
        "torch": torch.Generator().manual_seed(3).get_state(),
    }

    back = through(state)

    assert back["numpy"] == state["numpy"]
    assert torch.equal(back["torch"], state["torch"])
    assert np.array_equal(back["legacy"]["state"]["key"], state["legacy"]["state"]["key"])


def test_the_versions_of_modules_come_back(through):
    state = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).state_dict()

    assert through(state)._metadata == state._metadata


@pytest.mark.parametrize("factory", [None, int, list, dict])
def test_a_defaultdict_keeps_a_builtin_factory(through, factory):
    back = through(defaultdict(factory, {"a": 1}))

    assert back == {"a": 1} and back.default_factory is factory


def test_tied_tensors_are_stored_once_and_stay_tied(tmp_path):
    weight = torch.rand(100, 100)
    stored = save_state(tmp_path / "x", {"in": weight, "out": weight, "view": weight.detach()})

    back = load_state(tmp_path / "x")

    assert stored.size_bytes < 50_000
    assert back["in"] is back["out"] is back["view"]


def test_tied_tensors_of_a_dtype_that_the_format_lacks_stay_tied(through):
    weight = torch.rand(3, dtype=torch.complex128)
    back = through([weight, weight])

    assert back[0] is back[1]


def test_two_views_of_one_memory_are_not_taken_for_each_other(through):
    memory = torch.arange(6)

    back = through([memory[:3], memory[:3].view(3, 1), memory[3:], memory[::2]])

    assert [x.flatten().tolist() for x in back] == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [0, 2, 4]]


def test_a_conjugate_is_not_taken_for_its_source(through):
    value = torch.tensor([1 + 2j, 3 - 1j])

    back = through([value, value.conj(), value.conj().imag])

    assert [x.tolist() for x in back] == [[1 + 2j, 3 - 1j], [1 - 2j, 3 + 1j], [-2.0, 1.0]]


def test_names_of_tensors_are_their_places_and_never_collide():
    tensors = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}, "__metadata__": torch.ones(2)}

    assert list(encode(tensors).tensors) == ["a.b", "a.b#2", "__metadata__#2"]


def test_a_snapshot_does_not_follow_its_source():
    state = {"x": torch.zeros(3), "tied": None, "array": np.zeros(2), "list": [1]}
    taken = snapshot(state)

    state["x"] += 1
    state["array"] += 1
    state["list"].append(2)

    assert taken.tensors["x"].tolist() == [0, 0, 0]
    assert not taken.tensors["array"].any()
    assert taken.tree["list"] == [1]


def test_the_memory_of_an_earlier_snapshot_is_used_again():
    first = snapshot({"x": torch.zeros(3), "y": torch.zeros(2)})
    memory = first.tensors["x"].data_ptr()

    second = snapshot({"x": torch.ones(3), "y": torch.ones(5)}, first)

    assert second.tensors["x"].data_ptr() == memory
    assert (second.tensors["x"].tolist(), second.tensors["y"].tolist()) == ([1] * 3, [1] * 5)


def test_two_tensors_never_share_the_memory_of_one_before():
    x = torch.zeros(3)
    first = snapshot({"a": x, "b": x})  # tied: stored once

    second = snapshot({"a": torch.ones(3), "b": torch.full((3,), 2.0)}, first)

    assert second.tensors["a"].tolist() == [1] * 3 and second.tensors["b"].tolist() == [2] * 3


def test_reading_needs_no_gradient_and_gives_none(through):
    weight = torch.nn.Parameter(torch.ones(2))

    assert through([weight])[0].requires_grad is False


def test_a_failed_write_leaves_the_older_file_and_nothing_else(tmp_path, monkeypatch):
    save_state(tmp_path / "x", {"a": torch.zeros(3)})
    before = (tmp_path / "x").read_bytes()
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "full")))

    with pytest.raises(OSError, match="full"):
        save_state(tmp_path / "x", {"a": torch.ones(3)})

    assert (tmp_path / "x").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_equal_states_have_equal_digests_and_a_change_shows():
    def state(**changes):
        return {"lr": 0.1, "betas": (0.9, 0.99), "x": torch.ones(3), "n": {1: 2}, **changes}

    original = digest(state())
    changed = [
        digest(state(lr=0.1 + 1e-17 + 2e-17)),
        digest(state(betas=[0.9, 0.99])),
        digest(state(x=torch.tensor([1.0, 1.0, 1.0000001]))),
        digest(state(x=torch.ones(3, 1))),
        digest(state(x=torch.ones(3, dtype=torch.float64))),
        digest(state(n={1: 2, 3: 4})),
        digest(state(n={"1": 2})),
        digest(state(lr=-0.0)),
        digest(state(lr=0.0)),
        digest(state(lr=0)),
    ]

    assert digest(state()) == original and len(original) == 16
    assert len({original, *changed}) == len(changed) + 1


def test_a_digest_without_tensors_ignores_their_values_alone():
    assert digest([torch.ones(2)], tensors=False) == digest([torch.zeros(2)], tensors=False)
    assert digest([torch.ones(2)], tensors=False) != digest([torch.ones(3)], tensors=False)
