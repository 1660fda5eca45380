"""What is kept of a failing check: a script that fails in a fresh process, and a private folder."""

import json
import subprocess
import sys

import pytest
import torch

import nabla_check
from nabla_check import tensor


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        return cotangent * x


def half(x):
    return Half.apply(x)


def square(x):
    return x.square()


def run_script(text, tmp_path):
    path = tmp_path / "reproduction.py"
    path.write_text(text)
    return subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True)


def test_the_script_of_an_issue_fails_in_a_fresh_process(tmp_path):
    result = nabla_check.operator(candidate=half, reference=square, inputs=[tensor((3, 2))])
    (issue,) = result.failures
    done = run_script(issue.reproduction.script, tmp_path)

    assert done.returncode == 1, done.stderr
    assert "CHK201" in done.stdout
    assert f"seed {result.seed}" in done.stdout


def test_scripts_do_not_hold_the_users_values_unless_allowed():
    x = torch.tensor([0.123456789, 7.25], dtype=torch.float64, requires_grad=True)
    private = nabla_check.operator(candidate=half, inputs=[x]).failures[0]
    public = nabla_check.operator(candidate=half, inputs=[x], artifact_raw_tensors=True)

    assert "0.123456789" not in private.reproduction.script
    assert "0.123456789" in public.failures[0].reproduction.script


def test_index_tensors_cannot_be_drawn_so_there_is_no_script():
    index = torch.tensor([1, 0])
    x = torch.randn(2, dtype=torch.float64, requires_grad=True)
    result = nabla_check.operator(candidate=lambda x, i: half(x)[i], inputs=[x, index])
    assert result.failures[0].reproduction.script is None
    assert result.failures[0].reproduction.seed == result.seed


@pytest.mark.parametrize("raw", [False, True])
def test_a_folder_is_written_and_holds_tensors_only_when_asked(tmp_path, raw):
    result = nabla_check.operator(
        candidate=half,
        reference=square,
        inputs=[tensor((3,))],
        artifact_dir=tmp_path,
        artifact_raw_tensors=raw,
    )
    (folder,) = tmp_path.iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())

    assert result.failures[0].artifact == str(folder)
    assert json.loads((folder / "issues.json").read_text())[0]["rule"] == "CHK201"
    assert (folder / "reproduction.py").exists()
    assert any(name.endswith(".npy") for name in manifest["files"]) is raw


def test_a_passing_check_writes_nothing(tmp_path):
    nabla_check.operator(candidate=square, inputs=[tensor((3,))], artifact_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_open_sizes_and_the_other_name_of_a_layout_are_understood():
    spec = tensor(nabla_check.shapes(ranks=(2,)), layout="broadcasted", distribution=["ones"])
    assert (spec.layouts, spec.distributions) == (("expanded",), ("ones",))
    assert nabla_check.operator(candidate=square, inputs=[spec]).passed
