"""Which class label each input row has, as long as that is a function of the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..loop.watch import EVERY_EVENT, Watch
from .graph import name_of, nodes_from, saved_tensor
from .saved_hooks import SavedHooksWatch

if TYPE_CHECKING:
    from torch.autograd.graph import Node
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["LabelFacts", "LabelWatch"]

_ROWS = 16
_ROW_ELEMENTS = 16
_MAX_KNOWN = 5_000
_NEAR = 24
_REPEATS = 3
_CLASHES = 4
_PATIENCE = 64  # looks, once rows come back
_FIRST_LOOKS = 16  # looks, while every row is new
_STEPS = frozenset({"step_ended"})


@dataclass(slots=True, kw_only=True, eq=False)
class LabelFacts:
    """Whether an input row keeps its label: only while it did so without exception.

    Attributes:
        known: rows that were seen at least three times, always with one label.
        since: step at which most repeated rows of a batch carried another label than before.
        batches: batches with repeated rows from that step on.
        changed: those in which most repeated rows carried another label.
        agreed: repeated rows with their old label in these batches.
        clashed: repeated rows with another one.
        is_function: whether every row had one label before ``since``.
        again: whether most rows changed their label once more later, as in rounds of clustering.
    """

    known: int = 0
    since: int | None = None
    batches: int = 0
    changed: int = 0
    agreed: int = 0
    clashed: int = 0
    is_function: bool = True
    again: bool = False


class LabelWatch(Watch):
    """Remembers the label of repeated input rows, as long as the label is a function of the row.

    Attributes:
        facts: what was found.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.facts = LabelFacts()
        self._labels: dict[bytes, tuple[int, int]] = {}
        self._newer: dict[bytes, int] = {}  # labels after the change
        self._hooks = loop.watches.gather(SavedHooksWatch)
        self._rows: Tensor | None = None
        self._idle = 0
        self._looks = 0
        self._comes_back = False  # whether rows are known to be repeated

    @property
    def patient(self) -> frozenset[str]:
        """After some looks now and then is enough, and again each step after a resume."""
        facts = self.facts
        busy = facts.since is not None and facts.batches <= _REPEATS
        done = self._looks > self._enough or not facts.is_function
        return EVERY_EVENT if done and not busy else _STEPS

    @property
    def _enough(self) -> int:
        """Looks after which it is done: rows that are all new say nothing about labels."""
        return _PATIENCE if self._comes_back else _FIRST_LOOKS

    @property
    def _asleep(self) -> bool:
        """Without repeated rows there is nothing to learn, so look ever more rarely."""
        return self._idle > self._enough and bool((self.loop.index + 1) % 16)

    def stop(self) -> None:
        """Let go of the batch."""
        self._rows = None

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Keep the input of the model that was called last; a loss module is none."""
        if not root.facts.parameters:
            return
        given = args[0] if args else None
        usable = isinstance(given, Tensor) and given.device.type == "cpu" and given.dim() > 0
        self._rows = given if usable and isinstance(given, Tensor) else None

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Compare labels with what they were."""
        rows, self._rows = self._rows, None
        facts = self.facts
        if rows is None or not facts.is_function or len(roots) != 1 or self._asleep:
            return
        if self._hooks.hooked:
            return
        labels = _labels_near(roots[0].grad_fn)
        if labels is None or labels.dim() != 1 or labels.shape[0] != rows.shape[0]:
            self._idle += 1
            self._looks += 1
            return
        keys = _keys(rows)
        if not keys:
            return
        if facts.since is not None and not facts.again:
            self._compare_newer(keys, labels[:_ROWS].tolist())
        self._compare(keys, labels[:_ROWS].tolist())

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Let go of the batch."""
        self._rows = None

    def _compare_newer(self, keys: list[bytes], labels: list[int]) -> None:
        """Note a second change; a row of the first batches may still have had its old label."""
        newer = self._newer
        known = [
            (newer[key], label) for key, label in zip(keys, labels, strict=True) if key in newer
        ]
        clashed = sum(before != label for before, label in known)
        self.facts.again = clashed >= _CLASHES and clashed * 2 > len(known)
        if len(newer) < _MAX_KNOWN:
            newer.update(zip(keys, labels, strict=True))

    def _compare(self, keys: list[bytes], labels: list[int]) -> None:
        self._looks += 1
        agreed = clashed = again = 0
        known, facts = self._labels, self.facts
        counting = facts.since is None
        for key, label in zip(keys, labels, strict=True):
            before, times = known.get(key, (label, 0))
            if before == label:
                agreed += times >= _REPEATS
                again += times > 0
                if times or len(known) < _MAX_KNOWN:
                    known[key] = (label, times + 1)
                    facts.known += counting and times + 1 == _REPEATS
            elif times >= _REPEATS:
                clashed += 1
            else:
                facts.is_function = False
                return
        self._idle = 0 if agreed or clashed else self._idle + 1
        if again and not self._comes_back:
            self._comes_back, self._looks = True, 0
            self.loop.calm.attend()
        self._decide(agreed, clashed)

    def _decide(self, agreed: int, clashed: int) -> None:
        facts = self.facts
        most = clashed * 2 > agreed + clashed
        if facts.since is None:
            if not clashed:
                return
            if not most or clashed < _CLASHES:
                facts.is_function = False
                return
            self.loop.calm.attend()
            facts.since = self.loop.coming
        if agreed or clashed:
            facts.batches += 1
            facts.changed += most
            facts.agreed += agreed
            facts.clashed += clashed


def _keys(rows: Tensor) -> list[bytes]:
    """A sample of each of the first rows, as the bytes that it is made of."""
    count = min(_ROWS, rows.shape[0])
    flat = rows[:_ROWS].detach().reshape(count, -1)
    stride = max(1, flat.shape[1] // _ROW_ELEMENTS)
    chosen = flat[:, ::stride][:, :_ROW_ELEMENTS].contiguous()
    if not chosen.numel():
        return []
    whole = chosen.view(torch.uint8) if chosen.dtype != torch.bool else chosen.to(torch.uint8)
    try:
        sample = whole.numpy().tobytes()
    except RuntimeError:  # torch works without numpy, too
        sample = bytes(whole.flatten().tolist())
    length = len(sample) // count
    return [sample[start : start + length] for start in range(0, len(sample), length)]


def _labels_near(top: Node | None) -> Tensor | None:
    """Class labels of the loss close to the root of a backward pass."""
    if top is None:
        return None
    if name_of(top) == "NllLoss":  # nothing but a plain cross entropy, as in most programs
        return saved_tensor(top, "target")
    for count, node in enumerate(nodes_from([top])):
        if name_of(node) == "NllLoss":
            return saved_tensor(node, "target")
        if count >= _NEAR:
            return None
    return None
