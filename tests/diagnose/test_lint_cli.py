"""``nabla lint``, and ``nabla runs`` after it, as a person runs them."""

import json
import math
import random

import pytest

from nabla_core.cli.shell import run_shell


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = run_shell(words)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def logged(tmp_path):
    def log(name="metrics.csv", column="loss", broken_at=None, rows=200):
        generator = random.Random(name)
        lines = [f"step,{column}"]
        for step in range(rows):
            loss = 0.5 + 2.0 * math.exp(-step / 60) + generator.gauss(0.0, 0.02)
            broken = broken_at is not None and step >= broken_at
            lines.append(f"{step},{'nan' if broken else loss}")
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        return name

    return log


def test_a_healthy_log_is_clean(shell, logged):
    code, out, err = shell("lint", logged())

    assert code == 0
    assert "no issues" in out
    assert err == ""


def test_a_broken_log_fails_and_says_where(shell, logged):
    code, out, _ = shell("lint", logged(broken_at=150))

    assert code == 1
    assert "RUN101" in out
    assert "step 150" in out


def test_several_runs_give_a_table_with_one_verdict_each(shell, logged):
    logged("runs/a.csv")
    logged("runs/b.csv", broken_at=100)

    code, out, _ = shell("lint", "runs")

    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("runs/")}
    assert code == 1
    assert "nothing found" in rows["runs/a.csv"]
    assert "high RUN101" in rows["runs/b.csv"]
    assert "runs/b.csv, step 100" in out


def test_patterns_are_understood(shell, logged):
    logged("runs/a.csv")
    logged("runs/b.csv")

    code, out, _ = shell("lint", "runs/*.csv")

    assert code == 0
    assert "2 runs" in out


def test_what_was_read_is_shown_with_v_on_standard_error(shell, logged):
    _, out, err = shell("-v", "lint", logged(column="Train/Loss"))

    assert "Train/Loss -> loss" in err
    assert "Train/Loss -> loss" not in out


def test_a_column_can_be_named(shell, logged):
    name = logged(column="goal", broken_at=150)

    code, _, err = shell("lint", name)
    assert code == 2
    assert "columns seen: goal, step" in err

    assert shell("lint", name, "--map", "loss=goal")[0] == 1


def test_a_column_can_be_named_in_the_configuration(shell, logged, tmp_path):
    (tmp_path / "nabla.toml").write_text('[diagnose.columns]\nloss = "goal"\n')

    assert shell("lint", logged(column="goal", broken_at=150))[0] == 1


@pytest.mark.parametrize("given", ["loss", "=x", "loss="])
def test_a_mapping_that_is_none_is_a_usage_error(shell, logged, given):
    code, _, err = shell("lint", logged(), "--map", given)

    assert code == 2
    assert "SIGNAL=COLUMN" in err


def test_no_log_is_a_usage_error(shell):
    assert shell("lint")[0] == 2
    assert shell("lint", "absent.csv")[0] == 2
    assert shell("lint", "*.csv")[0] == 2


def test_a_folder_without_logs_is_nothing_checked(shell, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text('{"layers": [1, 2]}')

    code, out, err = shell("lint", "empty")

    assert (code, out) == (4, "")
    assert "no log was found" in err


def test_a_log_without_a_loss_to_judge_is_nothing_checked(shell, tmp_path):
    rows = "".join(f"{step},{step},1.0,2.0\n" for step in range(50))
    (tmp_path / "rl.csv").write_text("step,return,loss_actor,loss_critic\n" + rows)

    assert shell("lint", "rl.csv")[0] == 4


def test_one_unreadable_log_among_others_is_told_and_fails(shell, logged, tmp_path):
    (tmp_path / "junk.csv").write_bytes(bytes(range(256)) * 9)

    code, out, err = shell("lint", logged(), "junk.csv")

    assert code == 2
    assert "no issues" in out
    assert "junk.csv: is binary" in err


def test_rules_can_be_left_out(shell, logged):
    assert shell("lint", logged(broken_at=150), "--ignore", "RUN101")[0] == 0


def test_a_baseline_accepts_what_is_known(shell, logged):
    name = logged(broken_at=150)
    shell("lint", name, "--write-baseline", "known.toml")

    assert shell("lint", name, "--baseline", "known.toml")[0] == 0


def test_json_holds_the_table_and_the_run_of_every_issue(shell, logged):
    names = logged("a.csv"), logged("b.csv", broken_at=100)

    _, out, _ = shell("lint", *names, "--format", "json")
    report = json.loads(out)

    assert report["sections"][0]["title"] == "2 runs"
    assert [issue["where"]["file"] for issue in report["issues"]] == ["b.csv"]


def test_explain_adds_why_and_limits(shell, logged):
    _, out, _ = shell("lint", logged(broken_at=150), "--explain")

    assert "limits" in out
    assert "RUN101 non-finite-loss-logged" in out.splitlines()


def test_runs_are_remembered_and_compared(shell, logged):
    for number in range(6):
        shell("lint", logged(f"run{number}.csv"))

    _, out, _ = shell("lint", logged("latest.csv"))
    assert "of the last 6 runs" in out

    code, out, _ = shell("runs", "--last", "2")
    assert code == 0
    section = out.split("judged\n")[1].split("\n\n")[0]
    assert len(section.splitlines()) == 3
    assert len(json.loads(shell("runs", "--json")[1])["judged"]) == 7


def test_no_history_is_kept_when_it_is_not_wanted(shell, logged, tmp_path):
    shell("lint", logged(), "--no-history")
    shell("lint", logged(), "-o", "diagnose.history_runs=0")

    assert not (tmp_path / ".nabla").exists()
    assert "no runs yet" in shell("runs")[1]


def test_a_history_that_cannot_be_written_does_not_change_the_verdict(shell, logged, tmp_path):
    (tmp_path / ".nabla").write_text("a file, not a folder")

    code, out, err = shell("lint", logged())

    assert code == 0
    assert "no issues" in out
    assert "the history is not kept" in err


def test_the_library_call_judges_a_log_a_folder_and_a_pattern(logged, tmp_path, monkeypatch):
    import nabla

    monkeypatch.chdir(tmp_path)
    logged("runs/a.csv")
    logged("runs/b.csv", broken_at=100)

    assert nabla.lint("runs/a.csv").passed
    assert [issue.rule for issue in nabla.lint(tmp_path / "runs/b.csv").ranked] == ["RUN101"]
    assert [issue.rule for issue in nabla.lint("runs").issues] == ["RUN101"]
    assert not nabla.lint("runs/*.csv").passed
