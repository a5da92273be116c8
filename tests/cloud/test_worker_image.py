from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from support.images import project_of_images, push_image

from rlzoo_plus.cloud import bootstrap, image
from rlzoo_plus.cloud.wheel import WHEEL, make_wheel
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def project(monkeypatch):
    with project_of_images(monkeypatch) as project:
        yield project


def _objects(project):
    found = boto3.client("s3").list_objects_v2(Bucket=project.store.removeprefix("s3://"))
    return [entry["Key"] for entry in found.get("Contents", ())]


def test_jobs_use_the_image_of_this_very_package_by_its_digest(project):
    push_image(project, "cpu-0123456789abcdef-00000000")
    push_image(project, f"{image.tag_prefix(gpu=True)}00000000")
    digest = push_image(project, f"{image.tag_prefix(gpu=False)}00000000")

    found = image.worker_image(project)

    assert found == image.WorkerImage(f"{project.repository}@{digest}", (), "")
    assert not _objects(project)


def test_without_an_image_machines_install_the_package_that_was_sent(project):
    found = image.worker_image(project)
    again = image.worker_image(project)

    assert found == again
    assert found.uri.startswith("public.ecr.aws/")
    assert "cloud build" in found.note
    how = json.loads(found.entry[-1])
    assert _objects(project) == [how["object"]]
    data = boto3.client("s3").get_object(Bucket=how["bucket"], Key=how["object"])["Body"].read()
    assert hashlib.sha256(data).hexdigest() == how["sha256"]
    assert data == make_wheel()
    assert how["object"].endswith(WHEEL)


def test_the_command_of_a_machine_has_nothing_that_batch_would_replace(project):
    command = " ".join(image.worker_image(project).entry)
    assert "$" not in command
    assert "Ref::" not in command
    # ECS takes 8,192 bytes of overrides, the arguments of the worker and its variables included.
    assert len(command) < 4096


def test_a_project_without_its_repository_is_one_line_with_a_mend(project):
    boto3.client("ecr").delete_repository(repositoryName="lab")
    with pytest.raises(
        ConfigError, match=r"cannot look for images in lab: .*cloud deploy"
    ) as error:
        image.worker_image(project)
    assert "\n" not in str(error.value)


@pytest.fixture
def machine(project, monkeypatch, tmp_path):
    """Return a function that boots a machine whose bucket holds these bytes; what it did."""
    how = json.loads(image.worker_image(project).entry[-1])

    def boot(wheel):
        did = []

        def run(doing, *command):
            did.append(doing)
            if doing == "fetch rlzoo_plus":
                Path(command[-1]).write_bytes(wheel)

        monkeypatch.chdir("/")
        monkeypatch.setattr(bootstrap.tempfile, "mkdtemp", lambda: str(tmp_path))
        monkeypatch.setattr(bootstrap, "run", run)
        monkeypatch.setattr(bootstrap.signal, "signal", lambda number, act: None)
        monkeypatch.setattr(os, "execv", lambda path, words: did.append((os.getcwd(), words)))
        monkeypatch.setenv("PATH", os.environ["PATH"])
        monkeypatch.setattr("sys.argv", ["-c", json.dumps(how), "s3://lab/first", "--spot"])
        try:
            bootstrap.main()
        except SystemExit as end:
            did.append(str(end))
        return did

    return boot


def test_a_machine_goes_on_as_the_worker_in_a_folder_that_it_may_write(machine, tmp_path):
    *_, last = machine(make_wheel())
    python = f"{tmp_path}/bin/python"
    words = [python, "-m", "rlzoo_plus", "worker", "s3://lab/first", "--spot"]
    assert last == (str(tmp_path), words)


def test_a_machine_installs_no_wheel_that_is_not_what_its_name_says(machine):
    did = machine(b"another")
    assert did[:3] == ["start", "install boto3", "fetch rlzoo_plus"]
    assert len(did) == 4
    assert "is not what its name says" in did[3]


def test_a_notice_while_a_machine_installs_asks_for_another_attempt(tmp_path):
    # The module is run as text, as on the machine.
    script = Path(bootstrap.__file__).read_text(encoding="utf-8")
    main = 'if __name__ == "__main__":'
    wait = "def run(*_):\n    print('installing', flush=True)\n    while True: time.sleep(0.1)\n"
    script = script.replace(main, f"{wait}\n{main}")
    words = [sys.executable, "-c", script, json.dumps({"object": "x.whl"})]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environ) as process:
        process.stdout.readline()
        process.terminate()
        assert process.wait(30) == 75
