"""Digests of the small state beside the tensors, after every step: cheap, and exact.

A learning rate, a loss scale or a count of steps may differ for many steps before any parameter
does: scales are powers of two, and halving one and doubling it again leaves no trace in a gradient.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping
from operator import is_

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from ..fingerprints.crc32 import crc32_of
from .parts import Parts
from .stateful import state_of

__all__ = ["hyper_digest", "optimizer_digest", "state_digest", "state_digests"]

_QUICK = frozenset((str, int, float, bool, type(None)))
_MOST_TEXTS = 256
_texts: dict[int, tuple[list[str], list[object], bytes]] = {}
"""By id of a group: names, values, plain ones only, and their text. They are kept alive here, so
that what is the same object has the same text, whatever group the id belongs to by now."""
_ATOMS = (str, int, float, bool, bytes, type(None), complex)


def state_digests(parts: Parts, *, thorough: bool) -> dict[str, str]:
    """Return one digest per component that the program has.

    Args:
        parts: the program.
        thorough: also digest the extra parts that are no modules; they may hold many tensors.
    """
    found = optimizer_digest(parts)
    if parts.schedulers:
        found["scheduler"] = _text(state_digest([one.state_dict() for one in parts.schedulers]))
    if parts.scaler is not None:
        found["scaler"] = _text(state_digest(parts.scaler.state_dict()))
    if thorough and parts.others:
        states = {name: state_of(value) for name, value in parts.others.items()}
        found["extra"] = _text(state_digest(states))
    return found


def optimizer_digest(parts: Parts) -> dict[str, str]:
    """Return the digest of the optimizers under its name; nothing where there are none."""
    return {"optimizer": _text(hyper_digest(parts.optimizers))} if parts.optimizers else {}


def _text(digest: int) -> str:
    """Six digits: a record is written for every step."""
    return f"{digest & 0xFFFFFF:06x}"


def hyper_digest(optimizers: Iterable[Optimizer]) -> int:
    """Digest the hyperparameters of optimizers, how much state they hold, and their step count.

    The tensors of their state show in the next parameters.
    """
    value = 0
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            value = _group_digest(group, value)
        value = zlib.crc32(f"{len(optimizer.state)} {_step_count(optimizer)}".encode(), value)
    return value


def _group_digest(group: Mapping[str, object], value: int) -> int:
    """Digest the settings of a group.

    Their text is made anew only where one of them is another object than in the step before.
    """
    names, entries = [*group], [*group.values()]
    if "params" in group:
        entries[names.index("params")] = None  # parameters are not kept alive
    known = _texts.get(id(group))
    if known is None or known[0] != names or not all(map(is_, known[1], entries)):
        pairs = zip(names, entries, strict=True)
        plain = [(name, _plain(entry)) for name, entry in pairs if name != "params"]
        if not all(type(entry) in _QUICK or _is_pair(entry) for _, entry in plain):
            return state_digest(plain, value)
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        known = _texts[id(group)] = (names, entries, repr(plain).encode())
    return zlib.crc32(known[2], value)


def _plain(entry: object) -> object:
    """Return numbers of NumPy as those of Python: a rate may come from either."""
    return entry.item() if isinstance(entry, np.generic) else entry


def _is_pair(entry: object) -> bool:
    """Whether these are the betas of an optimizer, or something of that form."""
    return type(entry) is tuple and all(type(one) in _QUICK for one in entry)


def state_digest(state: object, value: int = 0) -> int:
    """Digest nested containers of numbers, texts and tensors; of other objects only their type.

    A function or an object has no bits that another process could have as well.
    """
    if isinstance(state, _ATOMS):
        return zlib.crc32(repr(state).encode(), value)
    if isinstance(state, Tensor):
        return zlib.crc32(crc32_of(state).to_bytes(4, "little"), value)
    if isinstance(state, Mapping):
        for key, entry in state.items():
            value = state_digest(entry, state_digest(key, value))
        return zlib.crc32(b"}", value)
    if isinstance(state, (list, tuple)):
        for entry in state:
            value = state_digest(entry, value)
        return zlib.crc32(b"]", value)
    if isinstance(state, np.ndarray) and state.dtype != object:
        return zlib.crc32(np.ascontiguousarray(state).tobytes(), value)
    if isinstance(state, (np.generic, torch.dtype, torch.device)):
        return zlib.crc32(repr(state).encode(), value)
    if isinstance(state, (torch.Generator, random.Random, np.random.Generator)):
        return state_digest(state_of(state), value)
    return zlib.crc32(type(state).__qualname__.encode(), value)


def _step_count(optimizer: Optimizer) -> float | int | None:
    """The step count of the first parameter, where reading it does not stop a device."""
    for state in optimizer.state.values():
        mapped = isinstance(state, dict) or isinstance(state, Mapping)  # noqa: SIM101 - the first is quick
        step = state.get("step") if mapped else None
        if isinstance(step, Tensor):
            return float(step) if step.is_cpu and step.numel() == 1 else None
        return step if isinstance(step, (int, float)) else None
    return None
