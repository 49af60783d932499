"""Announced plugins are those that importlib.metadata finds, which is not imported for none."""

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from mixad.backends.entry_points import entry_points


def written(folder: Path, group: str = "mixad", suffix: str = ".dist-info") -> Path:
    """Write the metadata of a distribution that announces something."""
    info = folder / f"fake-1.0{suffix}"
    info.mkdir(parents=True)
    name = "METADATA" if suffix == ".dist-info" else "PKG-INFO"
    (info / name).write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nfake = fake.plugin\n")
    return folder


@pytest.mark.parametrize("group", ["console_scripts", "pytest11", "mixad", "nobody.announces.this"])
def test_what_is_installed_here_is_found(group):
    assert entry_points(group) == tuple(metadata.entry_points(group=group))


@pytest.mark.parametrize("suffix", [".dist-info", ".egg-info"])
def test_a_distribution_on_the_path_is_found(suffix, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(written(tmp_path, "of.a.test", suffix))
    (found,) = entry_points("of.a.test")
    assert (found.name, found.value, found.dist.version) == ("fake", "fake.plugin", "1.0")


def test_a_distribution_in_the_current_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(written(tmp_path, "of.a.test"))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert len(entry_points("of.a.test")) == 1


def test_a_distribution_in_a_zip_file_is_found(tmp_path, monkeypatch):
    folder = written(tmp_path / "unpacked", "of.a.test")
    with zipfile.ZipFile(tmp_path / "fake.zip", "w") as packed:
        for path in folder.rglob("*"):
            packed.write(path, path.relative_to(folder))
    monkeypatch.syspath_prepend(tmp_path / "fake.zip")
    assert len(entry_points("of.a.test")) == 1


def test_a_distribution_that_a_finder_knows_is_found(tmp_path, monkeypatch):
    distribution = metadata.PathDistribution(written(tmp_path, "of.a.test") / "fake-1.0.dist-info")

    class Finder(metadata.DistributionFinder):
        def find_spec(self, *args):
            return None

        def find_distributions(self, context=None):
            return [distribution]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert len(entry_points("of.a.test")) == 1


@pytest.mark.slow
@pytest.mark.skipif(bool(metadata.entry_points(group="mixad")), reason="a plugin is installed")
def test_importing_mixad_without_plugins_does_not_import_importlib_metadata():
    code = "import sys, mixad; assert 'importlib.metadata' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
