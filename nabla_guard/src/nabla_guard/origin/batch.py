"""Which axis of a tensor counts samples, and to which of them a position belongs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Module, RNNBase

from ..taps.structure import modules_of
from .references import Outside, references_in
from .tape import CallEntry, Entry

__all__ = ["PER_SAMPLE", "Batch", "batch_of", "sample_at"]

PER_SAMPLE = frozenset({"_ctc_loss", "_cudnn_ctc_loss", "_use_cudnn_ctc_loss"})
"""Ops whose result of one axis has a value for each sample, whatever the axes of their inputs."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch of a step.

    Attributes:
        size: number of samples; 0 when not known.
        steps: length of the first axis where that counts time and the second counts samples, as a
            recurrent layer has it by default; 0 where the first axis counts samples.
    """

    size: int = 0
    steps: int = 0

    def leads(self, shape: tuple[int, ...]) -> bool:
        """Whether the leading axes of a tensor are those of the batch."""
        if self.steps:
            return shape[:2] == (self.steps, self.size)
        return bool(self.size) and shape[:1] == (self.size,)


def batch_of(entries: Sequence[Entry]) -> Batch:
    """Return the batch, as far as it is known.

    The number of samples is the length of the first axis of the first argument of a module; without
    any module, of the first tensor that was there before and is not trained. The second axis counts
    samples where the model is a recurrent one that has not asked for another order, or where the
    labels and lengths of the step say so.
    """
    calls = [entry for entry in entries if isinstance(entry, CallEntry)]
    if calls:
        call = next((call for call in calls if call.shape), None)
        return Batch() if call is None else _of_call(call, entries)
    plain = [tensor for tensor in _given(entries) if tensor.dim() and not tensor.requires_grad]
    return Batch(plain[0].shape[0]) if plain else Batch()


def _of_call(call: CallEntry, entries: Sequence[Entry]) -> Batch:
    if len(call.shape) < 2:
        return Batch(call.shape[0])
    first, second = call.shape[:2]
    whole = (found for found in _given(entries) if found.dim() and not found.is_floating_point())
    lengths = {found.shape[0] for found in whole if found.shape != call.shape}
    says_so = len(call.shape) == 3 and second in lengths
    if first not in lengths and (says_so or _in_time(call.module)):
        return Batch(second, first)
    return Batch(first)


def _given(entries: Iterable[Entry]) -> Iterator[Tensor]:
    """Yield the tensors that were there before and are used outside of modules or given to them."""
    for entry in entries:
        for found in references_in(Outside, entry.args, entry.kwargs):
            yield found.tensor


def _in_time(module: Module) -> bool:
    """Whether a model is a recurrent one whose first axis counts time."""
    orders = [part.batch_first for part in modules_of(module) if isinstance(part, RNNBase)]
    return bool(orders) and not any(orders)


def sample_at(
    index: tuple[int, ...],
    shape: tuple[int, ...],
    batch: Batch,
    inputs: Sequence[Tensor] | None = None,
) -> int | None:
    """Return the position along the axis of samples, when a tensor has one.

    Args:
        index: position of the element.
        shape: shape of its tensor.
        batch: the batch. A first axis that is a multiple of its size, with more axes behind, holds
            the positions of each sample one after the other.
        inputs: what the tensor was made from, if an op made it: one of them must have an axis of
            that length, else the samples were reduced away.
    """
    if not index or not batch.size or len(index) != len(shape):
        return None
    if inputs and not any(shape[0] in tensor.shape[:-1] or _is_line(tensor) for tensor in inputs):
        return None
    if batch.steps:
        return _in_time_major(index, shape, batch)
    if shape[0] == batch.size:
        return index[0]
    if shape[0] > batch.size and shape[0] % batch.size == 0 and len(shape) > 1:
        return index[0] // (shape[0] // batch.size)
    return None


def _in_time_major(index: tuple[int, ...], shape: tuple[int, ...], batch: Batch) -> int | None:
    if batch.leads(shape):
        return index[1]
    if shape[0] == batch.steps * batch.size:
        return index[0] % batch.size
    # the last state of each sample; undecided where there are as many steps as samples
    return index[0] if shape[0] == batch.size != batch.steps else None


def _is_line(tensor: Tensor) -> bool:
    return tensor.dim() < 2
