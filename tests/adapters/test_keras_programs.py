"""Healthy programs of many kinds are silent under the callback of Keras."""

import pytest

pytest.importorskip("keras", reason="keras is not installed")

import keras
import torch

import nabla


def entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class ByHand(keras.Model):
    """Its own training step; its weights are built by the first batch."""

    def __init__(self):
        super().__init__()
        self.body, self.head = keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)

    def call(self, x, training=False):
        return self.head(self.body(x))

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        loss.backward()
        weights = list(self.trainable_weights)
        with torch.no_grad():
            self.optimizer.apply([weight.value.grad for weight in weights], weights)
        return {"loss": loss.detach()}


def sequential(*layers):
    return keras.Sequential([keras.layers.Input((8,)), *layers, keras.layers.Dense(3)])


def own_step():
    model = ByHand()
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=entropy())
    return model, {}


def eager_with_metrics():
    model = sequential(keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.2))
    model.compile(keras.optimizers.Adam(1e-2), entropy(), metrics=["accuracy"], run_eagerly=True)
    return model, {"validation_split": 0.2}


def two_losses():
    given = keras.layers.Input((8,))
    hidden = keras.layers.Dense(16, activation="gelu")(given)
    outputs = {name: keras.layers.Dense(3, name=name)(hidden) for name in ("first", "second")}
    model = keras.Model(given, outputs)
    losses = {"first": entropy(), "second": entropy()}
    model.compile(keras.optimizers.RMSprop(1e-3), losses, loss_weights={"first": 1, "second": 0.3})
    return model, {"names": ("first", "second")}


def accumulated_and_averaged():
    normal = keras.layers.BatchNormalization()
    model = sequential(keras.layers.Dense(16), normal, keras.layers.Activation("relu"))
    optimizer = keras.optimizers.AdamW(
        1e-2, gradient_accumulation_steps=4, use_ema=True, global_clipnorm=1.0
    )
    model.compile(optimizer=optimizer, loss=entropy())
    return model, {}


def scaled_half_precision():
    half = keras.dtype_policies.DTypePolicy("mixed_float16")
    wide = keras.layers.Activation("linear", dtype="float32")
    model = sequential(keras.layers.Dense(16, activation="relu", dtype=half), wide)
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-2)), entropy())
    return model, {}


def scheduled():
    model = sequential(keras.layers.Dense(16, activation="relu", kernel_regularizer="l2"))
    rate = keras.optimizers.schedules.CosineDecay(1e-2, 40)
    model.compile(optimizer=keras.optimizers.Nadam(rate), loss=entropy())
    return model, {}


PROGRAMS = [
    own_step,
    eager_with_metrics,
    two_losses,
    accumulated_and_averaged,
    scaled_half_precision,
    scheduled,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_healthy_program_is_silent(program, case, verdicts):
    data = case("none")
    keras.utils.set_random_seed(0)
    model, options = program()
    x, y = data.x.numpy(), data.y.numpy()
    target = dict.fromkeys(options.pop("names", ()), y) or y
    callback = nabla.integrations.keras(quiet=True)

    model.fit(x, target, epochs=3, batch_size=16, verbose=0, callbacks=[callback], **options)

    assert verdicts(callback.report) == set()
    assert callback.report.run.steps >= (7 if program is accumulated_and_averaged else 24)
    assert callback.report.problems == ()


@pytest.mark.parametrize("row", [100, 84], ids=["first pass of its step", "last pass"])
def test_the_batch_of_each_pass_of_a_step_is_named(row, case):
    data = case("none")
    data.x[row, 3] = float("inf")
    model = sequential(keras.layers.Dense(16, activation="relu"))
    model.compile(keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2), entropy())
    callback = nabla.integrations.keras(quiet=True)
    given = {"epochs": 1, "batch_size": 16, "shuffle": False, "verbose": 0}

    model.fit(data.x.numpy(), data.y.numpy(), callbacks=[callback], **given)

    (issue,) = [one for one in callback.report.issues if one.rule.startswith("NUM")]
    assert (issue.rule, issue.step, issue.where.sample) == ("NUM104", row // 32, 4)


def test_the_state_of_a_generator_is_no_weight(case):
    """Keras keeps it as a parameter of integers, next to which each step would look tiny."""
    data = case("none")
    model, _ = eager_with_metrics()
    callback = nabla.integrations.keras(quiet=True)

    model.fit(data.x.numpy(), data.y.numpy(), epochs=1, verbose=0, callbacks=[callback])

    plots = [plot for section in callback.report.sections for plot in section.plots]
    (updates,) = [plot for plot in plots if plot.title == "Update ratio"]
    assert min(updates.series[0].values) > 1e-4


def test_rules_that_would_need_the_layers_are_said_not_to_be_decided(case):
    data = case("none")
    model, _ = scheduled()
    callback = nabla.integrations.keras(quiet=True)

    model.fit(data.x.numpy(), data.y.numpy(), epochs=1, verbose=0, callbacks=[callback])

    reasons = {one.rule: one.reason for one in callback.report.not_evaluated}
    assert {"RUN401", "RUN402", "RUN302", "CAU104"} <= set(reasons)
    assert "layers of Keras" in reasons["RUN401"]


def test_a_second_training_with_the_same_callback_has_its_own_report(case, verdicts):
    data = case("none")
    model, _ = scheduled()
    callback = nabla.integrations.keras(quiet=True)
    data = (data.x.numpy(), data.y.numpy())

    model.fit(*data, epochs=1, verbose=0, callbacks=[callback])
    first = callback.report
    model.fit(*data, epochs=2, verbose=0, callbacks=[callback])

    assert first.run.steps == 5
    assert callback.report.run.steps == 10


def test_a_training_that_ended_in_an_exception_is_let_go(case):
    class Ends(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 3:
                raise RuntimeError("the user's own")

    data = case("none")
    model, _ = scheduled()
    rows = (data.x.numpy(), data.y.numpy())
    callback = nabla.integrations.keras(quiet=True)

    with pytest.raises(RuntimeError, match="the user's own"):
        model.fit(*rows, batch_size=16, verbose=0, callbacks=[callback, Ends()])
    first = callback.attachment.finish()
    model.fit(*rows, batch_size=16, epochs=1, verbose=0, callbacks=[callback])

    assert first.run.steps == 3
    assert callback.report.run.steps == 10
    assert "apply" not in vars(model.optimizer)
