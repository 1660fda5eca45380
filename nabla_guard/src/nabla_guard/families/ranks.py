"""Eight-byte fingerprints of what every rank holds, exchanged through the rendezvous store.

No collective is called: a rank that makes one step fewer than the others would leave them waiting.
Each rank posts its fingerprints to the store that ``init_process_group`` made, and reads what the
others have posted so far; nothing ever waits.
"""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from ..loop.exact import sample_of, tensors_in
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.patching import Patches, Replacement

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["RankFacts", "RankStep", "RankWatch", "fingerprint"]

_EARLY = 3
_PENDING_STEPS = 8
_PENDING_S = 0.2
_KEPT_STEPS = 512
_REFRESH_STEPS = 64
_SESSIONS = itertools.count()  # ranks run one program, so they count alike
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """What a rank held after one step.

    Attributes:
        parameters: fingerprint of each parameter.
        buffers: fingerprint of each buffer; empty unless asked for.
        batch: fingerprint of what went into the models since the last step; 0 for nothing.
        scale: loss scale; 0 without a scaler.
    """

    parameters: tuple[int, ...]
    buffers: tuple[int, ...] = ()
    batch: int = 0
    scale: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class RankFacts:
    """This rank and the others.

    Attributes:
        rank: of this process; -1 while no process group of two or more exists.
        parameters: names of the parameters, in the order of the fingerprints.
        buffers: names of the buffers.
        parallel: a root module is a ``DistributedDataParallel``.
        pairs: per other rank, steps of which both sides are known, oldest first: the step of the
            loop, this rank's state and the other's. A detector takes them away.
    """

    rank: int = -1
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    parallel: bool = False
    pairs: dict[int, list[tuple[int, RankStep, RankStep]]] = field(default_factory=dict)


class RankWatch(Watch):
    """Posts and reads fingerprints after every step; costs nothing without a process group.

    Attributes:
        facts: what was read.
        with_buffers: fingerprint buffers too.
        active: cleared by a detector that has nothing left to decide.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.facts = RankFacts()
        self.with_buffers = False
        self.active = True
        self._mine: dict[int, RankStep] = {}
        self._unsent: dict[int, RankStep] = {}
        self._sent = 0
        self._sent_s = 0.0
        self._cursors: dict[int, int] = {}
        self._parameters: list[Tensor] = []
        self._buffers: list[Tensor] = []
        self._steps = 0
        self._batch = 0
        self._scaler: Callable[[], float] | None = None
        self._session = -1

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if _is_distributed() else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """Learn which scaler the program uses, and when its process group ends."""
        patches.replace(torch.amp.GradScaler, "update", self._wrap_update)
        if dist.is_available():
            patches.replace(dist, "destroy_process_group", self._wrap_destroy)

    def stop(self) -> None:
        """Post what is left and read what the others have posted."""
        self._finish()
        self._parameters, self._buffers = [], []
        self._scaler = None

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Take the fingerprint of a training batch."""
        if not self.active or not _is_distributed() or not torch.is_grad_enabled():
            return
        self.facts.parallel = self.facts.parallel or isinstance(module, DistributedDataParallel)
        for _, tensor in tensors_in((args, dict(kwargs))):
            self._batch = zlib.crc32(_raw(tensor), self._batch)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Take fingerprints; post and read when enough is pending."""
        if not self.active or not _is_distributed():
            return
        if self.facts.rank < 0:
            self.facts.rank = dist.get_rank()
            self._session = next(_SESSIONS)
        if not self._steps % _REFRESH_STEPS or self._steps == 1:
            self._list_tensors()
        self._steps += 1
        state = RankStep(
            parameters=tuple(fingerprint(self._parameters)),
            buffers=tuple(fingerprint(self._buffers)) if self.with_buffers else (),
            batch=self._batch,
            scale=self._scaler() if self._scaler is not None else 0.0,
        )
        self._batch = 0
        self._mine[self.loop.index] = self._unsent[self.loop.index] = state
        due = len(self._unsent) >= _PENDING_STEPS or time.monotonic() - self._sent_s > _PENDING_S
        if self._steps <= _EARLY or due:
            self._exchange()

    # ------------------------------------------------------------------ private
    def _wrap_update(self, original: Replacement) -> Replacement:
        def update(scaler: torch.amp.GradScaler, *args: object, **kwargs: object) -> object:
            outcome = original(scaler, *args, **kwargs)
            if self.watches and self._scaler is None:
                self._scaler = scaler.get_scale
            return outcome

        return update

    def _wrap_destroy(self, original: Replacement) -> Replacement:
        def destroy_process_group(*args: object, **kwargs: object) -> object:
            self.guarded(self._finish)
            return original(*args, **kwargs)

        return destroy_process_group

    def _finish(self) -> None:
        if self.facts.rank >= 0 and self.active and _is_distributed():
            self._exchange()

    def _list_tensors(self) -> None:
        """What must be equal: with a parallel module only what is inside of it."""
        living = self.loop.roots.living
        parallel = [root for root in living if isinstance(root, DistributedDataParallel)]
        roots = parallel or living
        parameters = {
            id(value): (name, value)
            for root in roots
            for name, value in root.named_parameters()
            if not hasattr(value, "to_local")
        }
        buffers = {
            id(value): (name, value)
            for root in roots
            for name, value in root.named_buffers()
            if self.with_buffers
        }
        self.facts.parameters = tuple(name for name, _ in parameters.values())
        self.facts.buffers = tuple(name for name, _ in buffers.values())
        self._parameters = [value.detach() for _, value in parameters.values()]
        self._buffers = [value for _, value in buffers.values()]

    def _exchange(self) -> None:
        store = _store()
        if store is None:
            return
        self._sent_s = time.monotonic()
        if self._unsent:
            store.set(self._key(self.facts.rank, self._sent), _encode(self._unsent))
            self._sent += 1
            self._unsent = {}
        others = range(dist.get_world_size()) if self.facts.rank == 0 else (0,)
        for other in others:
            if other != self.facts.rank:
                self._read(store, other)
        for step in list(self._mine)[:-_KEPT_STEPS]:
            del self._mine[step]

    def _read(self, store: Store, other: int) -> None:
        pairs = self.facts.pairs.setdefault(other, [])
        while store.check([key := self._key(other, self._cursors.get(other, 0))]):
            self._cursors[other] = self._cursors.get(other, 0) + 1
            for step, theirs in _decode(store.get(key)):
                if step in self._mine:
                    pairs.append((step, self._mine[step], theirs))

    def _key(self, rank: int, index: int) -> str:
        return f"nabla/ranks/{self._session}/{rank}/{index}"


def fingerprint(tensors: list[Tensor]) -> list[int]:
    """Return the sum of the bit patterns of each tensor: one changed bit changes it."""
    if not tensors:
        return []
    values: list[int] = torch.stack([_sum_of_bits(tensor) for tensor in tensors]).tolist()
    return values


def _sum_of_bits(tensor: Tensor) -> Tensor:
    bits = tensor.detach().contiguous()
    if bits.dtype == torch.bool or bits.is_complex():
        bits = bits.to(torch.uint8) if bits.dtype == torch.bool else torch.view_as_real(bits)
    if bits.nbytes and not bits.nbytes % 8:  # whole words: a quarter of the time
        flat = bits.view(-1)
        if flat.storage_offset() * flat.element_size() % 8:
            flat = flat.clone()
        return flat.view(torch.int64).sum()
    return bits.view(_INTEGERS[bits.element_size()]).sum(dtype=torch.int64)


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _store() -> Store | None:
    from torch.distributed import distributed_c10d

    find = getattr(distributed_c10d, "_get_default_store", None)
    return find() if find is not None else None


def _raw(tensor: Tensor) -> bytes:
    sample = sample_of(tensor)
    if sample.dtype == torch.bool or not sample.numel():
        return bytes(sample.to(torch.uint8).tolist())
    return bytes(sample.contiguous().view(torch.uint8).tolist())


def _encode(steps: Mapping[int, RankStep]) -> str:
    return json.dumps(
        [[step, s.parameters, s.buffers, s.batch, s.scale] for step, s in steps.items()]
    )


def _decode(posted: bytes) -> Iterator[tuple[int, RankStep]]:
    for step, parameters, buffers, batch, scale in json.loads(posted):
        yield (
            int(step),
            RankStep(
                parameters=tuple(map(int, parameters)),
                buffers=tuple(map(int, buffers)),
                batch=int(batch),
                scale=float(scale),
            ),
        )
