"""Rules about the batches that a program trains on."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "COLUMN_WITHOUT_INFORMATION",
    "EPOCH_ORDER_REPEATS",
    "RULES",
    "SAME_BATCH_EVERY_STEP",
    "WORKER_RNG_COPIES",
]

SAME_BATCH_EVERY_STEP = Rule(
    id="AUD501",
    name="same-batch-every-step",
    summary="A new iterator is made for each batch, so the first batch is used every time, or each "
    "worker of a loader delivers all of the data.",
    rationale="The model sees one batch only; its loss falls well and it learns nothing else.",
    fix="Iterate with `for batch in loader`, or keep one iterator and call next() on it; divide an "
    "IterableDataset among workers by get_worker_info().",
    limits="Needs five iterators in a row that gave one batch each, all with the same indices, "
    "with steps between them and no batch of another loader. Full-batch training has only one "
    "batch and is no fault. Loops that index a data set by hand are not seen. Of an "
    "IterableDataset with workers: three rounds in which all workers deliver the same bits, which "
    "differ from round to round.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("loaders",),
    tags=("data",),
    example=Example(
        bad="for step in range(steps):\n    x, y = next(iter(loader))\n",
        good="for x, y in loader:\n    train(x, y)\n",
    ),
)

EPOCH_ORDER_REPEATS = Rule(
    id="AUD502",
    name="epoch-order-repeats",
    summary="A loader that shuffles gave the same order in two epochs, or one pass over it is "
    "given again and again.",
    rationale="Shuffling is on and does nothing: every epoch makes the same batches.",
    fix="Call sampler.set_epoch(epoch) before each epoch; do not seed the generator anew in it. In "
    "place of itertools.cycle(loader), write a generator that iterates over the loader anew.",
    limits="MEDIUM for a sampler that does not say whether it shuffles, if its order is not that "
    "of the indices and its epoch could have been set. Two equal epochs of at least three batches; "
    "three epochs when there are fewer than twelve samples, where chance could make two equal. "
    "Loaders made anew over one dataset count as one. Epochs that only evaluate, or that no common "
    "optimizer went through (two experiments with one seed), are not judged. Only orders that a "
    "torch sampler makes are seen. Of kept passes only those of itertools.cycle, three steps into "
    "the second round: MEDIUM, because some mean it so.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("loaders",),
    tags=("data",),
    example=Example(
        bad="sampler = DistributedSampler(dataset, shuffle=True)\nfor epoch in range(3):\n"
        "    for batch in DataLoader(dataset, sampler=sampler):\n        train(batch)\n",
        good="sampler = DistributedSampler(dataset, shuffle=True)\nfor epoch in range(3):\n"
        "    sampler.set_epoch(epoch)\n"
        "    for batch in DataLoader(dataset, sampler=sampler):\n        train(batch)\n",
    ),
)

WORKER_RNG_COPIES = Rule(
    id="AUD503",
    name="worker-rng-copies",
    summary="Every worker of a loader has a copy of the dataset's random generator.",
    rationale="All workers draw the same numbers: augmentations repeat across samples, and in "
    "every epoch, because each epoch starts with fresh copies.",
    fix="Draw from torch's global generator, or seed the generator in worker_init_fn with "
    "torch.initial_seed().",
    limits="Only generators that the dataset or its transforms hold, with two or more workers and "
    "no worker_init_fn. A generator that no code mentions which delivers samples is no fault.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loaders",),
    tags=("data",),
    example=Example(
        bad="class Noisy(Dataset):\n    def __init__(self):\n"
        "        self.rng = numpy.random.default_rng(0)\n",
        good="class Noisy(Dataset):\n    def __getitem__(self, index):\n"
        "        return self.x[index] + torch.randn(3)\n",
    ),
)

COLUMN_WITHOUT_INFORMATION = Rule(
    id="AUD504",
    name="non-finite-or-constant-column",
    summary="A column of the model's input is never finite, or never changes.",
    rationale="A feature with zero variance divided by its standard deviation is NaN in every "
    "sample; a constant one carries nothing.",
    fix="Drop the column, or divide by the standard deviation plus a small number.",
    limits="Looks at the first three batches of a two-dimensional float input with at least eight "
    "rows each. A constant column is reported as INFO, because rare features and biases look like "
    "that; so is a non-finite one that the model handles: its loss is finite.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("batches",),
    tags=("data",),
    example=Example(
        bad="x = (x - x.mean(0)) / x.std(0)  # one feature is constant\n",
        good="x = (x - x.mean(0)) / (x.std(0) + 1e-6)\n",
    ),
)

RULES = (
    SAME_BATCH_EVERY_STEP,
    EPOCH_ORDER_REPEATS,
    WORKER_RNG_COPIES,
    COLUMN_WITHOUT_INFORMATION,
)
