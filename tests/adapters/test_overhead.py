"""What an adapter adds to a step of its framework, in calls of Python functions."""

import sys
from collections import Counter

import pytest
import torch

import nabla

STEPS = 60
FROM, TO = 30, 50


def calls_per_step(train, net):
    """Count the calls between two passes of ``net``, by the package that they are made in."""
    counts = Counter()

    def count(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and FROM <= net.calls < TO:
            found = [part for part in file.split("/") if part.startswith("nabla_")]
            counts[found[-1] if found else "others"] += 1
            counts["adapter"] += "integrations" in file or found[-1:] in ADAPTERS

    sys.setprofile(count)
    try:
        train()
    finally:
        sys.setprofile(None)
    return {name: round(number / (TO - FROM), 1) for name, number in counts.items()}


ADAPTERS = (["nabla_lightning"], ["nabla_hf"], ["nabla_keras"])


def with_lightning(case, callback):
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = case.net

        def training_step(self, batch, index):
            return case.loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), 0.05)

    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", callbacks=[callback], **dict.fromkeys(quiet, False)
    )
    loader = DataLoader(TensorDataset(case.x, case.y), batch_size=16)
    return lambda: trainer.fit(Module(), loader)


def with_hf(case, callback, folder):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")

    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = case.net

        def forward(self, x, labels=None):
            scores = self.net(x)
            return {"loss": case.loss(scores, labels), "logits": scores}

    settings = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=16,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    rows = [{"x": x, "labels": y} for x, y in zip(case.x, case.y, strict=True)]
    trainer = transformers.Trainer(Scores(), settings, train_dataset=rows, callbacks=[callback])
    return trainer.train


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["lightning", "hf"])
def test_the_adapter_itself_makes_hardly_a_call_in_a_step(framework, case, tmp_path):
    given = case("none")
    callback = getattr(nabla.integrations, framework)(quiet=True)
    extra = (tmp_path,) if framework == "hf" else ()
    train = {"lightning": with_lightning, "hf": with_hf}[framework](given, callback, *extra)

    found = calls_per_step(train, given.net)

    print(framework, "calls in a step:", dict(sorted(found.items())))
    assert callback.report.run.steps == STEPS
    assert found.get("adapter", 0.0) <= 3.0
