"""Recorded state that is put back may have been written by a stranger: what it breaks is typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nabla_core.errors import InputError

from ..errors import RecordError

__all__ = ["recorded_state"]


@contextmanager
def recorded_state(what: str) -> Iterator[None]:
    """Take any failure inside for a recorded state of the wrong form.

    No step of the program and no loader may run inside: what they raise is their own.

    Args:
        what: where the state comes from, for the error.

    Raises:
        RecordError: something inside failed.
    """
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        raise RecordError(
            f"{what}: holds a state that no capture writes ({type(error).__name__}: {error})"
        ) from error
