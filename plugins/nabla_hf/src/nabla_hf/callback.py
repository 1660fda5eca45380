"""A callback for the Trainer of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import TrainerCallback

from nabla_core.integrations import Attached

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import TrainerControl, TrainerState, TrainingArguments


__all__ = ["NablaCallback", "hf"]


class NablaCallback(Attached, TrainerCallback):  # type: ignore[misc]
    """Watches ``Trainer.train`` from its beginning to its end.

    Losses, gradients, updates and layers are measured in the training itself, before the optimizer
    acts; what the trainer logs from its evaluations is judged besides. A training that is resumed
    is judged from there on, beside the evaluations that its ``trainer_state.json`` holds.

    Args:
        options: arguments of ``nabla.watch``, e.g. ``hints``, ``mute``, ``on_alert``, ``quiet``.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(options)

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
        for entry in state.log_history:  # of the training that is resumed
            self.attachment.row(int(entry.get("step", 0)), _evaluation(entry))

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

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **rest: object,
    ) -> None:
        """Judge the whole training."""
        self.attachment.finish()


def hf(**options: object) -> NablaCallback:
    """Return a callback: ``Trainer(..., callbacks=[nabla.integrations.hf()])``."""
    return NablaCallback(**options)


def _evaluation(logs: dict[str, object]) -> dict[str, object]:
    """The loss of an evaluation; the training loss that is logged is a mean over several steps."""
    return {"val_loss": logs["eval_loss"]} if "eval_loss" in logs else {}
