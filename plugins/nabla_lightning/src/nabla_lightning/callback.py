"""A callback for the Trainer of Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch import Callback

from nabla_core.integrations import Attached

from .stepping import ClosuresFirst

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


__all__ = ["NablaCallback", "lightning"]

_VALIDATION = ("val_loss", "valid_loss", "validation_loss", "val/loss", "valid/loss")


class NablaCallback(Attached, Callback):  # type: ignore[misc]
    """Watches ``Trainer.fit`` from its beginning to its end, also when it ends in an exception.

    Losses, gradients, updates and layers are measured in the training itself, before the optimizer
    acts; the validation loss that the module logs is judged besides.

    Args:
        validation_loss: name under which the module logs it; by default the usual ones.
        options: arguments of ``nabla.watch``, e.g. ``hints``, ``mute``, ``on_alert``, ``quiet``.
    """

    def __init__(self, validation_loss: str | None = None, **options: object) -> None:
        super().__init__(options)
        self._names = _VALIDATION if validation_loss is None else (validation_loss,)
        self._closures: ClosuresFirst | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch the module that is trained."""
        self.attachment.start(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let each step be seen before its optimizer acts."""
        self._closures = ClosuresFirst(trainer.optimizers)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Judge the validation loss; the sanity check before the training is none."""
        if trainer.sanity_checking:
            return
        logged = trainer.callback_metrics
        found = next((logged[name] for name in self._names if name in logged), None)
        self.attachment.row(trainer.global_step, {"val_loss": found})

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Judge the whole training."""
        self._finish()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Let go of torch, and judge what was seen."""
        self._finish()

    def _finish(self) -> None:
        if self._closures is not None:
            self._closures.release()
            self._closures = None
        self.attachment.finish()


def lightning(validation_loss: str | None = None, **options: object) -> NablaCallback:
    """Return a callback: ``Trainer(..., callbacks=[nabla.integrations.lightning()])``."""
    return NablaCallback(validation_loss, **options)
