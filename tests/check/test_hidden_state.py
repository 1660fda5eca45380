"""State that outlives a call: buffers that a call updates, workspaces that it hands out."""

import pytest
import torch


class Centre(torch.nn.Module):
    """Subtracts a running mean that each call updates, as a constant for autograd."""

    def __init__(self, reads):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))
        self.reads = reads

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x.square() - (self.mean if self.reads else 0)


def test_state_that_a_call_updates_and_reads_is_not_judged_by_numbers(check, normal):
    found = check(Centre(reads=True), [normal(5, 3)])

    assert found.passed
    assert any("buffers that the call updates" in issue.message for issue in found.issues)
    assert not any(
        "buffers" in issue.message for issue in check(Centre(False), [normal(5, 3)]).issues
    )


def test_state_that_is_only_kept_does_not_hide_a_fault(faults, function, normal):
    half = function(lambda ctx, x: x.clone(), lambda ctx, g: 0.5 * g)

    class Kept(Centre):
        def forward(self, x):
            return half(super().forward(x))

    assert faults(Kept(reads=False), [normal(5, 3)]) == {"CHK201"}


def test_output_that_is_a_view_of_a_workspace_is_found(faults, function, normal):
    kept = {}

    def forward(ctx, x):
        buffer = kept.setdefault(x.shape, torch.empty_like(x))
        ctx.save_for_backward(x)
        buffer.copy_(x * x)
        return buffer.view_as(buffer)

    op = function(forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0])

    assert faults(op, [normal(4)], reference=lambda x: x * x) & {"CHK223", "CHK201"}


def test_a_power_iteration_that_has_settled_is_not_judged_at_other_weights(faults, normal):
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 3).double())

    assert faults(layer, [normal(5, 4)]) == set()


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_result_that_depends_on_earlier_calls_is_found(faults, normal, share):
    last = [torch.zeros(3, 4, dtype=torch.float64)]

    def smoothed(x):
        mixed = x + share * (last[0] - x).detach() if last[0].any() else x * 1.0
        last[0] = x.detach().clone()
        return mixed.sin()

    assert faults(smoothed, (normal(3, 4),)) == ({"CHK221"} if share else set())
