"""``nabla.audit.assert_trains``."""

import pytest
import torch
from torch.nn import functional as F

import nabla_audit
from nabla_core.errors import UsageError


def builder(net, batches, *, clears_late=False, steps=True):
    def build():
        torch.manual_seed(0)
        model, data = net(), iter(batches(8))
        optimizer = torch.optim.Adam(model.parameters())

        def step():
            x, y = next(data)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if clears_late:
                optimizer.zero_grad()
            if steps:
                optimizer.step()

        return step

    return build


def test_a_step_that_trains_passes(net, batches):
    nabla_audit.assert_trains(builder(net, batches))


def test_a_step_without_gradients_fails(net, batches):
    with pytest.raises(nabla_audit.AuditFailed, match="AUD101") as caught:
        nabla_audit.assert_trains(builder(net, batches, clears_late=True), steps=4)
    assert [issue.rule for issue in caught.value.issues] == ["AUD101"]


def test_a_function_that_never_steps_fails(net, batches):
    with pytest.raises(nabla_audit.AuditFailed, match="no optimizer"):
        nabla_audit.assert_trains(builder(net, batches, steps=False))


@pytest.mark.parametrize(("build", "steps"), [(lambda: print, 2), (lambda: None, 3)])
def test_a_wrong_use_is_told(build, steps):
    with pytest.raises(UsageError, match="assert_trains"):
        nabla_audit.assert_trains(build, steps=steps)
