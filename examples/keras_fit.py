"""model.fit of Keras, with the torch backend, over data with one missing value.

pip install keras
python examples/keras_fit.py
"""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy

import nabla


def main():
    keras.utils.set_random_seed(0)
    draw = numpy.random.default_rng(0)
    x = draw.normal(size=(160, 8)).astype("float32")
    labels = (x[:, 0] > 0).astype("int64") + (x[:, 1] > 1)
    x[70, 3] = float("nan")  # the planted fault: a missing value that nobody filled in
    model = keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(3),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.05),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    watching = nabla.integrations.keras(quiet=True)
    model.fit(x, labels, epochs=5, batch_size=16, shuffle=False, callbacks=[watching], verbose=0)
    watching.report.print()
    return watching.report


if __name__ == "__main__":
    main()
