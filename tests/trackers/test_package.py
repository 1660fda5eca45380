import subprocess
import sys

from nabla_core.host import default_host


def test_listing_the_sinks_imports_no_client():
    code = (
        "import sys, nabla_trackers; from nabla_core.host import default_host; "
        "names = [sink.name for sink in default_host().sinks]; "
        "print(sorted({'torch', 'wandb', 'mlflow', 'tensorboard'} & set(sys.modules)), names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[] ['tensorboard', 'wandb', 'mlflow']"


def test_the_functions_are_at_the_door():
    import nabla_trackers

    assert {"tensorboard", "wandb", "mlflow"} <= set(dir(nabla_trackers))
    assert not hasattr(nabla_trackers, "nonsense")


def test_a_sink_without_its_client_or_run_is_told_and_the_run_goes_on(monkeypatch, watched):
    monkeypatch.setenv("NABLA_SINKS", "wandb")
    report = watched(None, broken=False)

    assert report.passed
    assert [problem.rule for problem in report.problems] == ["NAB004"]


def test_the_sinks_have_summaries():
    assert all(sink.summary for sink in default_host().sinks)
