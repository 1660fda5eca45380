"""Ratios are what they say, and noise is told."""

import json
from math import nan as NAN

import pytest
import torch

from nabla_bench import OverheadOptions, run_overhead
from nabla_bench.costs import Cost, WorkloadCost
from nabla_bench.modes import CONTROL, MODES
from nabla_bench.overhead import Overhead
from nabla_bench.rounds import Rounds
from nabla_bench.timing import Block, Spread, timed_block
from nabla_bench.workloads import WORKLOADS
from nabla_core.cli.shell import run_shell
from nabla_core.errors import UsageError


@pytest.fixture
def timed(monkeypatch):
    """Replace the clock: a step of each mode takes what the caller says."""

    def put(step_s, first_s=0.4):
        def block(workload, mode, device):
            each = step_s[mode.name]
            return Block(
                first_s=first_s,
                first_steps=40,
                step_s=next(each) if hasattr(each, "send") else each,
            )

        monkeypatch.setattr("nabla_bench.timing.timed_block", block)

    return put


def measure(**options):
    return run_overhead(OverheadOptions(workloads=("mlp",), **options))


def test_a_ratio_is_that_of_a_watched_step_to_the_bare_ones_beside_it(timed):
    timed({"bare": 0.01, "light": 0.012})

    (found,) = measure(modes=("light",), rounds=3).workloads

    assert found.costs[0].ratio.median == pytest.approx(1.2)
    assert found.control.median == pytest.approx(1.0)
    assert found.bare_step_s.median == pytest.approx(0.01)
    assert not found.costs[0].is_hidden


def test_a_load_that_grows_hits_both_alike(timed):
    def slower():
        each = 0.01
        while True:
            yield each
            each += 0.001

    timed({"bare": slower(), "light": 0.02})

    (found,) = measure(modes=("light",), rounds=1).workloads

    # warm-up, then bare 0.011, control 0.012, bare 0.013, light, bare 0.014
    assert found.control.median == pytest.approx(1.0)
    assert found.costs[0].ratio.median == pytest.approx(0.02 / 0.0135)


def test_a_cost_within_the_noise_is_said_to_be(timed):
    def noisy():
        while True:
            yield from (0.010, 0.014, 0.010)

    timed({"bare": noisy(), "light": 0.0115})

    found = measure(modes=("light",), rounds=6)

    assert found.workloads[0].costs[0].is_hidden
    assert "within the noise" in found.format()


@pytest.fixture
def clock(monkeypatch):
    """A clock that each round moves on by ten seconds."""
    now = [0.0]

    def measure(rounds, tell, original=Rounds.measure):
        now[0] += 10.0
        original(rounds, tell)

    monkeypatch.setattr(Rounds, "measure", measure)
    monkeypatch.setattr("time.monotonic", lambda: now[0])


@pytest.mark.parametrize(("budget_s", "rounds"), [(1.0, 1), (29.9, 2), (30.0, 3), (900.0, 5)])
def test_no_round_begins_that_would_not_end_in_time(timed, clock, budget_s, rounds):
    timed({"bare": 0.01, "light": 0.012})

    found = measure(modes=("light",), budget_s=budget_s)

    assert found.workloads[0].rounds == rounds == found.to_dict()["workloads"][0]["rounds"]
    assert (f"Only {rounds} round" in found.format()) is (rounds < 5)


def test_workloads_share_the_time(timed, clock):
    timed({"bare": 0.01, "light": 0.012})

    found = run_overhead(OverheadOptions(modes=("light",), budget_s=60.0))

    assert [one.rounds for one in found.workloads] == [2, 2, 2]


def test_the_first_steps_are_counted_apart(timed):
    timed({"bare": 0.01, "light": 0.01}, first_s=0.9)

    (found,) = measure(modes=("light",), rounds=1).workloads

    assert found.costs[0].first_steps == pytest.approx((0.9 - 0.4) / 0.01)


@pytest.mark.parametrize(("numbers", "wide"), [((1.0, 1.04, 0.98), False), ((0.8, 1.0, 1.3), True)])
def test_a_bare_loop_that_varies_is_told(numbers, wide):
    control = Spread.of(numbers)
    cost = WorkloadCost(
        workload="mlp",
        summary="",
        bare_step_s=Spread.of([0.01]),
        control=control,
        costs=(),
        rounds=5,
    )
    text = Overhead(options=OverheadOptions(), workloads=(cost,)).format()

    assert ("varies by more than 10%" in text) is wide


def test_quartiles_of_one_number_are_that_number():
    assert Spread.of([2.0]) == Spread(median=2.0, lower=2.0, upper=2.0)
    assert Spread.of([1.0, 2.0, 3.0]).relative_width == pytest.approx(0.5)


def test_what_is_not_installed_is_named(monkeypatch):
    missing = {"light": "nabla.guard is not installed"}
    empty = Overhead(options=OverheadOptions(), workloads=(), not_evaluated=missing)

    assert "not evaluated: light: nabla.guard is not installed" in empty.format()
    assert empty.exit_code == 4


@pytest.mark.parametrize("mode", [CONTROL, *MODES], ids=lambda mode: mode.name)
def test_every_mode_watches_a_loop_and_lets_it_go(mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = torch.nn.Module.__call__
    loop = WORKLOADS[0].make(torch.device("cpu"))

    with mode.enter(loop):
        loop.run(3)

    assert torch.nn.Module.__call__ is call


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_loop_is_the_same_each_time_and_learns(workload):
    one, other = (workload.make(torch.device("cpu")) for _ in range(2))
    before = [parameter.detach().clone() for parameter in one.model.parameters()]
    one.run(2)
    other.run(2)

    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)
    moved = zip(before, one.model.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in moved)


def test_a_block_is_timed_for_real():
    block = timed_block(WORKLOADS[0], CONTROL, torch.device("cpu"))

    assert block.first_steps < WORKLOADS[0].first_steps  # a bare loop need not get to know itself
    assert 0.0 < block.step_s < 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"workloads": ("mpl",)},
        {"modes": ("lite",)},
        {"rounds": 0},
        {"device": "abacus"},
        {"device": "meta"},
        {"budget_s": 0.0},
        {"budget_s": NAN},
    ],
)
def test_a_wrong_request_says_what_is_allowed(wrong):
    with pytest.raises(UsageError):
        run_overhead(OverheadOptions(**wrong))


def test_the_command_prints_json(timed, capsys):
    timed({"bare": 0.01, "light": 0.012, "audit": 0.0121})
    words = ["--workload", "mlp", "--mode", "light", "--mode", "audit", "--rounds", "2"]

    assert run_shell(["bench", "overhead", *words, "--format", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["rounds"] == 2
    costs = {cost["mode"]: cost["ratio"]["median"] for cost in found["workloads"][0]["costs"]}
    assert costs == {"light": 1.2, "audit": 1.21}


def test_a_cost_knows_its_numbers():
    cost = Cost(mode="light", ratio=Spread.of([1.1, 1.2]), first_steps=3.0, is_hidden=False)

    assert cost.to_dict()["ratio"] == {"median": 1.15, "lower": 1.125, "upper": 1.175}
