"""A benchmark's own surroundings: nothing of the person's project decides what comes out."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import torch

__all__ = ["own_surroundings"]

_PREFIX = "NABLA_"


@contextmanager
def own_surroundings() -> Iterator[Path]:
    """Work in an empty folder, without ``NABLA_*`` variables, on one thread; put all back.

    The configuration file of the project is not found from there, what is recorded is gone
    afterwards, and the random state of torch is that of before.

    Yields:
        The folder.
    """
    ours = {name: text for name, text in os.environ.items() if name.startswith(_PREFIX)}
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with tempfile.TemporaryDirectory(prefix="nabla-bench-") as folder, chdir(folder):
        for name in ours:
            del os.environ[name]
        torch.set_num_threads(1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # planted bugs make torch warn, too
                yield Path(folder)
        finally:
            torch.set_num_threads(threads)
            torch.set_rng_state(state)
            os.environ.update(ours)
