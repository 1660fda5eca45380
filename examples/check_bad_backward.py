"""A custom operator whose backward forgot the factor of two: the verdict, and its numbers.

python examples/check_bad_backward.py
"""

import torch
from wrong_square import WrongSquare

import nabla


def main():
    result = nabla.check.operator(
        candidate=WrongSquare.apply,
        reference=lambda x: x.square(),
        inputs=[nabla.tensor(shape=(32,), dtype=torch.float64)],
        vjp_cotangent="random",
        check_jvp=True,
        check_finite_difference=True,
    )
    result.print()
    return result


if __name__ == "__main__":
    main()
