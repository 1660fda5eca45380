import sys
import zipfile
from importlib import metadata

import pytest

from nabla_core.entry_points import entry_points

POINTS = "# made by hand\n[console_scripts]\nx = y:z\n\n[nabla]\nacme = acme_rules [extra]\n"
METADATA = (
    "Metadata-Version: 2.4\nName: Acme.Rules\nVersion: 1.2\n"
    "Requires-Dist: nabla-core<1,>=0.1\nRequires-Dist: torch\n\nName: not a header\n"
)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    info = folder / "acme_rules-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(POINTS)
    (info / "METADATA").write_text(METADATA)
    return folder


def test_an_installed_entry_point_is_described(site):
    (point,) = entry_points("nabla", [str(site)])
    assert (point.name, point.value) == ("acme", "acme_rules")
    assert (point.distribution, point.version) == ("acme-rules", "1.2")
    assert point.requires == ("nabla-core<1,>=0.1", "torch")


def test_the_first_of_two_copies_counts(site, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    (copy / "acme_rules-1.2.dist-info" / "METADATA").write_text(METADATA.replace("1.2", "9.9"))
    (point,) = entry_points("nabla", [str(site), str(copy)])
    assert point.version == "1.2"


def test_a_zipped_distribution_is_read_too(site, tmp_path):
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        for path in site.rglob("*"):
            if path.is_file():
                stream.write(path, path.relative_to(site))
    assert [point.name for point in entry_points("nabla", [str(archive)])] == ["acme"]


def test_a_custom_finder_is_asked(site, monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return None

        @staticmethod
        def find_distributions(context):
            if context.name is None:
                yield metadata.Distribution.at(site / "acme_rules-1.2.dist-info")

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert "acme" in [point.name for point in entry_points("nabla")]


def test_odd_paths_hold_nothing(tmp_path):
    (tmp_path / "empty.dist-info").mkdir()
    assert entry_points("nabla", [str(tmp_path), str(tmp_path / "none"), ""]) is not None


def test_the_library_finds_the_same():
    ours = {(point.name, point.value) for point in entry_points("nabla")}
    theirs = {(point.name, point.value) for point in metadata.entry_points(group="nabla")}
    assert ours == theirs
