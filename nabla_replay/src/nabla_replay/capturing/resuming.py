"""Finds the recorded step from which a program goes on, and what of its state is another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity

from ..fingerprints.fingerprinter import Fingerprinter, value_bytes
from ..replaying.history import Segment, segments_of
from ..rules import RESUMED_RUN_DIFFERS
from ..store.entries import StepEntry
from ..store.reader import RunReader
from .brief import anchor_in
from .digests import state_digests
from .generators import GeneratorDigest, drawn_between
from .opening import make_fingerprinter
from .parts import Parts
from .place import find_place
from .rates import RATE, Rates

__all__ = ["ResumePoint", "find_resume_point", "part_of"]

_REST = ("scheduler", "scaler", "extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a run is gone on with.

    Attributes:
        step: recorded step whose parameters the program has; ``None`` if there is no such step.
        agreed: components that are as they were after that step.
        issues: components that are not.
    """

    step: int | None
    agreed: tuple[str, ...] = ()
    issues: tuple[Issue, ...] = ()


def find_resume_point(folder: Path, parts: Parts, rank: int | None = None) -> ResumePoint:
    """Compare a program that is about to go on with the run that it goes on with.

    The parameters name the step: a recorded fingerprint has 32 or more bits per tensor.

    Args:
        folder: of the run.
        parts: the program, as it is now.
        rank: of the log to look at; by default that of this process.

    Raises:
        InputError: the run cannot be read.
    """
    with RunReader.open(folder) as reader:
        here = find_place(0.0).rank if rank is None else rank
        log = reader.log(here if here in reader.ranks else 0)
        algorithm = reader.header.hash_algorithm
    segments = segments_of(log)
    steps = [step for segment in segments for step in segment.steps]
    if not steps or algorithm not in ("crc32", "mlh64"):
        return ResumePoint(step=None)
    fingerprinter = make_fingerprinter(parts, "crc32" if algorithm == "crc32" else "mlh64")
    fitting = list(_fitting(steps, fingerprinter))
    if not fitting and not all(_held(step, fingerprinter) for step in steps):
        return ResumePoint(step=None)  # it may be a step whose parameters were not looked at
    if not fitting:
        return ResumePoint(step=None, issues=(_unknown_parameters(steps),))
    now = {"rng": GeneratorDigest()(), **state_digests(parts, thorough=True)}
    rates = Rates(parts.optimizers).news()
    best = _with_rest(_best(fitting, now), segments, now, rates)
    best = _with_saved(best, segments)
    agreed = tuple(name for name, text in best.digests.items() if now.get(name) == text)
    return ResumePoint(
        step=best.step, agreed=("parameters", *agreed), issues=tuple(_differing(best, now))
    )


def _best(fitting: list[StepEntry], now: dict[str, str]) -> StepEntry:
    """Return the step that agrees in most: parts of the state may be frozen for many steps."""
    brief = next((step for step in fitting if step.is_brief), None)  # the last of them
    looked = [step for step in fitting if not step.is_brief]
    best = max(
        looked,
        key=lambda step: sum(now.get(name) == text for name, text in step.digests.items()),
        default=None,
    )
    if best is None or (
        brief is not None and best.digests.get("optimizer") != now.get("optimizer")
    ):
        return brief or fitting[0]
    return best


def _with_rest(
    step: StepEntry, segments: Sequence[Segment], now: Mapping[str, str], rates: Mapping[str, float]
) -> StepEntry:
    """Return a step that was recorded when the optimizer had acted with what the rest of it did.

    Schedule, scaler and averages follow the optimizer: how they were after the step is what they
    still were at the record of the next one. Without that, nothing is said about them.
    """
    segment, index = next(
        ((one, at) for one in segments for at, known in enumerate(one.steps) if known is step),
        (None, 0),
    )
    if segment is None or not segment.within:
        return step
    after = segment.steps[index + 1] if index + 1 < len(segment.steps) else None
    digests = dict(step.digests)
    for name in _REST:
        if name not in digests or name not in now or digests[name] == now[name]:
            continue
        told = None if after is None else after.digests.get(name)
        if told is None:
            del digests[name]
        else:
            digests[name] = told
    moved = rates != _rates_of(step)
    if moved and (after is None or rates == _rates_of(after)):
        digests.pop("optimizer", None)
    return replace(step, digests=digests)


def _rates_of(step: StepEntry) -> dict[str, float]:
    return {name: one for name, one in step.signals.items() if name.partition(".")[0] == RATE}


def _with_saved(step: StepEntry, segments: Sequence[Segment]) -> StepEntry:
    """Return a step in brief with the digests of the state that the program saved after it."""
    saved = [one.saved[step.step] for one in segments if step.step in one.saved]
    if not step.is_brief or not saved:
        return step
    return replace(step, digests={**step.digests, **saved[-1]})


def part_of(step: StepEntry) -> tuple[int, int, bytes] | None:
    """Return which part of the state a record holds, of how many, and its packed fingerprints."""
    for name, packed in step.vectors.items():
        part, _, parts = name.partition("/")
        if part.isdecimal() and parts.isdecimal() and int(part) < int(parts):
            return int(part), int(parts), packed
    return None


def _fitting(steps: list[StepEntry], fingerprinter: Fingerprinter) -> Iterator[StepEntry]:
    """Yield the steps after which parameters and buffers were as they are now, the last first."""
    known: dict[tuple[int, int], bytes] = {}
    size = value_bytes(fingerprinter.algorithm)
    anchors: dict[str, bytes] = {}
    for step in reversed(steps):
        found = part_of(step)
        if found is None:
            if _is_anchored(step, fingerprinter, anchors):
                yield step
            continue
        part, parts, packed = found
        if parts != fingerprinter.parts:
            fingerprinter.turn(parts)
        if (part, parts) not in known:
            known[part, parts] = fingerprinter.packed(part)
        held = _held(step, fingerprinter)
        now = known[part, parts]
        if (
            held
            and len(now) == len(packed)
            and all(
                now[i * size : (i + 1) * size] == packed[i * size : (i + 1) * size] for i in held
            )
        ):
            yield step


def _is_anchored(step: StepEntry, fingerprinter: Fingerprinter, known: dict[str, bytes]) -> bool:
    """Whether the anchor of a brief record is as it is now."""
    for name, packed in step.vectors.items():
        index = anchor_in(name, len(fingerprinter.entries))
        if index is None:
            return False
        if name not in known:
            known[name] = fingerprinter.packed_entry(index)
        return known[name] == packed
    return False


def _held(step: StepEntry, fingerprinter: Fingerprinter) -> list[int]:
    """Return which values of a record are those of parameters and buffers."""
    found = part_of(step)
    if found is None:
        return []
    part, parts, _ = found
    if parts != fingerprinter.parts:
        fingerprinter.turn(parts)
    return [
        index
        for index, piece in enumerate(fingerprinter.pieces[part])
        if fingerprinter.entries[piece.entry].component in ("parameter", "buffer")
    ]


def _differing(step: StepEntry, now: dict[str, str]) -> Iterator[Issue]:
    unknown = [name for name in now if name not in step.digests]
    if step.is_brief and unknown:
        yield RESUMED_RUN_DIFFERS.issue(
            f"The parameters are those after step {step.step}, which was recorded in brief, as the "
            f"budget wanted it: whether the {', '.join(unknown)} are those of the run as well "
            "cannot be told.",
            step=step.step,
            phase="resume",
            severity=Severity.INFO,
            component="brief",
        )
    for name, recorded in step.digests.items():
        here = now.get(name)
        if name == "rng" and here is not None and here != recorded:
            drawn = drawn_between(here, recorded)
            yield RESUMED_RUN_DIFFERS.issue(
                f"The parameters are those after step {step.step}, but the random generators "
                f"({', '.join(drawn)}) are not: what is drawn from here on is not what the run "
                "would have drawn.",
                step=step.step,
                phase="resume",
                severity=Severity.MEDIUM,
                component="rng",
            )
        elif here != recorded and (
            here is not None or name in ("optimizer", "scheduler", "scaler")
        ):
            state = "is not there" if here is None else "is in another state"
            yield RESUMED_RUN_DIFFERS.issue(
                f"The parameters are those after step {step.step}, but the {name} {state} "
                f"(digest {here or 'none'}, recorded {recorded}): this is not the same run.",
                step=step.step,
                phase="resume",
                component=name,
            )


def _unknown_parameters(steps: list[StepEntry]) -> Issue:
    return RESUMED_RUN_DIFFERS.issue(
        f"The parameters are those of none of the {len(steps)} recorded steps ({steps[0].step} to "
        f"{steps[-1].step}): this run does not go on from there.",
        step=steps[-1].step,
        phase="resume",
        component="parameters",
        recorded_steps=Quantity(value=len(steps), unit="steps"),
    )
