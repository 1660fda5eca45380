"""What the name of a column means."""

import pytest

from nabla_core.errors import InputError
from nabla_diagnose.readers.discovery import find_logs
from nabla_diagnose.readers.mapping import ReadOptions, map_columns
from nabla_diagnose.readers.naming import direction_of


def signals(*names, rows=10):
    columns = {name: [float(row) for row in range(rows)] for name in names}
    return dict(map_columns(columns, ReadOptions()).signals)


@pytest.mark.parametrize(
    "name", ["loss", "Loss", "train_loss", "Train/Loss", "trainLoss", "trainloss", "loss/train",
             "train_loss_step", "total_loss", "Training Loss", "train.loss", "mean_loss", "nll"]
)  # fmt: skip
def test_the_training_loss_is_found_under_any_name(name):
    assert signals("step", name) == {name: "loss"}


@pytest.mark.parametrize(
    "name", ["val_loss", "Val/Loss", "valLoss", "valloss", "validation loss", "eval/loss",
             "Loss/val", "dev_loss", "valid_loss", "val_loss_epoch"]
)  # fmt: skip
def test_the_validation_loss_is_found_under_any_name(name):
    assert signals("step", "loss", name)[name] == "val_loss"


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("lr", "lr"),
        ("learning_rate", "lr"),
        ("lr-AdamW", "lr"),
        ("x/lr0", "lr"),
        ("train/grad_norm", "grad_norm"),
        ("gnorm", "grad_norm"),
        ("grad_2.0_norm_total", "grad_norm"),
        ("update_ratio", "update_ratio"),
        ("param_norm", "weight_norm"),
        ("kl_loss", "kl"),
        ("train/approx_kl", "train_approx_kl"),
        ("charts/policy_entropy", "entropy"),
        ("rollout/ep_rew_mean", "reward"),
        ("rewards/accuracies", "rewards_accuracies"),
        ("eval_wer", "val_wer"),
        ("metrics/mAP50", "metrics_map50"),
    ],
)
def test_known_quantities_get_known_names(name, signal):
    assert signals("step", "loss", name)[name] == signal


def test_a_loss_scale_and_a_best_loss_are_no_losses():
    found = signals("step", "loss_scale", "best_loss", "loss_weight")

    assert not {"loss", "val_loss"} & set(found.values())


def test_of_two_losses_the_plain_one_counts_and_the_other_keeps_its_name():
    found = signals("step", "train_loss_epoch", "train_loss_step", "box_loss")

    assert found["train_loss_step"] == "loss"
    assert found["box_loss"] == "loss/box"


def test_a_loss_that_few_rows_have_is_not_the_main_one():
    columns = {
        "step": [float(row) for row in range(10)],
        "loss": [None] * 9 + [1.0],
        "train_loss_step": [1.0] * 10,
    }

    found = map_columns(columns, ReadOptions()).signals

    assert found["train_loss_step"] == "loss"


def test_parts_without_a_total_are_summed_for_training_and_validation_alike():
    columns = {
        name: [1.0, 2.0]
        for name in ("epoch", "train/box_loss", "train/cls_loss", "val/box_loss", "val/cls_loss")
    }

    found = map_columns(columns, ReadOptions())

    assert found.sums == {
        "loss": ("train/box_loss", "train/cls_loss"),
        "val_loss": ("val/box_loss", "val/cls_loss"),
    }


@pytest.mark.parametrize(
    "names",
    [("d_loss", "g_loss"), ("policy_loss", "value_loss"), ("loss_actor", "loss_critic", "return")],
)
def test_losses_of_opponents_are_not_summed(names):
    columns = {name: [1.0, 2.0] for name in ("step", *names)}

    found = map_columns(columns, ReadOptions())

    assert found.sums == {}
    assert found.adversarial
    assert "loss" not in found.signals.values()


def test_a_reward_beside_a_loss_says_that_the_loss_may_rise():
    columns = {name: [1.0, 2.0] for name in ("step", "train/loss", "rollout/ep_rew_mean", "reward")}

    assert map_columns(columns, ReadOptions()).adversarial


def test_preference_tuning_is_supervised():
    columns = {name: [1.0, 2.0] for name in ("loss", "rewards/chosen", "rewards/rejected")}

    assert not map_columns(columns, ReadOptions()).adversarial


def test_no_two_columns_become_one_signal():
    found = signals("step", "loss", "Loss", "LOSS", "train loss", "lr", "LR", "acc", "Acc")

    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("val_accuracy", "higher"),
        ("eval_wer", "lower"),
        ("mAP50-95", "higher"),
        ("train/ploss_0", "lower"),
        ("epoch_time", "unknown"),
    ],
)
def test_names_say_which_way_is_better(name, direction):
    assert direction_of(name) == direction


def test_a_folder_gives_its_logs_and_only_the_last_checkpoint(tmp_path):
    for name in (
        "out/checkpoint-500/trainer_state.json",
        "out/checkpoint-1000/trainer_state.json",
        "lightning_logs/version_0/metrics.csv",
        ".git/index.csv",
        "venv/lib/data.csv",
        "notes.md",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")

    found = [str(log.path.relative_to(tmp_path)) for log in find_logs([str(tmp_path)])]

    assert found == [
        "lightning_logs/version_0/metrics.csv",
        "out/checkpoint-1000/trainer_state.json",
    ]


def test_links_are_not_followed(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "secret.csv").write_text("step,loss\n0,1\n")
    (tmp_path / "logs" / "link.csv").symlink_to(tmp_path / "secret.csv")
    (tmp_path / "logs" / "loop").symlink_to(tmp_path)

    assert find_logs([str(tmp_path / "logs")]) == []


def test_an_empty_name_is_not_the_present_folder():
    with pytest.raises(InputError, match="empty name"):
        find_logs([""])
