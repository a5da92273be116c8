"""Repositories of others: nothing is executed, nothing lands elsewhere, sizes are bounded."""

import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path

import pytest
import yaml
from support.evil_files import PICKLE, Payload
from support.hub import REPO, RUN

import rlzoo_plus as rz
from rlzoo_plus.commands import dispatch

pytestmark = pytest.mark.training
EVIL = "evil/policy"


@pytest.fixture
def refused(pushed, say):
    """Return a function: pull the evil repository, see that nothing is left, return the line."""

    def pull(*words):
        before = set(Path().rglob("*"))
        code, out, err = say("hub", "pull", EVIL, "--to", "pulled", *words)
        assert code == 2, out
        assert err.count("\n") == 1, err
        left = {path for path in set(Path().rglob("*")) - before if path.is_file()}
        assert left == set()
        return err

    return pull


@pytest.fixture(autouse=True)
def nothing_runs(here):
    yield
    assert not list(here.rglob("PWNED"))


def downloads(server):
    return [path.partition("/resolve/")[2] for _, path, *_ in server.requests if "resolve" in path]


def with_manifest(repo, **changes):
    """Return files with entries of the manifest of best/ changed, and its own hash right."""
    manifest = json.loads(repo["best/MANIFEST.json"])
    manifest.pop("sha256")
    manifest |= changes
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    data = json.dumps({**manifest, "sha256": digest}).encode()
    return {**repo, "best/MANIFEST.json": data}


def test_pickles_and_names_that_lead_elsewhere_stay_on_the_hub(pushed, files, say, here):
    names = (
        *("best/policy.pkl", "pytorch_model.bin", "model.zip", "evil.py", "best/evil.py"),
        *("../escaped.json", "/tmp/escaped.json", "best/../../escaped.json", "best\\..\\x.json"),
        *("episodes/../../x.npz", "episodes/episode-0000.json/x", ".git/hooks/pre-push", "\x1b[2J"),
    )
    pushed.put(EVIL, {**files, **dict.fromkeys(names, PICKLE)})
    code, out, err = say("hub", "pull", EVIL, "--to", "pulled")
    assert code == 0, err
    assert "note: left there:" in err
    assert "\x1b" not in err + out
    there = {path.relative_to("pulled").as_posix() for path in Path("pulled").rglob("*.*")}
    state = {name for name in files if name.startswith(("checkpoints/", "monitor/"))}
    assert there - {"hub.json"} == set(files) - state
    assert not any(name in asked for asked in downloads(pushed) for name in ("evil", "escaped"))
    assert {path.name for path in here.iterdir()} <= {"pulled", "cache"}


def test_a_claim_of_ten_gigabytes_is_refused_before_anything_is_asked_for(pushed, files, refused):
    pushed.put(EVIL, files)
    pushed.sizes["best/tensors.safetensors"] = 10 * 2**30
    assert "has 10,737,418,240 bytes, and at most" in refused()
    assert downloads(pushed) == []


def test_more_than_was_listed_is_not_written(pushed, files, refused):
    pushed.put(EVIL, files)
    pushed.contents["best/tensors.safetensors"] = b"x" * 2**24
    assert "tensors.safetensors has more than the" in refused()


@pytest.mark.parametrize("name", ["best/tensors.safetensors", "config.yaml"])
def test_other_content_of_the_same_size_is_refused(pushed, files, refused, name):
    pushed.put(EVIL, files)
    pushed.contents[name] = bytes(len(files[name]))
    assert f"{name} is not what the Hub lists: hashes differ" in refused()


def test_less_than_was_listed_is_refused(pushed, files, refused):
    pushed.put(EVIL, files)
    pushed.contents["config.yaml"] = b"x"
    assert "config.yaml has not the" in refused()


def test_a_link_is_a_file_with_a_path_in_it(pushed, files, refused):
    # Git keeps a link as its target's path.
    pushed.put(EVIL, {**files, "config.yaml": b"../../../../etc/passwd"})
    assert "config.yaml" in refused()


def test_all_files_are_those_of_one_commit_although_a_newer_one_arrives(pushed, files, say):
    first = pushed.put(EVIL, files)

    def push_another():
        if len(pushed.repos[EVIL].commits) == 1:
            pushed.put(EVIL, dict.fromkeys(files, b"newer"))

    pushed.before_download = push_another
    code, out, err = say("hub", "pull", EVIL, "--to", "pulled")
    assert code == 0, err
    assert f"({EVIL}@{first})" in out
    assert Path("pulled/README.md").read_bytes() == files["README.md"]
    assert pushed.repos[EVIL].head != first


def test_a_pinned_commit_is_the_same_after_a_newer_revision(pushed, files, say):
    first = pushed.put(EVIL, files)
    pushed.put(EVIL, {**files, "best/MANIFEST.json": b"{}"})
    assert say("verify", f"hf://{EVIL}@{first}")[0] == 0
    code, _, err = say("verify", f"hf://{EVIL}")
    assert code == 2
    assert "MANIFEST.json" in err


def test_a_bundle_of_a_newer_format_is_refused(pushed, files, refused):
    about = {**json.loads(files["best/MANIFEST.json"])["about"], "schema": 99}
    pushed.put(EVIL, with_manifest(files, about=about))
    assert "schema 99 is not known here" in refused()


def test_a_bundle_whose_hashes_are_wrong_is_refused(pushed, files, refused):
    pushed.put(EVIL, {**files, "best/tensors.safetensors": files["final/policy.json"]})
    assert "tensors.safetensors was changed" in refused()


def test_a_pickle_in_place_of_weights_is_refused(pushed, files, refused):
    listed = json.loads(files["best/MANIFEST.json"])["files"]
    digest = hashlib.sha256(PICKLE).hexdigest()
    listed["tensors.safetensors"] = {"size": len(PICKLE), "sha256": digest}
    made = with_manifest({**files, "best/tensors.safetensors": PICKLE}, files=listed)
    pushed.put(EVIL, made)
    assert "not a bundle" in refused()


def test_code_that_a_run_names_is_not_imported_without_trust(pushed, files, say, here):
    config = yaml.safe_load(files["config.yaml"])
    config["env"]["packages"] = ["evil_package"]
    (here / "evil_package.py").write_text("open('PWNED', 'w')")
    pushed.put(EVIL, {**files, "config.yaml": yaml.safe_dump(config).encode()})
    for words in (("evaluate", f"hf://{EVIL}"), ("verify", f"hf://{EVIL}")):
        code, _, err = say(*words)
        assert code == 2
        assert "add --trust" in err


def test_a_repository_without_a_policy_is_said(pushed, refused):
    pushed.put(EVIL, {"README.md": b"hello", "model.pkl": PICKLE})
    assert "holds neither a policy of rlzoo_plus" in refused()
    assert downloads(pushed) == []


@pytest.fixture(scope="module")
def zipped(pushed_once, tmp_path_factory):
    """Return a zip of Stable-Baselines3."""
    file = tmp_path_factory.mktemp("sb3") / "model.zip"
    words = [str(pushed_once / RUN), "--format", "sb3", "--output", str(file)]
    assert dispatch.run("export", words) == 0
    return file.read_bytes()


def test_an_agent_of_sb3_is_read_by_its_name_and_as_it_was(pushed, zipped, say):
    pushed.put("sb3/demo", {"ppo-cartpole_bullet.zip": zipped, "replay.mp4": b"x", "a.pkl": PICKLE})
    code, _, err = say("hub", "pull", "sb3/demo", "--to", "pulled")
    assert code == 0, err
    ours, theirs = rz.load_policy("pulled"), rz.load_policy(f"hf://{REPO}")
    state = theirs.network.state_dict()
    assert all((value == state[name]).all() for name, value in ours.network.state_dict().items())
    assert not any(".pkl" in name for name in downloads(pushed))
    assert rz.load_policy("hf://sb3/demo").step == ours.step
    pushed.put("sb3/demo", {"mine.zip": zipped})
    code, _, err = say("hub", "pull", "sb3/demo", "--to", "other")
    assert code == 2
    assert "add --algo" in err
    words = ("--to", "other", "--algo", "ppo", "--env", "cartpole_bullet")
    assert say("hub", "pull", "sb3/demo", *words)[0] == 0


def test_a_pickle_in_an_agent_of_sb3_is_never_run(pushed, zipped, refused):
    data = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(zipped)) as old, zipfile.ZipFile(data, "w") as new:
        for name in old.namelist():
            new.writestr(name, PICKLE if name == "policy.pth" else old.read(name))
    name = "ppo-cartpole_bullet.zip"
    pushed.put(EVIL, {name: data.getvalue()})
    assert "policy.pth" in refused()
    pushed.put(EVIL, {name: zipped, "vec_normalize.pkl": pickle.dumps(Payload())})
    assert "was refused" in refused()
    config = b"!!python/object/apply:os.system ['touch PWNED']"
    pushed.put(EVIL, {name: zipped, "config.yml": config, "args.yml": config})
    assert "config.yml" in refused()
    pushed.put(EVIL, {"ppo-a.zip": zipped, "sac-b.zip": zipped})
    assert "Name one with --zip" in refused()
