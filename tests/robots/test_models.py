"""The models of PyBullet are taken out of its wheel, and nothing else is."""

import zipfile

import pytest

from robots.engines import models
from robots.engines.models import ModelsError, found_file, unpack


def wheel(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_models_alone_are_taken_out_of_the_wheel(tmp_path):
    held = {"pybullet_data/__init__.py": "", "pybullet_data/a/b.urdf": "<robot/>", "evil.pth": "x"}
    folder = unpack(wheel(tmp_path / "pybullet.whl", **held), tmp_path / "into")
    assert folder == tmp_path / "into" / "pybullet_data"
    found = sorted(p.relative_to(tmp_path / "into") for p in folder.rglob("*") if p.is_file())
    assert [str(path) for path in found] == ["pybullet_data/__init__.py", "pybullet_data/a/b.urdf"]
    assert not (tmp_path / "into" / "evil.pth").exists()


@pytest.mark.parametrize("name", ["pybullet_data/../../evil.pth", "other/file.urdf"])
def test_another_wheel_is_refused_and_writes_nothing(tmp_path, name):
    with pytest.raises(ModelsError, match=r"other\.whl is no wheel of PyBullet"):
        unpack(wheel(tmp_path / "other.whl", **{name: "x"}), tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_wheel_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_LARGEST_BYTES", 3)
    path = wheel(tmp_path / "large.whl", **{"pybullet_data/a.urdf": "1234"})
    with pytest.raises(ModelsError, match="more than 3 bytes"):
        unpack(path, tmp_path / "into")


def test_file_of_the_user_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plane.urdf").write_text("<robot/>", encoding="utf-8")
    assert str(found_file("plane.urdf")) == "plane.urdf"


def test_missing_models_name_the_command_that_fetches_them(monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"python -m robots\.engines\.models"):
        found_file("a1/a1.urdf")


def test_download_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(models.sys, "executable", "false")
    with pytest.raises(ModelsError, match=r"cannot download pybullet==3\.2\.7"):
        models.fetch(tmp_path)
