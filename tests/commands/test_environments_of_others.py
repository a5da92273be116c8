"""What is wrong with an environment is the same finding in `doctor` and in `train`."""

import json
import re
import subprocess
import sys

import pytest
from support.processes import environ_of_tests

pytestmark = pytest.mark.training
# Errors, which both refuse with exit code 2; and the rest, with which both go on.
ERRORS = {
    "OldReset": r"reset\(\) returns an array of shape \(3,\).*migration_guide",
    "OldStep": r"step\(\) returns 4 values.*migration_guide",
    "NanObservation": r"observation has (nan|inf) at \[0\], at step 7 .*return finite ones",
    "NanReward": r"reward is nan at step 7 .*return finite ones",
    "WholeNumbers": r"float32, and would be stored as uint8.*0\.05\d* becomes 0.*dtype=np\.float32",
    "Breaking": r"LinAlgError: Singular matrix \(.*broken_envs\.py, line \d+\)",
    "Lacking": r"No module named 'cv2_that_is_not_there'.*broken_envs\.py, line \d+\)\. "
    r"Install it: pip install cv2-that-is-not-there",
    "Unbounded": "action_space, .*, has no bounds.*finite low and high",
    "Worded": r"mission \(Mission\)\. Keep the others: .*\[direction, image\].*flatten_observation",
    "SmallImage": r"images of 7x7.*36x36 at least\. Set network\.policy=mlp",
    "StartsBelowZero": r"Discrete\(3, start=-1\), does not start at 0.*\[plain_spaces\]",
    "SeveralStart": r"has several dimensions, and actions are flat.*\[plain_spaces\]",
    "SeenFromTwo": r"has Discrete\(4, start=2\), which does not start at 0.*\[plain_spaces\]",
    "TwoAxes": r"which has several dimensions.*\[plain_spaces\]",
    "OneNumber": r"which is a number without a dimension.*\[plain_spaces\]",
    "NothingToDecide": "has nothing to decide",
    "Asserting": r"cannot be made: AssertionError: assert width > 5 \(.*broken_envs\.py, line",
    "Locked": r"info\['lock'\], a lock, cannot be copied: .*Leave it out",
    "SeveralAgents": "has several agents, and the algorithms here train one",
}
WARNINGS = {
    "OtherType": r"type float64, its observation_space of float32.*astype\(np\.float32\)",
    "OutOfRange": r"observation is 5 at \[0\].* goes from -1 to 1 there.*bounds",
    "Whole": r"action_space is of int64, and ppo acts with fractions.*\[plain_spaces\]",
    "FloatImage": r"\(3, 40, 40\) and float32 .*MLP as 4,800 numbers.*return uint8 images",
    "GreyImage": r"\(40, 40\) and uint8 .*MLP.*\{reshape_observation: \{shape: \[1, 40, 40\]\}\}",
    "StackedImages": r"\(4, 40, 40, 3\) .*MLP.*env\.frame_stack=4",
    "Clocked": "exact resume: no, because the reward of step 1 of the episode differs",
    "Endless": r"has no time limit.*cut after 10,000 steps.*env\.time_limit=1000",
}
SHORT = (
    "env=gym", "env.packages=[support.broken_envs]", "algo=ppo", "n_timesteps=64", "n_envs=2",
    "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "algo.hyperparams.n_epochs=1",
    "eval.every_steps=null", "report.plot=false", "report.video=false", "log.tensorboard=false",
    "device=cpu", "num_threads=1",
)  # fmt: skip


def test_doctor_and_train_find_the_same(answer):
    ids = {name: f"env.id=broken/{name}-v0" for name in (ERRORS | WARNINGS)}
    together = "env.id=" + ",".join(word.partition("=")[2] for word in ids.values())
    code, by_doctor = answer("doctor", "--no-probe", "--json", *SHORT, together)
    assert code == 2
    findings = json.loads(by_doctor[by_doctor.index("{") :])["findings"]
    said = {}
    for name, pattern in (ERRORS | WARNINGS).items():
        level = "error" if name in ERRORS else "warning"
        jobs = {one["text"]: one for one in findings if ids[name] in one["jobs"]}
        found = [text for text in jobs if re.search(pattern, text)]
        assert found, (name, list(jobs))
        assert jobs[found[0]]["level"] == level
        said[name] = found[0]
    # A third of them shows that both say the same.
    for name in [*said][::3]:
        code, text = answer("train", *SHORT, ids[name])
        assert (name, code) == (name, 2 if name in ERRORS else 0)
        assert "Traceback" not in text
        assert said[name] in text.replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize("vec_env", ["auto", "subproc"])
def test_an_error_in_the_middle_of_a_training_keeps_its_place(answer, vec_env):
    words = [word for word in SHORT if "packages" not in word]
    words += ["env.packages=[support.tiny_envs]", "env.id=tests/TinyReach-v0"]
    words += ["env.wrappers=[{support.tiny_envs.Late: {at_step: 50}}]", f"vec_env={vec_env}"]
    words[words.index("n_timesteps=64")] = "n_timesteps=256"
    levels = {"info": False, "debug": True} if vec_env == "auto" else {"info": False}
    for level, has_traceback in levels.items():
        code, text = answer("train", *words, f"log.level={level}")
        assert code == 1
        found = r"step\(\) raises RuntimeError: the wrapper broke \(.*tiny_envs\.py, line \d+\)"
        assert re.search(found, text), text
        assert ("Traceback" in text) is has_traceback


@pytest.mark.parametrize("env", ["StartsBelowZero", "SeveralStart", "SeenFromTwo", "TwoAxes"])
def test_plain_spaces_translates_for_training_and_evaluation(answer, env):
    words = [*SHORT, f"env.id=broken/{env}-v0", "env.wrappers=[plain_spaces]", "run_dir=run"]
    code, text = answer("train", *words)
    assert code == 0, text
    code, text = answer("evaluate", "run", "--which", "final", "--trust", "--episodes", "2")
    assert code == 0, text


def test_hindsight_replay_waits_for_the_first_episode(answer):
    words = [w for w in SHORT if not w.startswith(("env.packages", "algo", "n_timesteps"))]
    words += ["env.packages=[support.tiny_envs]", "env.id=tests/TinyGoal-v0", "algo=her"]
    words += [
        "n_timesteps=40",
        "algo.hyperparams.learning_starts=2",
        "algo.hyperparams.batch_size=4",
    ]
    code, text = answer("train", *words)
    assert code == 0, text
    assert "updates begin with the end of the first episode" in text
    code, text = answer("train", *words, "algo.hyperparams.buffer_size=10", "env.time_limit=8")
    assert code == 2
    assert "holds 5 steps of each environment" in text
    assert "at least 16 (n_envs=2 times 8 steps)" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(("first", "code"), [(0, 2), (70, 1)])
def test_an_info_that_cannot_be_pickled_is_named(tmp_path, first, code):
    words = [*SHORT, "env.id=broken/Chatty-v0", f"env.kwargs={{first: {first}}}"]
    command = [sys.executable, "-m", "rlzoo_plus", "train", *words, "vec_env=subproc"]
    command += ["n_timesteps=256"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=tmp_path, env=environ_of_tests(), check=False, **pipes)
    text = done.stdout
    assert done.returncode == code, text
    assert "info['call'], a function, cannot be pickled for vec_env=subproc" in text
    assert "Traceback" not in text
