"""A custom operator whose backward forgot the factor of two.

nabla check examples/wrong_square.py:wrong_square --reference examples/wrong_square.py:square
"""

import torch


class WrongSquare(torch.autograd.Function):
    """x ↦ x², with half of its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        return cotangent * x  # should be 2 * x


def wrong_square(x):
    return WrongSquare.apply(x)


def square(x):
    return x.square()


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(32, generator=generator, dtype=torch.float64)]


if __name__ == "__main__":
    import nabla

    nabla.check.operator(
        candidate=wrong_square,
        reference=square,
        inputs=[nabla.tensor(shape=(32,), dtype=torch.float64)],
    ).print()
