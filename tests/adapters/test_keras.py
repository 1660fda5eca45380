import pytest

pytest.importorskip("keras", reason="keras is not installed")

import keras
import torch

import nabla

# Keras has its own optimizers and losses: what a plain loop can plant there has no like here
ELSEWHERE = {"left_out", "broadcast"}


@pytest.fixture
def train():
    def run(case, callbacks):
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.layers.Input((8,)), keras.layers.TorchModuleWrapper(case.net)]
        )
        model.compile(
            optimizer=keras.optimizers.SGD(case.net.rate),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        data = (case.x.numpy(), case.y.numpy())
        model.fit(
            *data,
            epochs=5,
            batch_size=16,
            shuffle=True,
            validation_data=data,
            callbacks=callbacks,
            verbose=0,
        )
        return model

    return run


def test_the_verdict_is_that_of_the_plain_loop(case, by_hand, train, verdicts, fault, rule):
    if fault in ELSEWHERE:
        pytest.skip("Keras has no such line")
    alone = verdicts(by_hand(case(fault)))
    callback = nabla.integrations.keras(quiet=True)
    train(case(fault), [callback])

    assert rule in alone
    assert rule in verdicts(callback.report)


def test_a_healthy_training_is_silent_and_unchanged(case, train, verdicts):
    callback = nabla.integrations.keras(quiet=True)
    watched, again = train(case("none"), [callback]), train(case("none"), [])

    assert verdicts(callback.report) == set()
    assert callback.report.run.steps == 50
    pairs = zip(watched.weights, again.weights, strict=True)
    assert all(torch.equal(one.value, other.value) for one, other in pairs)


def test_the_optimizer_gets_its_own_method_back(case, train):
    model = train(case("none"), [nabla.integrations.keras(quiet=True)])

    assert "apply" not in vars(model.optimizer)


def test_callbacks_are_still_called_beside_the_training():
    callback = type(nabla.integrations.keras(quiet=True))

    assert callback.on_train_batch_end is keras.callbacks.Callback.on_train_batch_end
