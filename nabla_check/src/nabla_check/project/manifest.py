"""``[tool.nabla.check]``: the operators of a project, so that one command checks them all.

::

    [tool.nabla.check]
    trials = 100

    [tool.nabla.check.operators."kernels:matmul"]
    reference = "torch:matmul"
    recipes = ["m k", "k n"]
    dtypes = ["float64", "float32"]

    [tool.nabla.check.operators."kernels:matmul".exempt]
    layout = "the kernel refuses strides with a clear error"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from nabla_core.binder import closest
from nabla_core.errors import ConfigError
from nabla_core.options import option

if TYPE_CHECKING:
    from ..fuzzing.fuzz_result import FuzzResult
    from ..result import CheckResult

__all__ = [
    "CheckSettings",
    "Exemption",
    "ManifestOperator",
    "ManifestOutcome",
    "check_manifest",
    "read_operators",
]

Entry = str | int | tuple[str, ...] | Mapping[str, str]
Exempt = Literal["layout", "oracle"]

_KEYS = ("reference", "recipes", "dtypes", "layouts", "trials", "exempt")
_EXEMPT: tuple[Exempt, ...] = ("layout", "oracle")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Keys of ``[tool.nabla.check]``."""

    trials: int = option(100, "trials per operator of the manifest, 0 for none", minimum=0)
    seed: int = option(0, "seed of the manifest's checks")
    operators: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """A test that an operator need not pass, and the reason that reports show."""

    what: Exempt
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOperator:
    """One operator of the project.

    Attributes:
        target: ``module:function`` or ``file.py:function``.
        reference: the same for its truth, if any.
        recipes: symbols of the axes of every input, e.g. ``("m k", "k n")``; without any, the
            function or list called ``inputs`` beside the operator is used.
        dtypes: names of the dtypes to draw.
        layouts: names of the layouts to draw.
        trials: cases to fuzz, 0 for none.
        exempt: what it need not pass.
    """

    target: str
    reference: str | None = None
    recipes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float64",)
    layouts: tuple[str, ...] = ("contiguous", "transposed", "strided", "sliced", "expanded")
    trials: int = 100
    exempt: tuple[Exemption, ...] = ()

    def reason(self, what: Exempt) -> str | None:
        """Return why the operator need not pass ``what``, ``None`` when it must."""
        return next((entry.reason for entry in self.exempt if entry.what == what), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOutcome:
    """What the manifest's check of one operator found.

    Attributes:
        operator: the entry.
        check: of one set of inputs.
        fuzz: of many drawn ones, where there are recipes and trials.
    """

    operator: ManifestOperator
    check: CheckResult
    fuzz: FuzzResult | None = None

    @property
    def passed(self) -> bool:
        """Whether both passed."""
        return self.check.passed and (self.fuzz is None or self.fuzz.passed)


def read_operators(settings: CheckSettings) -> tuple[ManifestOperator, ...]:
    """Return the entries of the manifest.

    Raises:
        ConfigError: any key or value is wrong, or an exemption has no reason; all at once.
    """
    mistakes: list[str] = []
    found = [
        _read(target, entry, settings.trials, mistakes)
        for target, entry in settings.operators.items()
    ]
    if mistakes:
        raise ConfigError(*mistakes)
    return tuple(found)


def check_manifest(
    operators: tuple[ManifestOperator, ...], seed: int = 0
) -> Iterator[ManifestOutcome]:
    """Check and fuzz every operator; exemptions end up as *not evaluated* with their reason.

    Raises:
        UsageError: an operator has neither recipes nor ``inputs`` beside it.
        InputError: an operator or a reference cannot be imported.
    """
    from .manifest_run import run_entry

    for entry in operators:
        yield run_entry(entry, seed)


def _read(
    target: str, entry: Mapping[str, Entry], trials: int, mistakes: list[str]
) -> ManifestOperator:
    place = f'[tool.nabla.check.operators."{target}"]'
    for key in entry:
        if key not in _KEYS:
            mistakes.append(f"{place} {key}: unknown key{closest(key, _KEYS)}")
    reference = entry.get("reference")
    if reference is not None and not isinstance(reference, str):
        mistakes.append(f"{place} reference = {reference!r}: needs text like module:function")
    own_trials = entry.get("trials", trials)
    if not isinstance(own_trials, int) or own_trials < 0:
        mistakes.append(f"{place} trials = {own_trials!r}: needs a whole number, 0 or more")
        own_trials = 0
    usual = ManifestOperator(target=target)
    return ManifestOperator(
        target=target,
        reference=reference if isinstance(reference, str) else None,
        recipes=_names(entry, "recipes", (), place, mistakes),
        dtypes=_names(entry, "dtypes", usual.dtypes, place, mistakes),
        layouts=_names(entry, "layouts", usual.layouts, place, mistakes),
        trials=own_trials,
        exempt=_exemptions(entry.get("exempt", {}), place, mistakes),
    )


def _names(
    entry: Mapping[str, Entry],
    key: str,
    usual: tuple[str, ...],
    place: str,
    mistakes: list[str],
) -> tuple[str, ...]:
    value = entry.get(key, usual)
    if isinstance(value, str):
        return (value,)
    if isinstance(value, tuple):
        return value
    mistakes.append(f"{place} {key} = {value!r}: needs a list of texts")
    return usual


def _exemptions(value: Entry, place: str, mistakes: list[str]) -> tuple[Exemption, ...]:
    if not isinstance(value, Mapping):
        mistakes.append(f'{place} exempt = {value!r}: write exempt.layout = "the reason"')
        return ()
    found = []
    for key, reason in value.items():
        what = next((name for name in _EXEMPT if name == key), None)
        if what is None:
            mistakes.append(f"{place} exempt.{key}: choose layout or oracle{closest(key, _EXEMPT)}")
        elif not reason.strip():
            mistakes.append(f"{place} exempt.{key}: needs a reason; it is shown in reports")
        else:
            found.append(Exemption(what=what, reason=reason.strip()))
    return tuple(found)
