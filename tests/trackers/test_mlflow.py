import json

import pytest

pytest.importorskip("mlflow", reason="mlflow is not installed: its tests are left out")

import mlflow as client

import nabla_trackers


@pytest.fixture
def local(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client.set_tracking_uri(tmp_path.joinpath("store").as_uri())
    client.set_experiment("nabla")
    yield client.MlflowClient()
    while client.active_run() is not None:
        client.end_run()


def test_the_run_gets_tags_metrics_and_the_report(local, watched):
    with client.start_run() as run:
        report = watched(nabla_trackers.mlflow())
    kept = local.get_run(run.info.run_id)
    losses = local.get_metric_history(run.info.run_id, "nabla/loss")
    path = local.download_artifacts(run.info.run_id, "nabla/report.json")

    assert report.problems == ()
    assert report.issues[0].message[:40] in kept.data.tags["nabla.RUN101"]
    assert kept.data.tags["nabla.passed"] == "false"
    assert kept.data.metrics["nabla/issues/high"] == 1.0
    assert [metric.value for metric in losses[:2]] == [1.0, 0.5]
    assert [metric.step for metric in losses] == list(range(30))
    with open(path) as file:
        assert [issue["rule"] for issue in json.load(file)["issues"]] == ["RUN101"]


def test_a_run_that_has_ended_still_gets_the_report(local, watched):
    alert = nabla_trackers.mlflow()
    with client.start_run() as run:
        pass
    watched(alert, broken=False)

    assert local.get_run(run.info.run_id).data.tags["nabla.passed"] == "true"


def test_no_run_is_started_for_the_person(local, watched, monkeypatch):
    monkeypatch.setattr(client, "last_active_run", lambda: None)
    report = watched(nabla_trackers.mlflow())

    assert client.active_run() is None
    (problem,) = report.problems
    assert "no MLflow run" in problem.message
    assert local.search_runs([client.get_experiment_by_name("nabla").experiment_id]) == []


def test_hostile_texts_are_kept_as_text(local, hostile):
    issue, report = hostile
    alert = nabla_trackers.mlflow()
    with client.start_run() as run:
        alert(issue)
        alert.take_report(report)
    kept = local.get_run(run.info.run_id).data

    assert len(kept.tags["nabla.RUN101"]) <= 500
    assert "nabla/_/_/_/etc/passwd" in kept.metrics
