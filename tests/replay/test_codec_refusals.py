"""What has no safe form is refused with its place, never dropped and never pickled."""

import argparse
import ast
import enum
import pathlib
import warnings
from collections import defaultdict, deque, namedtuple

import numpy as np
import pytest
import torch

from nabla_replay.codec.encoding import encode, snapshot
from nabla_replay.codec.writing import save_state
from nabla_replay.errors import UnsupportedStateError


class Colour(enum.IntEnum):
    RED = 1


class Named(str):
    pass


Point = namedtuple("Point", "x")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # quantized tensors are on their way out of torch
    QUANTIZED = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
REFUSED = {
    "deque": deque([1]),
    "path": pathlib.Path("a"),
    "enum": Colour.RED,
    "function": len,
    "lambda": lambda: 0,
    "class": int,
    "namespace": argparse.Namespace(a=1),
    "named tuple": Point(1),
    "str subclass": Named("a"),
    "bytearray": bytearray(b"a"),
    "slice": slice(1),
    "module": torch.nn.Linear(1, 1),
    "generator": torch.Generator(),
    "sparse": torch.eye(3).to_sparse(),
    "quantized": QUANTIZED,
    "meta": torch.empty(3, device="meta"),
    "tensor subclass": torch.ones(3).as_subclass(type("Odd", (torch.Tensor,), {})),
    "object array": np.array([object()]),
    "text array": np.array(["a"]),
    "record array": np.zeros(2, dtype="f4,i4"),
    "date": np.datetime64("2026-01-01"),
    "factory": defaultdict(lambda: 0),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("store", [encode, snapshot])
def test_a_value_without_a_safe_form_is_refused_with_its_place(name, store):
    with pytest.raises(UnsupportedStateError) as refusal:
        store({"optimizer": {"state": [{"odd": REFUSED[name]}]}})

    assert refusal.value.place == "$.optimizer.state[0].odd"
    assert str(refusal.value).startswith("$.optimizer.state[0].odd: ")
    assert isinstance(refusal.value, TypeError)


def test_a_structure_that_contains_itself_is_refused():
    endless = []
    endless.append(endless)

    with pytest.raises(UnsupportedStateError, match="contains itself"):
        encode(endless)


@pytest.mark.parametrize(("levels", "fits"), [(64, True), (65, False)])
def test_nesting_is_bounded(levels, fits):
    value = 1
    for _ in range(levels):
        value = [value]

    if fits:
        encode(value)
    else:
        with pytest.raises(UnsupportedStateError, match="64 levels"):
            encode(value)


def test_a_refused_state_leaves_no_file(tmp_path):
    with pytest.raises(UnsupportedStateError):
        save_state(tmp_path / "x", {"odd": object()})

    assert list(tmp_path.iterdir()) == []


def test_no_source_unpickles_evaluates_or_executes(replay_sources):
    banned_modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
    banned_calls = {"eval", "exec", "compile", "__import__", "torch.save", "np.load", "numpy.load"}
    found = []
    for path in replay_sources:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if banned_modules & set(names) or called in banned_calls:
                found.append(f"{path.name}:{node.lineno}")

    assert found == []
