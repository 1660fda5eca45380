"""AUD601 to 603: what a program restores from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.checkpoint_parts import PartFacts
from nabla_guard.families.checkpoints import CheckpointFacts, CheckpointWatch
from nabla_guard.families.state_dicts import ModuleLoad

from .places import where
from .rules.resume import CHECKPOINT_KEYS_IGNORED, RESUME_LOST_STATE, RESUME_UNTIED
from .streak import CONSECUTIVE
from .watches.discarded_loads import DiscardedLoad, DiscardedLoadWatch

__all__ = ["RestoreDetector", "judge_checkpoint", "judge_load"]


class RestoreDetector:
    """Judges what was loaded, at the next step or at the end."""

    rules = (RESUME_LOST_STATE, CHECKPOINT_KEYS_IGNORED, RESUME_UNTIED)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._watch = facts.gather(CheckpointWatch)
        self._discarded = facts.gather(DiscardedLoadWatch)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what was loaded since the last step."""
        if not (self._watch.loads or self._watch.settled or self._discarded.open):
            return ()
        return [*self._judge(record.step), *self._vain(record.step)]

    def finish(self) -> Iterable[Issue]:
        """Judge what was loaded after the last step."""
        return list(self._judge(None))

    def _vain(self, step: int) -> Iterator[Issue]:
        """What was loaded into a module that is gone, while its like was trained from the start."""
        for load in tuple(self._discarded.open):
            if load.compared and load.is_gone:
                self._discarded.open.remove(load)
                yield _discarded_issue(load, step)

    def _judge(self, step: int | None) -> Iterator[Issue]:
        loads, self._watch.loads = self._watch.loads, []
        settled, self._watch.settled = self._watch.settled, []
        for load in loads:
            yield from judge_load(load, step)
        for checkpoint in settled:
            yield from judge_checkpoint(checkpoint, step)


def judge_load(load: ModuleLoad, step: int | None) -> Iterator[Issue]:
    """Yield the faults of one ``load_state_dict``."""
    if not load.strict and load.missing and load.given:
        one_prefix = len({_prefix(*pair) for pair in load.renamed}) == 1
        complete = len(load.renamed) == len(load.missing) or not load.applied
        renamed = load.renamed and one_prefix and complete
        if not load.applied or renamed or 2 * len(load.moved) > load.wanted:
            yield _ignored(load, step)
    if load.own:
        yield from _own(load, step)
    if load.untied:
        yield _untied(load, load.untied[0], "are two parameters since then", Severity.HIGH, step)
    elif load.conflicting:
        text = "have different values in the state dict, and the second one won"
        yield _untied(load, load.conflicting[0], text, Severity.HIGH, step)
    elif load.split:
        text = "share memory in the state dict and are two parameters of the model"
        yield _untied(load, load.split[0], text, Severity.MEDIUM, step)


def _own(load: ModuleLoad, step: int | None) -> Iterator[Issue]:
    """A state dict of the module's own tensors, from which nothing can be restored."""
    if load.overwritten:
        story = (
            "state_dict() returned them without a copy (limit 0), and another load_state_dict has "
            "overwritten them since: nothing is restored"
        )
        yield _own_issue(load, story, Severity.HIGH, step)
    elif load.kept_steps:
        story = (
            f"state_dict() returned them {load.kept_steps} steps earlier without a copy (limit 0), "
            "and training has changed them since: nothing is restored"
        )
        yield _own_issue(load, story, Severity.HIGH, step)
    elif load.hidden and len({_prefix(*pair) for pair in load.hidden}) == 1:
        wanted, found = load.hidden[0]
        yield CHECKPOINT_KEYS_IGNORED.issue(
            f"load_state_dict was given the {load.own} tensors that {load.module} already has: "
            f"nothing of the loaded file was used (limit {load.wanted} entries), where all are "
            f"under another prefix, e.g. {found} for {wanted}.",
            step=step,
            where=where(load.place, module=load.module),
            phase="resume",
            applied=Quantity(value=0, unit="entries", limit=load.wanted),
            renamed=len(load.hidden),
        )
    elif load.repeats >= CONSECUTIVE:
        story = (
            f"{load.repeats} times in a row (limit {CONSECUTIVE}), with steps in between: source "
            "and target of the copy are one module"
        )
        yield _own_issue(load, story, Severity.MEDIUM, step)


def _own_issue(load: ModuleLoad, story: str, severity: Severity, step: int | None) -> Issue:
    return RESUME_LOST_STATE.issue(
        f"load_state_dict was given the {load.own} tensors that {load.module} already has: "
        f"{story}.",
        step=step,
        where=where(load.place, module=load.module),
        phase="resume",
        severity=severity,
        component="model",
        own_entries=Quantity(value=load.own, unit="entries", limit=0),
    )


def _prefix(wanted: str, found: str) -> str:
    longer, shorter = (wanted, found) if len(wanted) > len(found) else (found, wanted)
    return longer.removesuffix(shorter)


def _ignored(load: ModuleLoad, step: int | None) -> Issue:
    pairs = load.renamed or load.moved
    if pairs:
        wanted, found = pairs[0]
        story = (
            f"{len(pairs)} of the {len(load.missing)} missing ones are there under another "
            f"prefix, e.g. {found} for {wanted}"
        )
    else:
        story = "no name matches"
    return CHECKPOINT_KEYS_IGNORED.issue(
        f"load_state_dict(strict=False) used {load.applied} of {load.given} entries for the "
        f"{load.wanted} that {load.module} has: {story}.",
        step=step,
        where=where(load.place, module=load.module),
        phase="resume",
        applied=Quantity(value=load.applied, unit="entries", limit=load.wanted),
        renamed=len(pairs),
    )


def _discarded_issue(load: DiscardedLoad, step: int | None) -> Issue:
    return CHECKPOINT_KEYS_IGNORED.issue(
        f"load_state_dict filled the {load.parameters} parameters of a {load.module} that was "
        "never called and is gone; another module of the same names and shapes is trained, and "
        f"{load.compared} parameters of it began with other, random values (limit 0).",
        step=step,
        where=where(load.place, module=load.module),
        phase="resume",
        severity=Severity.MEDIUM,
        applied=Quantity(value=0, unit="entries", limit=load.parameters),
        random=load.compared,
    )


def _untied(
    load: ModuleLoad, pair: tuple[str, str], text: str, severity: Severity, step: int | None
) -> Issue:
    return RESUME_UNTIED.issue(
        f"load_state_dict of {load.module}: {pair[0]} and {pair[1]} {text}.",
        step=step,
        where=where(load.place, module=load.module),
        phase="resume",
        severity=severity,
        first=pair[0],
        second=pair[1],
    )


def judge_checkpoint(checkpoint: CheckpointFacts, step: int | None) -> Iterator[Issue]:
    """Yield what a resumed run did not restore."""
    for part in checkpoint.parts:
        if not part.restored or part.remade:
            yield from _lost(checkpoint, part, step)


def _lost(checkpoint: CheckpointFacts, part: PartFacts, step: int | None) -> Iterator[Issue]:
    likely = False
    if part.kind == "optimizer":
        moments = f"moments of {len(part.shapes)} parameters"
        certain = part.fits is True
        tail = "start from zero" if certain else "do not fit, or its settings differ"
        text = f"The checkpoint holds the {moments} ({part.key!r}), the model was restored, the "
        text += "optimizer was " + ("made anew after it was restored" if part.remade else "not")
        text += f": after {checkpoint.steps_after} steps its moments {tail}."
    elif part.kind == "scheduler" and part.behind:
        certain = _is_resume(checkpoint)
        text = f"The checkpoint holds a schedule at position {part.position} ({part.key!r}); the "
        text += "model was restored, the schedule started over."
    elif part.kind == "scaler":
        certain, likely = False, part.behind and _is_resume(checkpoint)
        text = f"The checkpoint holds a loss scale of {part.scale:g} ({part.key!r}) that was not "
        text += "restored" + ("; the scaler in use has another." if part.behind else ".")
    else:
        return
    yield RESUME_LOST_STATE.issue(
        text,
        step=step,
        where=Location(
            op=part.kind,
            file=checkpoint.place.file if checkpoint.place is not None else None,
            line=checkpoint.place.line if checkpoint.place is not None else None,
        ),
        phase="resume",
        severity=Severity.HIGH if certain else Severity.MEDIUM if likely else Severity.INFO,
        component=part.kind,
        steps_after=Quantity(value=checkpoint.steps_after, unit="steps", limit=3),
    )


def _is_resume(checkpoint: CheckpointFacts) -> bool:
    """Whether the optimizer goes on too: a fine-tuning takes the weights only."""
    return any(
        other.kind == "optimizer" and (other.restored or other.fits is True)
        for other in checkpoint.parts
    )
