"""Search shapes, dtypes and layouts for the smallest case in which a kernel is wrong.

The kernel sums in blocks of 16 columns and forgets the last, partial block.

    python examples/check_fuzz.py
"""

import torch

import nabla

BLOCK = 16


def blocked_linear(x, weight):
    """x [m, k] and weight [n, k] to [m, n], as ``torch.nn.functional.linear``."""
    whole = x.shape[-1] // BLOCK * BLOCK or x.shape[-1]
    return x[:, :whole] @ weight[:, :whole].T


def main():
    result = nabla.check.fuzz(
        candidate=blocked_linear,
        reference=torch.nn.functional.linear,
        inputs=[
            nabla.tensor(
                shape=nabla.shapes("m k"),
                dtype=[torch.float64, torch.float32],
                layout=["contiguous", "strided", "transposed"],
            ),
            nabla.tensor(shape=nabla.shapes("n k"), dtype=[torch.float64, torch.float32]),
        ],
        trials=100,
        seed=0,
    )
    result.print()
    return result


if __name__ == "__main__":
    main()
