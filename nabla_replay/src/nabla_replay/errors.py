"""What can be wrong with a stored run, each kind with a type of its own.

::

    InputError (nabla_core)
    ├── UnsafePathError (nabla_core.artifacts.opening)   a link, a pipe, a device, an escape
    ├── StrictJsonError (nabla_core.artifacts.strict_json)
    └── ReplayError
        ├── RunFormatError       no run, a run of another schema, or a damaged run.json
        ├── RunBusyError         somebody else is writing
        ├── RecordError          a record cannot be stored, or its content makes no sense
        ├── CheckpointError      a checkpoint is missing, swapped or damaged
        │   └── StateFormatError     the state file itself is malformed
        └── UnsupportedStateError    a value in the state has no safe form (also a TypeError)
"""

from __future__ import annotations

from nabla_core.errors import InputError

__all__ = [
    "CheckpointError",
    "RecordError",
    "ReplayError",
    "RunBusyError",
    "RunFormatError",
    "StateFormatError",
    "UnsupportedStateError",
]


class ReplayError(InputError):
    """Base of what nabla-replay raises on purpose."""


class RunFormatError(ReplayError):
    """A folder is no run that this version can read."""


class RunBusyError(ReplayError):
    """Another writer holds the run."""


class RecordError(ReplayError):
    """A record cannot be stored, or its content makes no sense."""


class CheckpointError(ReplayError):
    """A checkpoint is missing, swapped or damaged."""


class StateFormatError(CheckpointError):
    """A state file breaks the format."""


class UnsupportedStateError(ReplayError, TypeError):
    """A value in the state has no safe form.

    Attributes:
        place: where it is, e.g. ``"$.optimizer.state[0]"``.
    """

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        super().__init__(f"{place}: {reason}")
