"""The image of workers, and the public image that installs rlzoo_plus: both train for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from support.images import project_of_images
from support.processes import PLUS, ROOT

from rlzoo_plus.cloud import image, wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.training,
    pytest.mark.skipif(
        os.environ.get("RLZOO_IMAGE") != "1",
        reason="downloads a Debian and what a worker needs, for minutes: RLZOO_IMAGE=1",
    ),
]
SHORT = (
    *("algo=ppo", "env=cartpole_bullet", "n_envs=2", "n_timesteps=1024", "eval.episodes=2"),
    *("algo.hyperparams.n_steps=512", "report.plot=false", "report.video=false"),
    *("infra=workers", "infra.wait=false", "sweep=first"),
)
# A mirror, where PyTorch's own index is out of reach.
TORCH_INDEX = os.environ.get("RLZOO_TORCH_INDEX", image.TORCH_INDEX[False])
# In it, a container needs no more rights than this process has.
ISOLATION = ("--isolation", "chroot", "--network", "host")


def _run(*words, **more):
    done = subprocess.run(words, text=True, capture_output=True, check=False, **more)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def _submit(store, folder):
    _run(*PLUS, "train", "-m", "seed=0", *SHORT, f"store={store}", cwd=folder)


def _states(store, folder):
    said = _run(*PLUS, "sweep", "status", f"{store}/first", "--json", cwd=folder)
    return [job["state"] for job in json.loads(said)["jobs"]]


def _pip_settings(folder):
    """Return this machine's settings of pip as a pip.conf, and the volumes with what they name."""
    lines, volumes = ["[global]"], set()
    for line in _run(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        words = value.strip("'").replace("\\n", " ").split()
        lines.append(f"{name.rpartition('.')[2]} = {' '.join(words)}")
        paths = [Path(word.removeprefix("file://")) for word in words if "/" in word]
        for path in paths:
            if path.exists():
                volumes.add(path if path.is_dir() and path.name != "simple" else path.parent)
    (folder / "pip.conf").write_text("\n".join(dict.fromkeys(lines)))
    return folder / "pip.conf", [f"--volume={path}:{path}:ro" for path in sorted(volumes)]


@pytest.fixture
def buildah(tmp_path, monkeypatch):
    """Return a function that runs buildah with a storage of this test's own."""
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root, buildah and debootstrap; missing: {missing or 'root'}")
    settings = tmp_path / "storage.conf"
    places = f'graphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n'
    settings.write_text(f'[storage]\ndriver = "overlay"\n{places}')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(settings))
    yield lambda *words: _run("buildah", *words)
    _run("buildah", "rm", "--all")
    _run("buildah", "rmi", "--all", "--force")


def test_the_image_trains_as_a_user_that_is_not_root(buildah, tmp_path):
    packages = "python3,python3-venv,python3-pip,ca-certificates"
    debian = ("--variant=minbase", f"--include={packages}", "bookworm", f"{tmp_path}/debian")
    _run("debootstrap", *debian)
    base = buildah("from", "scratch").strip()
    buildah("add", "--quiet", base, f"{tmp_path}/debian", "/")
    buildah("commit", "--quiet", "--rm", base, "localhost/debian:bookworm")
    shutil.rmtree(tmp_path / "debian")

    pip_config, volumes = _pip_settings(tmp_path)
    words = ["build", "--no-push", "--tool=buildah", "--base=localhost/debian:bookworm"]
    words += [f"--pip-config={pip_config}", f"--torch-index={TORCH_INDEX}"]
    # Layers that are kept for the next build take as long again.
    said = _run(*PLUS, "cloud", *words, "--", *ISOLATION, *volumes, "--layers=false")
    reference = said.rpartition("built ")[2].partition(";")[0]

    about = json.loads(buildah("inspect", "--type=image", reference))["OCIv1"]["config"]
    assert about["Entrypoint"] == ["rlzoo-plus", "worker"]
    worker = buildah("from", reference).strip()
    inside = ("run", *ISOLATION[:2], f"--volume={tmp_path}/store:/store", worker, "--")
    (tmp_path / "store").mkdir()
    assert buildah(*inside, "id", "-u").strip() == "10001"
    for tool in ("gcc", "make"):
        assert not buildah(*inside, "sh", "-c", f"command -v {tool} || true")
    assert not buildah(*inside, "sh", "-c", "ls -d /etc/pip.conf /context /root/.cache || true")

    _submit(tmp_path / "store", tmp_path)
    _run("chown", "-R", "10001", str(tmp_path / "store"))
    buildah(*inside, *about["Entrypoint"], "/store/first", "--slots=1", "--no-wait")
    assert _states(tmp_path / "store", tmp_path) == ["done"]
    written = (tmp_path / "store" / "live").rglob("*")
    assert {path.stat().st_uid for path in written} == {10001}


def test_a_machine_without_an_image_installs_rlzoo_plus_and_trains(tmp_path, monkeypatch):
    monkeypatch.setitem(image.TORCH_INDEX, False, TORCH_INDEX)
    with project_of_images(monkeypatch, server=True) as project:
        _submit(project.store, tmp_path)
        entry = image.worker_image(project).entry
        environ = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        environ.pop("PYTHONPATH", None)
        python, *words = [*entry, f"{project.store}/first", "--slots=1", "--no-wait"]
        assert python == "python3"
        began = time.monotonic()
        said = _run(sys.executable, *words, cwd=tmp_path, env=environ)
        print(said, f"{time.monotonic() - began:.0f} s")
        assert "rlzoo_plus was installed in" in said
        assert _states(project.store, tmp_path) == ["done"]


def test_the_wheel_that_machines_get_is_the_one_that_hatch_builds(tmp_path):
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT))
    (tmp_path / "ours.zip").write_bytes(wheel.make_wheel())
    with (
        zipfile.ZipFile(tmp_path / wheel.WHEEL) as hatch,
        zipfile.ZipFile(tmp_path / "ours.zip") as ours,
    ):
        assert set(ours.namelist()) == set(hatch.namelist())
        named = [name for name in ours.namelist() if ".dist-info/" not in name]
        assert [name for name in named if ours.read(name) != hatch.read(name)] == []
