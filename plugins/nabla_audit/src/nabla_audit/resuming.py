"""``nabla.audit.resume``: is a resumed run in the state in which it was stopped?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Module

from nabla_core.errors import UsageError
from nabla_core.issue import Issue, Location, Quantity
from nabla_core.result import ResultMixin
from nabla_core.session import current_session
from nabla_core.severity import Severity

from .rules.resume import RESUME_DATA_MAPPING_CHANGED, RESUME_LOST_STATE, RESUME_UNTIED

__all__ = ["ResumeResult", "resume"]

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeResult(ResultMixin):
    """What a resume lost.

    Attributes:
        issues: one per component and fault.
        components: names of the components that were compared.
        entries: single values and tensors that were compared.
        fail_on: severity from which an issue fails the comparison.
    """

    issues: tuple[Issue, ...]
    components: tuple[str, ...]
    entries: int
    fail_on: Severity = Severity.LOW


def resume(before: Mapping[str, object], after: Mapping[str, object]) -> ResumeResult:
    """Compare the components of a run before it was stopped and after it was resumed, bit by bit.

    Args:
        before: component by name: a module, optimizer, scheduler or anything else with
            ``state_dict()``, such a state dict, a tensor (a random state), or nested mappings and
            sequences of numbers and strings (a vocabulary, the order of a sampler).
        after: the same names after the resume.

    Returns:
        The result: AUD601 for state that is missing or different, AUD603 for parameters that are
        no longer tied, AUD604 for a mapping of names that changed.

    Raises:
        UsageError: ``before`` is empty or no mapping.

    Example::

        nabla.audit.resume(
            {"model": model, "optimizer": optimizer, "words": vocabulary},
            {"model": model_2, "optimizer": optimizer_2, "words": vocabulary_2},
        ).raise_if_failed()
    """
    if not isinstance(before, Mapping) or not before:
        raise UsageError(
            "resume(before, after): before needs at least one component, "
            'e.g. {"optimizer": optimizer}'
        )
    issues: list[Issue] = []
    entries = 0
    for name, component in before.items():
        old = dict(_leaves(_state_of(component)))
        entries += len(old)
        issues += _judge(name, component, old, after)
    session = current_session()
    if session is not None:
        for issue in issues:
            session.add(issue)
    return ResumeResult(issues=tuple(issues), components=tuple(before), entries=entries)


def _judge(
    name: str, component: object, old: dict[str, object], after: Mapping[str, object]
) -> Iterator[Issue]:
    if name not in after:
        yield _lost(name, f"{name} is missing after the resume ({len(old)} entries).", len(old))
        return
    resumed = after[name]
    if isinstance(component, Module) and isinstance(resumed, Module):
        yield from _untied(name, component, resumed)
    new = dict(_leaves(_state_of(resumed)))
    changed = [path for path in old if path not in new or not _equal(old[path], new[path])]
    extra = [path for path in new if path not in old]
    if not changed and not extra:
        return
    shown = ", ".join((changed + extra)[:_NAMED])
    if _is_naming(component):
        yield RESUME_DATA_MAPPING_CHANGED.issue(
            f"{len(changed) + len(extra)} of {len(old)} entries of {name} changed ({shown}): what "
            "was learnt belongs to other inputs or classes now.",
            where=Location(op=name),
            phase="resume",
            changed=Quantity(value=len(changed) + len(extra), unit="entries", limit=0),
        )
        return
    text = f"{len(changed)} of {len(old)} entries of {name} differ after the resume"
    text += f", {len(extra)} are new" if extra else ""
    yield _lost(name, f"{text}: {shown}.", len(changed) + len(extra))


def _lost(name: str, message: str, count: int) -> Issue:
    return RESUME_LOST_STATE.issue(
        message,
        where=Location(op=name),
        phase="resume",
        component=name,
        differing=Quantity(value=count, unit="entries", limit=0),
    )


def _untied(name: str, before: Module, after: Module) -> Iterator[Issue]:
    now = set(_ties(after))
    for first, second in _ties(before):
        if (first, second) not in now:
            yield RESUME_UNTIED.issue(
                f"{first} and {second} of {name} were one parameter and are two after the resume.",
                where=Location(module=name, parameter=first),
                phase="resume",
                first=first,
                second=second,
            )


def _ties(module: Module) -> Iterator[tuple[str, str]]:
    names: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        first = names.setdefault(id(parameter), name)
        if first != name:
            yield first, name


def _state_of(component: object) -> object:
    make = getattr(component, "state_dict", None)
    return make() if callable(make) else component


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def _equal(old: object, new: object) -> bool:
    """Whether two leaves are the same; NaN equals NaN."""
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        if old.shape != new.shape or old.dtype != new.dtype:
            return False
        other = new.to(old.device)
        return bool(((old == other) | ((old != old) & (other != other))).all())
    if isinstance(old, Tensor) or isinstance(new, Tensor):
        return False
    same: object = type(old) is type(new) and (old == new or (old != old and new != new))
    return bool(same)


def _is_naming(component: object) -> bool:
    """Whether it maps names to numbers or lists names: a vocabulary, the order of classes."""
    if isinstance(component, Mapping):
        pairs = list(component.items())
        named = all(isinstance(key, str) and isinstance(value, int) for key, value in pairs)
        listed = all(isinstance(key, int) and isinstance(value, str) for key, value in pairs)
        return bool(pairs) and (named or listed) and "last_epoch" not in component
    if isinstance(component, (list, tuple)):
        return bool(component) and all(isinstance(item, str) for item in component)
    return False
