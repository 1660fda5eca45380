"""What is held is the state as it was, whatever the program does next."""

from collections import Counter, OrderedDict, deque

import numpy as np
import pytest
import torch
from torch import nn

from nabla_replay.codec.decoding import decode
from nabla_replay.codec.digest import digest
from nabla_replay.codec.encoding import encode
from nabla_replay.codec.freezing import freeze
from nabla_replay.errors import UnsupportedStateError


def program(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2).bfloat16())
    optimizer = torch.optim.AdamW(model[0].parameters())
    model[0](torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def state_of(model, optimizer):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "words": np.arange(3, dtype=np.uint32),
        "plain": (None, True, 1 << 70, -0.0, float("nan"), "text", [b"x", 1j], torch.Size([2])),
    }


def test_it_is_stored_as_the_state_itself_would_be():
    state = state_of(*program())
    frozen = freeze(state)
    assert frozen.stored is None
    assert frozen.encoded().tree == encode(state).tree
    assert digest(decode(frozen.encoded())) == digest(state)


def test_later_changes_do_not_reach_it_and_its_memory_is_used_again():
    first = freeze(state_of(*program()))
    model, optimizer = program(seed=1)
    wanted = digest(decode(encode(state_of(model, optimizer))))
    second = freeze(state_of(model, optimizer), first)
    with torch.no_grad():
        for tensor in (*model.state_dict().values(), *optimizer.state[model[0].weight].values()):
            tensor.zero_()
    optimizer.param_groups[0]["lr"] = 7.0
    assert digest(decode(second.encoded())) == wanted
    assert all(one is other for one, other in zip(first.tensors, second.tensors, strict=True))


def test_tied_tensors_stay_tied_and_others_apart():
    whole = torch.arange(6.0).reshape(2, 3)
    state = {"a": whole, "b": whole.detach(), "t": whole.t(), "empty": [torch.empty(0)] * 2}
    back = decode(freeze(state).encoded())
    assert back["a"] is back["b"]
    assert torch.equal(back["t"], whole.t()) and back["t"].is_contiguous()
    assert len(freeze(state).tensors) == 4


def test_memory_is_used_again_only_as_far_as_tensors_are_tied_as_before():
    one, other = torch.zeros(2, 2), torch.ones(2, 2)
    apart = freeze({"a": one, "b": other})
    tied = freeze({"a": one, "b": one.detach()}, apart)
    assert len(tied.tensors) == 1
    assert decode(tied.encoded())["b"].sum() == 0
    again = freeze({"a": other, "b": one}, tied)
    assert [decode(again.encoded())[key].sum() for key in "ab"] == [4, 0]
    turned = freeze({"a": one, "b": torch.arange(4.0).reshape(2, 2).t()}, again)
    assert decode(turned.encoded())["b"].tolist() == [[0, 2], [1, 3]]
    longer = freeze({"a": one, "b": torch.ones(3), "c": other}, turned)
    assert {key: tuple(one.shape) for key, one in decode(longer.encoded()).items()} == {
        "a": (2, 2),
        "b": (3,),
        "c": (2, 2),
    }


def test_the_default_device_does_not_matter():
    with torch.device("meta"):
        frozen = freeze({"x": torch.ones(2, device="cpu")})
    assert torch.equal(decode(frozen.encoded())["x"], torch.ones(2))


@pytest.mark.parametrize(
    "value",
    [
        Counter("aab"),
        {1, 2},
        {(1, 2): 3},
        np.float32(0.5),
        torch.ones(2, dtype=torch.complex64).conj(),
        OrderedDict(a=np.array([1 + 2j])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_unusual_is_stored_as_well(value):
    state = {"x": value, "y": torch.ones(2)}
    frozen = freeze(state)
    assert frozen.stored is not None
    assert digest(decode(frozen.encoded())) == digest(state)
    size_bytes = frozen.size_bytes
    assert freeze(state, frozen).size_bytes == size_bytes > 0


def test_what_cannot_be_stored_is_refused_at_once_with_its_place():
    with pytest.raises(UnsupportedStateError, match=r"\$\.a\[0\]"):
        freeze({"a": [deque()], "b": torch.ones(2)})
    inner = {}
    inner["self"] = inner
    with pytest.raises(UnsupportedStateError, match="deeper"):
        freeze(inner)
