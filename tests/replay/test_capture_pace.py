"""How much is hashed per step follows from what it costs."""

import pytest

from nabla_replay.capturing.pace import PARTS, Pace


def paced(budget, step_s, whole_s, fixed_s=20e-6, **options):
    pace = Pace(budget, whole_s, **options)
    for _ in range(200):
        pace.note(step_s, fixed_s + whole_s / pace.parts, whole_s / pace.parts)
    return pace


@pytest.mark.parametrize("whole_s", [1e-6, 1e-4, 1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("step_s", [5e-3, 0.1, 2.0])
def test_the_cost_stays_within_the_budget_where_any_choice_allows_it(step_s, whole_s):
    pace = paced(0.02, step_s, whole_s)
    cheapest = (20e-6 + whole_s / PARTS[-1]) / step_s
    assert pace.share <= max(0.02, cheapest * 1.01)


def test_no_more_parts_are_taken_than_needed():
    assert paced(0.02, 0.1, 1e-3).parts == 1
    assert paced(0.02, 0.1, 4e-3).parts == 4
    assert paced(0.02, 0.1, 1.0).parts == PARTS[-1]


def test_without_a_budget_everything_is_hashed_in_every_step():
    assert paced(None, 1e-3, 1.0).parts == 1


def test_the_choice_follows_a_program_that_becomes_slower():
    pace = paced(0.02, 0.01, 1e-3)
    assert pace.parts == 8
    for _ in range(200):
        pace.note(1.0, 20e-6 + 1e-3 / pace.parts, 1e-3 / pace.parts)
    assert pace.parts == 1


def test_records_stay_small_whatever_the_time():
    assert paced(0.02, 10.0, 1e-6, whole_bytes=800).parts == 16
    assert paced(0.02, 10.0, 1e-6, whole_bytes=60).parts == 1


def test_ranks_do_not_choose_for_themselves():
    assert paced(0.02, 10.0, 1e-6, fixed=True).parts == 16


def test_the_choice_goes_by_what_hashing_costs_in_the_loop():
    pace = Pace(0.02, 1e-3)
    for _ in range(200):
        pace.note(0.1, 20e-3 / pace.parts, 20e-3 / pace.parts)
    assert pace.parts == 16


@pytest.mark.parametrize(("fixed_s", "every"), [(0.7e-3, 1), (2e-3, 4), (1.0, 16)])
def test_steps_are_recorded_in_brief_only_where_a_look_is_too_dear(fixed_s, every):
    pace = Pace(0.02, 1e-4)
    for _ in range(200):
        pace.note(0.05, fixed_s, 1e-5)
        pace.note_brief(5e-5)
    assert pace.every == every
    assert every == 16 or pace.share <= 0.02


def test_a_short_run_is_looked_at_in_every_step():
    pace = Pace(0.02, 1.0)
    chosen = [pace.every for _ in range(40) if pace.note(1e-3, 1.0, 0.5) or True]
    assert chosen.index(16) >= 16
