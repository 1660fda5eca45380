"""A callback for the Trainer of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import TrainerCallback

from nabla_core.integrations import Attached
from nabla_core.session import current_session

from .ending import HearsOfExceptions, tell_of_exceptions
from .resuming import Resumed

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import TrainerControl, TrainerState, TrainingArguments


__all__ = ["NablaCallback", "hf"]

_LOST_STATE = "AUD601"  # of nabla-audit; without it nobody has asked


class NablaCallback(Attached, HearsOfExceptions, TrainerCallback):  # type: ignore[misc]
    """Watches ``Trainer.train`` from its beginning to its end, also when it ends in an exception.

    Losses, gradients, updates and layers are measured in the training itself, before the optimizer
    acts; what the trainer logs from its evaluations is judged besides. A training that is resumed
    is judged from there on, beside the evaluations that its ``trainer_state.json`` holds, and
    AUD601 says where the optimizer was not restored.

    Args:
        options: arguments of ``nabla.watch``, e.g. ``hints``, ``mute``, ``on_alert``, ``quiet``.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(options)
        self._resumed: Resumed | None = None
        tell_of_exceptions()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Module | None = None,
        **rest: object,
    ) -> None:
        """Begin to watch the model that is trained."""
        if model is not None:
            self.attachment.start(model)
        parts = rest.get("optimizer"), rest.get("lr_scheduler")
        self._resumed = Resumed.of(state.global_step, *parts)
        for entry in state.log_history:  # of the training that is resumed
            self.attachment.row(int(entry.get("step", 0)), _evaluation(entry))

    def on_step_end(self, *given: object, optimizer: object = None, **rest: object) -> None:
        """Judge, after the first step of a resumed training, what it did not get back."""
        resumed, self._resumed = self._resumed, None
        session = None if resumed is None else current_session()
        if resumed is None or session is None:
            return
        rule = session.host.registry.get(_LOST_STATE)
        issue = None if rule is None else resumed.issue(rule, optimizer)
        if issue is not None:
            session.add(issue)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, object] | None = None,
        **rest: object,
    ) -> None:
        """Judge what only the trainer knows."""
        self.attachment.row(state.global_step, _evaluation(logs or {}))

    def on_train_end(self, *given: object, **rest: object) -> None:
        """Judge the whole training."""
        self.attachment.finish()

    def on_exception(self) -> None:
        """Let go of torch, and judge what was seen of a training that raised."""
        self.attachment.finish()


def hf(**options: object) -> NablaCallback:
    """Return a callback: ``Trainer(..., callbacks=[nabla.integrations.hf()])``."""
    return NablaCallback(**options)


def _evaluation(logs: dict[str, object]) -> dict[str, object]:
    """The loss of an evaluation; the training loss that is logged is a mean over several steps."""
    return {"val_loss": logs["eval_loss"]} if "eval_loss" in logs else {}
