"""Forward mode, second derivative, numerical oracle and determinism of one operator.

The first derivative is right. The second is silently wrong: an intermediate kept on ``ctx`` counts
as a constant in the second backward, so a gradient penalty through it regularises nothing.

    python examples/check_advanced.py
"""

import torch

import nabla


class TanhSquare(torch.autograd.Function):
    """x ↦ tanh(x)²."""

    @staticmethod
    def forward(ctx, x):
        ctx.kept = torch.tanh(x)  # should go through save_for_backward, and be recomputed
        return ctx.kept.square()

    @staticmethod
    def backward(ctx, cotangent):
        kept = ctx.kept
        return cotangent * 2 * kept * (1 - kept.square())


def main():
    result = nabla.check.operator(
        candidate=TanhSquare.apply,
        reference=lambda x: torch.tanh(x).square(),
        inputs=[nabla.tensor(shape=(4, 3), dtype=torch.float64)],
        check_double_backward=True,
        check_finite_difference=True,
        check_determinism=True,
        seed=0,
    )
    result.print()
    return result


if __name__ == "__main__":
    main()
