"""A callback for ``model.fit`` of Keras with the torch backend."""

from __future__ import annotations

from collections.abc import Mapping

from nabla_core.errors import UsageError
from nabla_core.integrations import Attached
from nabla_core.session import current_session

try:
    import keras as framework

    from .stepping import AsTorchOptimizer
except ModuleNotFoundError as error:  # Keras imports the framework of its backend at once
    raise UsageError(
        f"integrations.keras(): Keras cannot be imported ({error}); set KERAS_BACKEND=torch before"
    ) from error

__all__ = ["NablaCallback", "keras"]

_BY_LAYERS = frozenset(("layer_history", "layer_norms"))


class NablaCallback(Attached, framework.callbacks.Callback):  # type: ignore[misc]
    """Watches ``model.fit`` from its beginning to its end.

    Losses, gradients, updates and layers are measured in the training itself; what Keras shows
    during an epoch is a running mean and is left out. The validation loss is judged besides. No
    method for the end of a batch is overridden: with one, Keras would no longer call callbacks
    beside the training.

    Args:
        options: arguments of ``nabla.watch``, e.g. ``hints``, ``mute``, ``on_alert``, ``quiet``.

    Raises:
        UsageError: Keras runs with another backend than torch.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(options)
        if framework.backend.backend() != "torch":
            raise UsageError(
                f"integrations.keras(): Keras runs with {framework.backend.backend()}; set "
                "KERAS_BACKEND=torch before Keras is imported"
            )
        self._optimizer: AsTorchOptimizer | None = None

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Begin to watch the model that is trained."""
        self._release()  # a training that ended in an exception has no end
        self._optimizer = AsTorchOptimizer.of(self.model)
        self.attachment.start(self.model, [self._optimizer])
        _say_what_is_not_seen()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Judge the validation loss."""
        steps = 0 if self._optimizer is None else self._optimizer.steps
        self.attachment.row(steps, {"val_loss": (logs or {}).get("val_loss")})

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Judge the whole training."""
        self._release()
        self.attachment.finish()

    def _release(self) -> None:
        if self._optimizer is not None:
            self._optimizer.release()
            self._optimizer = None


def _say_what_is_not_seen() -> None:
    """Without it a dead layer of Keras would look as if its rule had passed it."""
    session = current_session()
    if session is not None:
        for rule in session.host.registry:
            if _BY_LAYERS.intersection(rule.needs):
                session.undecide(rule, "layers of Keras are no modules for torch")


def keras(**options: object) -> NablaCallback:
    """Return a callback: ``model.fit(..., callbacks=[nabla.integrations.keras()])``."""
    return NablaCallback(**options)
