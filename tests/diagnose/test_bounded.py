"""What a run keeps does not grow with it."""

from collections import deque

from nabla_core.records import StepRecord
from nabla_diagnose.checks.roster import make_checks
from nabla_diagnose.detector import RunDetector
from nabla_diagnose.options import DiagnoseOptions


def kept(thing, depth=0):
    """Count the entries of all containers inside of an object."""
    if isinstance(thing, (list, deque, tuple, set, frozenset)):
        return len(thing) + sum(kept(item, depth + 1) for item in thing if depth < 6)
    if isinstance(thing, dict):
        return len(thing) + sum(kept(item, depth + 1) for item in thing.values() if depth < 6)
    return kept(vars(thing), depth + 1) if hasattr(thing, "__dict__") and depth < 6 else 0


def test_memory_does_not_grow_with_the_rows(healthy, sound_layers):
    detector = RunDetector(make_checks(), DiagnoseOptions())
    sizes = []
    for index, row in enumerate(healthy(6000, scale=2000.0)):
        if index % 20 == 19:
            row["val_loss"] = row["loss"]
        row["clip_coef"] = 0.9
        row["input_std"] = 1.0
        table = sound_layers(index) if index % 10 == 0 else {}
        layout = tuple(dict.fromkeys(name for column in table.values() for name in column))
        layers = {
            name: [column.get(layer, float("nan")) for layer in layout]
            for name, column in table.items()
        }
        record = StepRecord(step=index, time_s=0.0, signals=row, layers=layers, layout=layout)
        assert list(detector.step(record)) == []
        if index in (3000, 5990):
            sizes.append(kept(detector))

    assert sizes[1] <= sizes[0] + 40
