import math

import pytest

pytest.importorskip("tensorboard", reason="tensorboard is not installed: its tests are left out")

import tensorboard.backend.event_processing.event_accumulator as accumulator

from nabla_trackers import tensorboard


@pytest.fixture
def read():
    """Return scalars as ``{tag: [(step, value)]}`` and texts as ``{tag: [text]}``."""

    def events(folder):
        seen = accumulator.EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
        seen.Reload()
        scalars = {
            tag: [(event.step, event.value) for event in seen.Scalars(tag)]
            for tag in seen.Tags()["scalars"]
        }
        texts = {
            tag.removesuffix("/text_summary"): [
                event.tensor_proto.string_val[0].decode() for event in seen.Tensors(tag)
            ]
            for tag in seen.Tags()["tensors"]
        }
        return scalars, texts

    return events


def test_issues_are_text_and_signals_are_scalars(tmp_path, watched, read):
    report = watched(tensorboard(log_dir=tmp_path))
    scalars, texts = read(tmp_path)

    assert report.problems == ()
    (text,) = texts["nabla/RUN101"]
    assert report.issues[0].message in text
    assert scalars["nabla/loss"][:2] == [(0, 1.0), (1, 0.5)]
    assert math.isnan(scalars["nabla/loss"][-1][1])
    assert [step for step, _ in scalars["nabla/issues/high"]] == [29]
    assert "failed" in texts["nabla/report"][0]


def test_what_is_found_can_be_read_at_once(tmp_path, hostile, read):
    log = tensorboard(log_dir=tmp_path)
    log(hostile[0])

    assert "nabla/RUN101" in read(tmp_path)[1]
    log.take_report(hostile[1])


def test_a_clean_run_says_that_it_passed(tmp_path, watched, read):
    watched(tensorboard(log_dir=tmp_path), broken=False)

    assert "passed: no issues in 30 steps" in read(tmp_path)[1]["nabla/report"][0]


def test_hostile_text_is_an_indented_block_and_hostile_names_are_plain_tags(
    tmp_path, hostile, read
):
    issue, report = hostile
    log = tensorboard(log_dir=tmp_path)
    log(issue)
    log.take_report(report)
    scalars, texts = read(tmp_path)

    lines = texts["nabla/RUN101"][0].splitlines()
    assert all(line.startswith("    ") for line in lines)
    assert not any("\x1b" in tag or ".." in tag for tag in scalars)


def test_it_can_be_used_for_a_second_run(tmp_path, watched, read):
    log = tensorboard(log_dir=tmp_path)
    watched(log)
    report = watched(log)

    assert report.problems == ()


def test_a_folder_that_cannot_be_written_is_told_and_the_run_goes_on(tmp_path, watched):
    (tmp_path / "file").write_text("")
    report = watched(tensorboard(log_dir=tmp_path / "file" / "runs"))

    assert [issue.rule for issue in report.issues] == ["RUN101"]
    assert [problem.rule for problem in report.problems] == ["NAB004"]


def test_the_sink_of_the_configuration(tmp_path, monkeypatch, watched, read):
    monkeypatch.setenv("NABLA_SINKS", "tensorboard")
    monkeypatch.setenv("NABLA_TRACKERS_TENSORBOARD_DIR", str(tmp_path / "here"))
    watched(None)

    assert "nabla/RUN101" in read(tmp_path / "here")[1]
