"""Tracing a step sees every call and changes nothing."""

import copy

import pytest
import torch
from torch import nn

from nabla_replay.errors import RecordError
from nabla_replay.fingerprints.call_record import pack_trace, shortened, unpack_trace
from nabla_replay.fingerprints.module_trace import ModuleTrace, can_be_traced


class Twice(nn.Module):
    """Reuses a module, works in place, and has code of its own between its children."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = nn.ReLU(inplace=True)
        self.shared = nn.Linear(6, 6)
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        x = self.again(self.first(x))
        x = self.again(self.shared(x)) * 2 + x
        return self.last(self.shared(x))


def step(model, x):
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss


def traced(model, x):
    trace = ModuleTrace(model, "crc32")
    trace.start()
    loss = step(model, x)
    return trace.stop(), loss


def make():
    torch.manual_seed(0)
    return Twice(), torch.randn(5, 6)


def test_losses_and_gradients_are_bit_identical_while_tracing():
    model, x = make()
    twin = copy.deepcopy(model)

    _, loss = traced(model, x)

    assert torch.equal(loss, step(twin, x))
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_nothing_stays_behind():
    before = nn.Module.__call__
    model, x = make()
    traced(model, x)
    assert nn.Module.__call__ is before
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())


def test_every_call_of_a_reused_module_has_its_own_row():
    model, x = make()
    trace, _ = traced(model, x)
    assert [call for path, call in trace.calls if path == "shared"] == [1, 2]
    assert ("", 1) in trace.calls
    assert trace.calls["shared", 2].grad_inputs is not None
    assert trace.calls["first", 1].grad_inputs is None  # the data needs no gradient


def test_evaluations_are_not_part_of_a_step():
    model, x = make()
    trace = ModuleTrace(model, "crc32")
    trace.start()
    with torch.no_grad():
        model(x)
    step(model, x)
    assert trace.stop() == traced(model, x)[0]


def test_an_exception_in_the_model_passes_and_leaves_nothing():
    model, _ = make()
    before = nn.Module.__call__
    trace = ModuleTrace(model, "crc32")
    trace.start()
    with pytest.raises(RuntimeError):
        model(torch.randn(5, 7))
    trace.abandon()
    assert nn.Module.__call__ is before


def test_a_trace_is_packed_and_unpacked():
    model, x = make()
    trace, _ = traced(model, x)
    paths = [path for path, _ in model.named_modules()]

    packed = pack_trace(trace, paths)

    assert unpack_trace(packed, paths) == shortened(trace)
    assert unpack_trace(packed, [*paths, "other"]) is None


@pytest.mark.parametrize(
    "value", [None, {}, {"names": "x"}, {"names": 1, "packed": ""}, [], "packed"]
)
def test_a_trace_of_another_form_is_refused(value):
    with pytest.raises(RecordError):
        unpack_trace(value, [""])


@pytest.mark.parametrize("packed", ["", "!!!", "eJwDAAAAAAE=", "eJxjYGBgAAAABAAB"])
def test_a_damaged_trace_is_refused(packed):
    names = pack_trace(traced(*make())[0], [path for path, _ in make()[0].named_modules()])["names"]
    paths = [path for path, _ in make()[0].named_modules()]
    with pytest.raises(RecordError):
        unpack_trace({"names": names, "packed": packed}, paths)


def test_what_is_compiled_cannot_be_traced():
    model = nn.Sequential(nn.Linear(2, 2))
    assert can_be_traced(model)
    model[0].compile()
    assert not can_be_traced(model)
