"""``nabla.capture``: record a run for the length of a ``with`` block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar, Unpack

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_core.errors import InputError, UsageError
from nabla_core.issue import Issue
from nabla_core.report import NotEvaluated
from nabla_core.severity import Severity

from ..errors import ReplayError
from ..fingerprints.fingerprinter import Fingerprinter
from ..fingerprints.layout import whole_weight
from ..rules import CAPTURE_DEGRADED
from ..store.entries import StepEntry
from ..wording import amount
from .arguments import batch_of, loss_of, signals_of, step_of, tensors_of
from .contracts import wanted_contracts
from .live import StepBoundary
from .loaders import LoaderBook
from .look import StepFacts
from .notes import Within, between_notes
from .opening import make_fingerprinter, open_writer
from .options import CaptureArguments, CaptureOptions, capture_options
from .pace import Pace
from .parts import Parts, collect_parts
from .place import joined
from .recorder import Recorder
from .resuming import ResumePoint, find_resume_point
from .verdicts import Verdicts

__all__ = ["Capture", "capture"]

_LEAST_PART = 16384  # weight of one part of the state: less is not worth taking turns

ItemT = TypeVar("ItemT")


class Capture:
    """Records a run while it is entered. Errors of recording never reach the training.

    Args:
        parts: the program.
        options: how to record it.
        done: steps that the program has already taken.
        ending: the optimizer that ends a step, where that is known.
        book: knows where the program is in its data, if somebody has followed it so far.
    """

    def __init__(
        self,
        parts: Parts,
        options: CaptureOptions,
        *,
        done: int = 0,
        book: LoaderBook | None = None,
        ending: Optimizer | None = None,
    ) -> None:
        self.options = options
        self._done = done
        self._book = book
        self._ending = ending
        wanted = wanted_contracts(options.contracts, raise_on_failure=options.raise_on_failure)
        self._verdicts = Verdicts(wanted)
        self.resumed: ResumePoint | None = None
        self._parts = parts
        self._recorder: Recorder | None = None
        self._boundary: StepBoundary | None = None
        self._folder: Path | None = None

    # ------------------------------------------------------------------ life
    def __enter__(self) -> Capture:
        fingerprinter = make_fingerprinter(self._parts)
        if self.options.resume is not None:
            self.resumed = find_resume_point(Path(self.options.resume), self._parts)
            for issue in self.resumed.issues:
                self._verdicts.tell(issue)
        try:
            writer = open_writer(self._parts, fingerprinter, self.options, self._verdicts.tell)
        except InputError as error:
            if self.options.resume is not None:
                raise
            self._degraded(str(error), "nothing is recorded")
            return self
        self._folder = writer.folder
        whole_s = self._whole_s(fingerprinter)
        whole_bytes = len(fingerprinter.packed(0))
        most = whole_weight(fingerprinter.extents) // _LEAST_PART
        pace = Pace(self.options.budget, whole_s, whole_bytes, most=most, fixed=joined())
        fingerprinter.turn(pace.parts)
        self._recorder = Recorder(
            self._parts, fingerprinter, writer, pace, self.options, self._book
        )
        last = self._done - 1 if self.resumed is None else self.resumed.step
        self._verdicts.listen(writer.append, writer.folder, writer.rank)
        self._boundary = StepBoundary(self._parts, self._live_step, self._ending)
        self._boundary.computed = self._recorder.book.use
        self._boundary.called = self._recorder.book.touch
        self._boundary.start()  # first: what is replaced later has to lie on top of the instrument
        self._guarded(lambda _: self._verdicts.hold(self._parts, 0 if last is None else last + 1))
        self._guarded(lambda recorder: recorder.start(last, within_step=self._done > 0))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close("closed" if kind is None else f"exception: {kind.__name__}")

    def close(self, reason: str = "closed") -> None:
        """Finish the run; what was recorded is on disk then. Once is enough."""
        boundary = self._boundary
        if boundary is not None:
            self._guarded(lambda _: boundary.flush())
            if boundary.strange:
                self._strange(boundary.strange)
        self._guarded(lambda _: self._verdicts.let_go())
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            self._finish(recorder, reason)
        self._verdicts.close()
        self._by_hand()  # last: what lies on top of the instrument has to go before it

    # ------------------------------------------------------------------ what is known
    @property
    def run_path(self) -> Path:
        """Folder of the run.

        Raises:
            UsageError: the block was not entered.
        """
        if self._folder is None:
            raise UsageError(
                "run_path: there is no run; it is made by `with nabla.capture(...) as rec:`, and "
                "not where the folder cannot be written"
            )
        return self._folder

    @property
    def steps(self) -> int:
        """Steps recorded so far."""
        return 0 if self._recorder is None else self._recorder.count

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Broken contracts, and what went wrong with the capture itself."""
        return self._verdicts.issues

    @property
    def not_evaluated(self) -> tuple[NotEvaluated, ...]:
        """Contracts that could not be judged; complete when the block has ended."""
        return self._verdicts.not_evaluated

    # ------------------------------------------------------------------ the loop
    def record_step(
        self,
        step: int | None = None,
        loss: float | Tensor | None = None,
        batch_indices: Iterable[int] | Tensor | str | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        metrics: Mapping[str, float | Tensor] | None = None,
        data_state: object = None,
    ) -> None:
        """Record a step that is over: the optimizer has acted, the gradients are still there.

        Without this call, steps are recorded when the optimizer's ``step`` returns.

        Args:
            step: number of the step, 0 or more; by default the one after the last.
            loss: its value.
            batch_indices: indices of the samples in the batch, or anything that identifies it.
            tensors: further tensors whose values count as evidence.
            metrics: further numbers, for ``nabla.bisect(run, metric=...)``.
            data_state: state of the data that the program keeps by itself; its digest is recorded.
        """
        boundary = self._boundary
        if boundary is not None:
            before = between_notes(boundary.evaluations, boundary.loads)
            self._guarded(lambda recorder: recorder.begin_by_hand(before))
            self._by_hand()

        def record(recorder: Recorder) -> None:
            if not recorder.briefs:
                self._verdicts.follow()
            number, value, batch = step_of(step), loss_of(loss), batch_of(batch_indices)
            signals = {} if metrics is None else signals_of(metrics)
            is_short = recorder.briefs and not tensors and data_state is None
            if is_short and recorder.record_in_brief(number, value, batch, signals, by_hand=True):
                return
            more = {} if tensors is None else tensors_of(tensors)
            facts = StepFacts(number, value, batch, more, signals, data_state)
            entry = recorder.draft(facts)
            recorder.commit(entry)
            self._verdicts.recorded(entry.step)

        self._guarded(record)

    def batches(self, loader: Iterable[ItemT]) -> Iterator[ItemT]:
        """Hand out the batches of a loader, and record where the program is in them.

        Args:
            loader: a ``DataLoader``, a list, anything that can be iterated over more than once.
        """
        if self._recorder is None:
            return iter(loader)
        return self._recorder.book.batches(loader)

    def checkpoint(self) -> bool:
        """Take a checkpoint of the program as it is now; return whether it was taken.

        It is not while two are being written, nor a second time after the same step.
        """
        taken: list[bool] = []
        self._guarded(lambda recorder: taken.append(recorder.checkpoint(recorder.last_step or 0)))
        return bool(taken) and taken[0]

    # ------------------------------------------------------------------ private
    def _live_step(self, loss: float | None) -> Callable[[], None] | None:
        """Look at a step that the instrument saw; the result writes it."""
        drafted: list[Callable[[], None]] = []

        def look(recorder: Recorder) -> None:
            self._verdicts.follow()
            boundary = self._boundary
            known = boundary is None or boundary.ending is not None
            is_end = known or len(self._parts.optimizers) <= 1
            plain = boundary is None or not (boundary.evaluations or boundary.loads)
            if known and plain and recorder.record_in_brief(None, loss, by_hand=False):
                self._verdicts.recorded(recorder.last_step or 0)
                return
            entry = recorder.draft(StepFacts(loss=loss), is_end=is_end)
            self._verdicts.recorded(entry.step)
            drafted.append(lambda: self._commit_live(entry))

        self._guarded(look)
        return drafted[0] if drafted else None

    def _commit_live(self, entry: StepEntry) -> None:
        boundary = self._boundary
        if boundary is None:
            return
        within = Within(
            ending=boundary.ending, evaluations=boundary.evaluations, loads=boundary.loads
        )
        boundary.evaluations = boundary.loads = 0
        self._guarded(lambda recorder: recorder.commit(entry, within))

    def _by_hand(self) -> None:
        if self._boundary is not None:
            self._boundary.stop()
            self._boundary = None

    def _guarded(self, work: Callable[[Recorder], object]) -> None:
        """Do some recording; what it raises is told once, ends the capture, and goes no further."""
        recorder = self._recorder
        if recorder is None:
            return
        try:
            work(recorder)
        except UsageError as error:
            # the step is lost, and the person is told why; the next one may be right again
            fatal = isinstance(error, ReplayError)
            self._degraded(str(error), "no checkpoint is taken" if fatal else "the step is missing")
            if not fatal:
                recorder.writer.gap(str(error)[:200])
        except Exception as error:
            self._degraded(f"{type(error).__name__}: {error}", "nothing is recorded from here on")
            self._recorder = None
            self._finish(recorder, "failed")
            self._by_hand()

    def _finish(self, recorder: Recorder, reason: str) -> None:
        """Finish the run; a last checkpoint that cannot be taken is told, and goes no further."""
        try:
            recorder.close(reason)
        except Exception as error:
            self._degraded(f"{type(error).__name__}: {error}", "the last checkpoint is missing")

    def _strange(self, steps: int) -> None:
        """Say that some steps were none of those that are captured."""
        self._verdicts.tell(
            CAPTURE_DEGRADED.issue(
                f"{amount(steps, 'step')} of an optimizer that is not captured moved the model's "
                f"parameters (captured are {len(self._parts.optimizers)}): not recorded.",
                severity=Severity.LOW,
                steps=steps,
            )
        )

    def _degraded(self, reason: str, consequence: str) -> None:
        self._verdicts.tell(
            CAPTURE_DEGRADED.issue(
                f"The capture failed after {amount(self.steps, 'step')}: {reason}; {consequence}, "
                "the training goes on.",
                reason=reason,
            )
        )

    @staticmethod
    def _whole_s(fingerprinter: Fingerprinter) -> float:
        """Seconds to hash everything; the first look also brings the tensors near."""
        fingerprinter.packed(0)
        fingerprinter.packed(0)
        return fingerprinter.elapsed_s


def capture(
    model: Module,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    **options: Unpack[CaptureArguments],
) -> Capture:
    """Record a run, so that it can be replayed bit by bit; use the result in a ``with`` statement.

    Args:
        model: the model that is trained.
        optimizer: its optimizer, or several.
        **options: ``scheduler`` (one or several), ``scaler``, ``extra`` (name to anything with a
            state: an average of the weights, a generator), ``loader`` (the training data); further
            the fields of :class:`~nabla_replay.capturing.options.CaptureOptions`: ``root``,
            ``checkpoint_every``, ``budget``, ``trace_modules``, ``resume``, ``contracts``,
            ``raise_on_failure``, ``fsync_s``.

    Raises:
        UsageError: an argument is unknown, of the wrong kind or out of range.
        InputError: on entering: the run cannot be written where it was asked for.

    Example::

        with nabla.capture(model, optimizer, scheduler=scheduler, loader=loader) as rec:
            for step, (x, y) in enumerate(loader):
                loss = train_step(x, y)
                rec.record_step(step=step, loss=loss)
        print(rec.run_path)
    """
    chosen = capture_options(options)
    given = {name: options.get(name) for name in ("scheduler", "scaler", "extra", "loader")}
    return Capture(collect_parts("capture", model, optimizer, **given), chosen)
