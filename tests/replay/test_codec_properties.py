"""Any nested state comes back; any damage to what is stored is a typed error."""

import math
import struct

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nabla_core.errors import InputError
from nabla_replay.codec.digest import digest
from nabla_replay.codec.inline import pack, unpack
from nabla_replay.codec.reading import load_state
from nabla_replay.codec.writing import save_state
from nabla_replay.errors import RecordError
from nabla_replay.store.entries import StepEntry
from nabla_replay.store.lines import encode_line, parse_line

FEW = settings(max_examples=40, deadline=None, database=None)
KEYS = st.one_of(st.text(max_size=5), st.integers(), st.tuples(st.integers(), st.text(max_size=3)))
NAMES = st.sampled_from(["rng", "optimizer", "parameters", "ema", "r", "p", "=r", "="])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**200), max_value=2**200),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.frozensets(st.integers(), max_size=3),
)
STATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=20,
)


def exact(value):
    """Return a form in which two values are equal only if type and bits are."""
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    if isinstance(value, complex):
        return ("complex", exact(value.real), exact(value.imag))
    if isinstance(value, dict):
        return ("dict", [(exact(key), exact(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [exact(item) for item in value])
    return (type(value).__name__, value)


@FEW
@given(STATES)
def test_any_state_comes_back_exactly(state):
    assert exact(unpack(pack(state))) == exact(state)


@FEW
@given(STATES)
def test_a_digest_does_not_depend_on_the_way_a_state_came(state):
    assert digest(unpack(pack(state))) == digest(state)


@FEW
@given(st.lists(st.integers(0, 6), max_size=4), st.sampled_from(["float32", "bool", "complex128"]))
def test_any_shape_comes_back(shape, dtype):
    count = math.prod(shape)
    value = torch.arange(count).reshape(shape).to(getattr(torch, dtype))

    back = unpack(pack([value]))[0]

    assert back.dtype == value.dtype and back.shape == value.shape and torch.equal(back, value)


@FEW
@given(st.data())
def test_any_damage_to_a_state_file_is_a_typed_error_or_harmless(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("state") / "x"
    save_state(path, {"a": torch.arange(3.0), "b": (1, [2.5, None]), "c": {3: "x"}})
    octets = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(octets) - 1))
        octets[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(bytes(octets))

    try:
        load_state(path)
    except InputError:
        return  # refused; a value that changed without breaking the form is for the checksum


@FEW
@given(st.binary(max_size=200))
def test_any_line_of_something_else_is_a_typed_error(octets):
    try:
        parse_line(octets)
    except RecordError:
        return
    raise AssertionError("random bytes passed a checksum")


@FEW
@given(
    st.builds(
        StepEntry,
        step=st.integers(0, 2**60),
        loss=st.none() | st.floats(allow_nan=False),
        batch=st.none() | st.text(max_size=9) | st.lists(st.integers(), max_size=4).map(tuple),
        signals=st.dictionaries(st.text(max_size=4), st.floats(allow_nan=False), max_size=3),
        digests=st.dictionaries(
            st.sampled_from(["rng", "optimizer", "ema", "r", "=r", "="]), st.text(max_size=4)
        ),
        vectors=st.dictionaries(
            st.sampled_from(["parameters", "odd", "p", "g"]), st.binary(max_size=9)
        ),
    )
)
def test_any_step_comes_back(entry):
    assert parse_line(encode_line(5, entry)[:-1]).entry == entry
