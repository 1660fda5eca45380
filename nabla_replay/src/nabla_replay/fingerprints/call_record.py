"""What every call of every module gave in one step, as fingerprints, and its packed form."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nabla_core.artifacts.strict_json import JsonObject, JsonValue

from ..errors import RecordError

__all__ = ["CallKey", "ModuleCall", "StepTrace", "pack_trace", "shortened", "unpack_trace"]

CallKey = tuple[str, int]
"""Path of a module (``""`` is the model itself) and the 1-based number of its call in the step."""

_MAX_ROWS = 20_000
_MAX_PACKED_BYTES = 8 * 1024 * 1024
_COUNTS = 3
_COLUMNS = 6  # module, number, and four fingerprints


@dataclass(slots=True)
class ModuleCall:
    """The fingerprints of one call; ``None`` where there was no tensor or no gradient.

    Attributes:
        inputs: of the tensors it was given.
        outputs: of the tensors it returned.
        grad_outputs: of the gradients that reached its outputs.
        grad_inputs: of the gradients that its own computation sent to its inputs.
    """

    inputs: int | None = None
    outputs: int | None = None
    grad_outputs: int | None = None
    grad_inputs: int | None = None

    @property
    def values(self) -> tuple[int | None, ...]:
        """All four, in the order of the attributes."""
        return (self.inputs, self.outputs, self.grad_outputs, self.grad_inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """One traced step.

    Attributes:
        calls: in the order in which they returned.
        backward: keys in the order in which their backward pass was over.
        gradients: by path of a module: fingerprint of the gradients of its own parameters.
    """

    calls: Mapping[CallKey, ModuleCall] = field(default_factory=dict)
    backward: tuple[CallKey, ...] = ()
    gradients: Mapping[str, int] = field(default_factory=dict)


def pack_trace(trace: StepTrace, paths: Sequence[str]) -> JsonObject | None:
    """Return a trace for the log, or ``None`` where it is too large to be worth it.

    Fingerprints are cut to 16 bits: a trace never says that a step differs, only where it began to,
    and one difference in 65,535 may go unseen for that. Little-endian words of 16 bits: three
    counts; in columns the calls (module, number, and four fingerprints, 0 for none); the order of
    the backward pass; the gradients (module, then fingerprint).

    Args:
        trace: the step.
        paths: of all modules of the model, in its own order.
    """
    if max(len(trace.calls), len(paths)) > _MAX_ROWS:
        return None
    number = {path: index for index, path in enumerate(paths)}
    order = {key: index for index, key in enumerate(trace.calls)}
    rows = [one.values for one in trace.calls.values()]
    backward = [order[key] for key in trace.backward if key in order]
    words = [len(rows), len(backward), len(trace.gradients)]
    words += [number[path] for path, _ in trace.calls] + [call for _, call in trace.calls]
    words += [_short(row[column]) for column in range(4) for row in rows]
    words += backward + [number[path] for path in trace.gradients]
    words += [_short(value) for value in trace.gradients.values()]
    raw = np.array(words, "<u2").tobytes()
    packed = base64.b64encode(zlib.compress(raw, 9)).decode("ascii")
    return {"names": _names_digest(paths), "packed": packed}


def shortened(trace: StepTrace) -> StepTrace:
    """Return a trace as it is after packing and unpacking, to compare it with a recorded one."""
    calls = {
        key: ModuleCall(*(_short(value) or None for value in one.values))
        for key, one in trace.calls.items()
    }
    gradients = {path: _short(value) for path, value in trace.gradients.items()}
    return StepTrace(calls=calls, backward=trace.backward, gradients=gradients)


def unpack_trace(value: JsonValue, paths: Sequence[str]) -> StepTrace | None:
    """Read :func:`pack_trace`; ``None`` if the model has modules of other names.

    Raises:
        RecordError: the trace is malformed.
    """
    match value:
        case {"names": str(names), "packed": str(packed)}:
            if names != _names_digest(paths):
                return None
            try:
                return _trace(_inflated(packed), paths)
            except (ValueError, IndexError, zlib.error) as error:
                raise RecordError(f"a trace of modules is malformed: {error}") from error
    raise RecordError("a trace of modules has the wrong form")


def _short(value: int | None) -> int:
    return 0 if value is None else 1 + value % 0xFFFF


def _trace(raw: bytes, paths: Sequence[str]) -> StepTrace:
    words = np.frombuffer(raw, "<u2").tolist()
    calls, backward, gradients = words[:_COUNTS]
    rest = words[_COUNTS:]
    if len(rest) != _COLUMNS * calls + backward + 2 * gradients:
        raise ValueError("its counts do not add up to its size")
    columns = [rest[index * calls : (index + 1) * calls] for index in range(_COLUMNS)]
    keys = [(paths[module], call) for module, call in zip(columns[0], columns[1], strict=True)]
    rows = zip(*columns[2:], strict=True)
    after = rest[_COLUMNS * calls :]
    modules, values = after[backward : backward + gradients], after[backward + gradients :]
    return StepTrace(
        calls={
            key: ModuleCall(*(one or None for one in row))
            for key, row in zip(keys, rows, strict=True)
        },
        backward=tuple(keys[index] for index in after[:backward]),
        gradients={paths[one]: value for one, value in zip(modules, values, strict=True)},
    )


def _inflated(packed: str) -> bytes:
    try:
        compressed = base64.b64decode(packed, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    engine = zlib.decompressobj()
    raw = engine.decompress(compressed, _MAX_PACKED_BYTES)
    if not engine.eof:
        raise ValueError("it is larger than any trace, or cut off")
    return raw


def _names_digest(paths: Iterable[str]) -> str:
    return f"{zlib.crc32(chr(10).join(paths).encode('utf-8', 'replace')):08x}"
