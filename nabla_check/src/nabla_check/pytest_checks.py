"""What the fixture ``nabla_check`` is; imported when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Unpack

import pytest

from nabla_core.severity import Severity

from .check_operator import operator
from .fuzzing.fuzz_operator import fuzz
from .fuzzing.fuzz_options import FuzzKeywords
from .fuzzing.fuzz_result import FuzzResult
from .options import OperatorKeywords
from .pytest_session import session_of
from .result import CheckResult

__all__ = ["NablaCheck"]


class NablaCheck:
    """Checks operators inside a test and fails it with the verdict. The fixture ``nabla_check``.

    Args:
        config: of the pytest run.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(
        self,
        candidate: Callable[..., object],
        inputs: object,
        *,
        reference: Callable[..., object] | None = None,
        seed: int | None = None,
        **options: Unpack[OperatorKeywords],
    ) -> CheckResult:
        """Check one operator; see :func:`nabla_check.operator`.

        Raises:
            Failed: an issue is at or above ``nabla_fail_on``.
        """
        with session_of(self._config):
            result = operator(
                candidate=candidate, inputs=inputs, reference=reference, seed=seed, **options
            )
        judged = replace(result, fail_on=_fail_on(self._config))
        _fail_unless(judged.passed, judged.format)
        return judged

    def fuzz(
        self,
        candidate: Callable[..., object],
        inputs: Sequence[object],
        *,
        reference: Callable[..., object] | None = None,
        trials: int = 100,
        seed: int = 0,
        **options: Unpack[FuzzKeywords],
    ) -> FuzzResult:
        """Fuzz one operator; see :func:`nabla_check.fuzz`.

        Raises:
            Failed: an issue is at or above ``nabla_fail_on``, or no case could be compared.
        """
        options.setdefault("show_progress", False)
        with session_of(self._config):
            result = fuzz(
                candidate=candidate,
                inputs=inputs,
                reference=reference,
                trials=trials,
                seed=seed,
                **options,
            )
        judged = replace(result, fail_on=_fail_on(self._config))
        _fail_unless(judged.passed and judged.trials > 0, judged.format)
        return judged


def _fail_on(config: pytest.Config) -> Severity:
    try:
        return Severity.parse(str(config.getini("nabla_fail_on")))
    except ValueError as error:
        raise pytest.UsageError(f"nabla_fail_on: {error}") from error


def _fail_unless(passed: bool, text: Callable[[], str]) -> None:
    __tracebackhide__ = True
    if not passed:
        pytest.fail(text(), pytrace=False)
