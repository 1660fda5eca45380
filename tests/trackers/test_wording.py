import pytest

from nabla_trackers.curves import curves_of
from nabla_trackers.wording import clipped, heading, safe_key, story, verdict


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("grad_norm", "grad_norm"),
        ("layer.0/weight norm", "layer.0/weight norm"),
        ("../../etc", "_/_/etc"),
        ("a\x1b[2J\nb", "a__2J_b"),
        ("", "_"),
        ("é" * 500, "_" * 120),
    ],
)
def test_a_key_is_a_path_of_plain_characters(name, key):
    assert safe_key(name) == key


def test_texts_are_bounded_and_steer_no_terminal(hostile):
    issue, report = hostile

    for text in (story(issue), heading(issue), verdict(report)):
        assert len(text) <= 2_000
        assert "\x1b" not in text
        text.encode()


def test_a_short_text_stays_as_it_is():
    assert clipped("x" * 2_000) == "x" * 2_000
    assert len(clipped("x" * 2_001)) == 2_000


def test_curves_over_steps_are_taken_from_the_report(watched):
    found = {curve.key: curve for curve in curves_of(watched(None))}

    assert found["nabla/loss"].steps == tuple(range(30))
    assert found["nabla/loss"].values[1] == 0.5
    assert "nabla/lr" in found
