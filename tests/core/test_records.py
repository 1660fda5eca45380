"""What a record of a step is."""

import pytest

from nabla_core.records import StepRecord


def test_records_share_nothing_that_can_be_changed():
    record = StepRecord(step=3, time_s=0.5, signals={"loss": 1.0})

    assert (record.step, record.time_s, record.signals) == (3, 0.5, {"loss": 1.0})
    assert (dict(record.layers), record.layout) == ({}, ())
    with pytest.raises(TypeError):
        record.layers["grad_norm"] = [1.0]
    with pytest.raises(AttributeError):
        record.step = 4


def test_a_record_without_signals_has_none():
    assert dict(StepRecord(step=0, time_s=0.0).signals) == {}
