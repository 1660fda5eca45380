"""Artifacts: checked, private by default, readable without pickle."""

import hashlib
import json

import numpy as np
import pytest
import torch

from nabla_check.evidence.artifact import Evidence, write_artifact
from nabla_check.fuzzing.fuzz_operator import fuzz
from nabla_check.inputs.specs import shapes, tensor
from nabla_check.rules import BACKWARD_MISMATCH
from nabla_core.errors import InputError


@pytest.fixture
def campaign(square, tmp_path):
    def run(**options):
        return fuzz(
            candidate=square(lambda x, g: g * x),
            reference=torch.square,
            inputs=[tensor(shapes("n"))],
            artifact_dir=tmp_path / "evidence",
            **options,
        )

    return run


def test_every_file_is_listed_with_its_digest(campaign, tmp_path):
    result = campaign()
    (folder,) = (tmp_path / "evidence").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())

    assert result.artifact == str(folder) == result.failures[0].artifact
    assert manifest["fingerprints"] == [issue.fingerprint for issue in result.failures]
    assert {path.name for path in folder.iterdir()} - {"manifest.json"} == set(manifest["files"])
    for name, entry in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert entry == {
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_bytes": len(content),
        }


def test_tensors_are_stored_only_when_asked_for_and_without_pickle(campaign, tmp_path):
    campaign()
    assert not list(tmp_path.rglob("*.npy"))

    result = campaign(artifact_raw_tensors=True)
    (path,) = tmp_path.rglob("*.npy")
    stored = np.load(path, allow_pickle=False)

    assert path.name == "x.npy"
    assert np.array_equal(stored, result.minimum.build()[0].detach().numpy())


def test_the_same_failure_is_stored_once(campaign, tmp_path):
    assert campaign().artifact == campaign().artifact
    assert len(list((tmp_path / "evidence").iterdir())) == 1


def test_a_passing_campaign_stores_nothing(tmp_path):
    fuzz(
        candidate=torch.square,
        reference=torch.square,
        inputs=[tensor((3,))],
        trials=3,
        artifact_dir=tmp_path / "evidence",
    )

    assert not (tmp_path / "evidence").exists()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.float16])
def test_dtypes_that_numpy_lacks_keep_their_bits(tmp_path, dtype):
    values = torch.randn(3, 2).to(dtype)
    evidence = Evidence(
        kind="check",
        subject="op",
        seed=1,
        issues=[BACKWARD_MISMATCH.issue("m")],
        tensors={"../x/y": values},
    )
    folder = write_artifact(tmp_path, evidence)
    (path,) = folder.rglob("*.npy")
    stored = torch.from_numpy(np.load(path, allow_pickle=False))

    assert path.parent == folder / "tensors"
    assert torch.equal(stored.view(dtype), values)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    evidence = Evidence(kind="fuzz", subject="op", seed=1, issues=[])

    with pytest.raises(InputError, match="cannot be made"):
        write_artifact(tmp_path / "file", evidence)


def test_numbers_that_json_lacks_are_text(tmp_path):
    issue = BACKWARD_MISMATCH.issue("m", error=float("inf"))
    folder = write_artifact(tmp_path, Evidence(kind="fuzz", subject="op", seed=1, issues=[issue]))

    assert json.loads((folder / "issues.json").read_text())[0]["evidence"] == {"error": "inf"}
