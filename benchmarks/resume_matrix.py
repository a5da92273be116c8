"""Every algorithm on every kind of environment: killed, resumed, and compared bit for bit.

    python -m benchmarks.resume_matrix [--only sac] [--only td3] [--kills 3] [--list]

Each row is `rlzoo-plus verify-resume` on short runs; the five marked ones are killed 20 times.
Rows whose name begins with `with` have what a run may have beside its algorithm: exploration,
priorities, demonstrations, teachers, a learned reward and so on.
Where the extra `sbx` is installed, its algorithms have rows as well.
Exits with 1 if any row differs, with 2 if --only names no row.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.trained import call

ROOT = Path(__file__).resolve().parents[1]
# The image and goal environments of the tests; the trial's processes need them too.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
sys.path.insert(0, str(ROOT / "tests"))

ON_POLICY = ("ppo", "a2c", "trpo", "recurrent_ppo")
OFF_POLICY = ("sac", "td3", "ddpg", "tqc", "crossq")
MANY = 20

TINY = ["env.packages=[support.tiny_envs]", "tuned=none"]
LEARN_EARLY = ["algo.hyperparams.learning_starts=200", "algo.hyperparams.buffer_size=2000"]
NETWORK = ["network.net_arch=[32,32]"]
# Large enough for products in bfloat16.
LARGE = "network.net_arch=[256,256]"
CARTPOLE = ["env=cartpole_bullet"]
DISCRETE = [*CARTPOLE, "env.kwargs.discrete=true"]
PENDULUM = ["env=pendulum"]
CHEETAH = ["env=halfcheetah_bullet", "normalize=true"]
GOAL = ["env=panda_reach_dense", "n_envs=1"]
IMAGE = ["env.id=tests/TinyImage-v0", "n_envs=2", *TINY]
SUBPROC = ["vec_env=subproc", "n_envs=2"]
MOUNTAIN = ["env=mountain_car_continuous", "normalize=true"]
WALKER = ["env=a1_walk", "env.kwargs.engine=mujoco", "n_envs=2"]
TEACHER = "teacher=trained/cartpole_bullet"
CLONED = [*CARTPOLE, "num_threads=1", "eval.episodes=2"]
N_STEP = "algo.hyperparams.n_steps=3"

# What some rows need, made in the folder of --out, and what it is made from.
DATA, ANSWERS, REWARD, KEY = "demonstrations", "answers", "reward", "RESUME_MATRIX_KEY"

Row = tuple[str, list[str], int, int]


def rows(folder: Path) -> list[Row]:
    """Return name, overrides, length and kills of each row; 0 kills stands for the option's."""
    table: list[Row] = []
    for algo in (*ON_POLICY, *OFF_POLICY, "ars"):
        many = MANY if algo in ("ppo", "sac") else 0
        table.append((f"{algo} cart-pole", _of(algo, CARTPOLE), _length(algo, 8), many))
        table.append((f"{algo} Pendulum", _of(algo, PENDULUM, "n_envs=2"), _length(algo, 2), 0))
        many = MANY if algo == "recurrent_ppo" else 0
        table.append(
            (f"{algo} HalfCheetah", _of(algo, CHEETAH, "n_envs=2"), _length(algo, 2), many)
        )
    for algo in ("dqn", "qrdqn"):
        many = MANY if algo == "dqn" else 0
        table.append((f"{algo} cart-pole", _of(algo, DISCRETE), 1200, many))
        table.append((f"{algo} images", _of(algo, IMAGE, "env.kwargs.discrete=true"), 400, 0))
    table.append(
        ("maskable_ppo tiny", _of("maskable_ppo", ["env.id=tests/TinyMasked-v0", *TINY]), 512, 0)
    )
    table.append(("her goal", _of("her", GOAL), 600, MANY))
    for algo in ("ppo", "sac", "tqc"):
        table.append((f"{algo} goal", _of(algo, GOAL), _length(algo, 1), 0))
    for algo in ("ppo", "a2c", "recurrent_ppo", "sac", "td3"):
        stack = "env.frame_stack=2"
        table.append(
            (f"{algo} images", _of(algo, IMAGE, stack), 256 if algo in ON_POLICY else 320, 0)
        )
    for algo in ("ppo", "a2c", "sac", "td3"):
        name = f"{algo} HalfCheetah, processes"
        table.append((name, _of(algo, CHEETAH, *SUBPROC), _length(algo, 2), 0))
    noise = "algo.action_noise={type: ou, std: 0.2}"
    table.append(("td3 Pendulum, OU noise", _of("td3", PENDULUM, noise, "n_envs=2"), 700, 0))
    sde = "algo.hyperparams.use_sde=true"
    table.append(
        (
            "sac Pendulum, gSDE, n-step",
            _of("sac", PENDULUM, sde, "algo.hyperparams.n_steps=3"),
            700,
            0,
        )
    )
    fast = [(algo, "true") for algo in ("ppo", "a2c", "sac", "td3", "ddpg", "tqc")]
    for algo, how in (*fast, ("sac", "bfloat16"), ("td3", "bfloat16"), ("tqc", "bfloat16")):
        words = _of(algo, CHEETAH, "n_envs=2", f"fast={how}", LARGE)
        table.append((f"{algo} HalfCheetah, fast={how}", words, _length(algo, 2), 0))
    if find_spec("sbx") is not None:
        for algo in ("ppo", *OFF_POLICY):
            words = _of(f"sbx_{algo}", CHEETAH, "n_envs=2")
            table.append((f"sbx_{algo} HalfCheetah", words, _length(algo, 2), 0))
        table.append(("sbx_dqn cart-pole", _of("sbx_dqn", DISCRETE), 1200, 0))
    return table + [(f"with {name}", words, n, 0) for name, words, n in _more_rows(folder)]


def _more_rows(folder: Path) -> list[tuple[str, list[str], int]]:
    """Return rows with what a run may have beside its algorithm; `_prepare` fills the folder."""
    data, model = f"data={folder / DATA}", f"reward_model={folder / REWARD}"
    stages = "curriculum=[{set: {env.kwargs.force_n: 20}, until: {steps: 256}}]"
    unseen = "env.kwargs.randomization={payload: {uniform: [0, 4]}, latency: {choice: [0, 1, 2]}}"
    memory = ["env.wrappers=[mask_velocity]", "network=recurrent", "network.lstm.hidden_size=16"]
    off = 700
    return [
        ("ppo exploration=rnd", _of("ppo", MOUNTAIN, "exploration=rnd", "exploration.end=0"), 768),
        ("sac exploration=rnd", _of("sac", PENDULUM, "exploration=rnd", "normalize=true"), off),
        *(
            (f"{algo} exploration={name}", _of(algo, env, f"exploration={name}"), length)
            for algo, name, env, length in (
                *(("td3", name, PENDULUM, off) for name in ("normal", "ou", "pink")),
                ("td3", "parameter_noise", PENDULUM, off),
                ("dqn", "boltzmann", DISCRETE, 1200),
                ("dqn", "epsilon_greedy", DISCRETE, 1200),
                ("ppo", "gsde", CARTPOLE, 3072),
            )
        ),
        ("dqn prioritized, n-step", _of("dqn", DISCRETE, _replay("prioritized"), N_STEP), 1200),
        ("qrdqn prioritized", _of("qrdqn", DISCRETE, _replay("prioritized")), 1200),
        *(
            (f"{algo} lap, n-step", _of(algo, PENDULUM, _replay("lap"), N_STEP), off)
            for algo in ("sac", "td3", "tqc", "crossq")
        ),
        ("sac log of actions", _of("sac", CARTPOLE, "log.actions=true"), off),
        ("sac encryption", _of("sac", CARTPOLE, f"encryption={KEY}", "log.actions=true"), off),
        ("ppo curriculum", _of("ppo", CARTPOLE, "n_envs=2", stages), 1536),
        *(
            (f"{algo} symmetry={how}", _of(algo, env, f"algo.symmetry={how}"), length)
            for algo, how, env, length in (
                ("ppo", "augment", WALKER, 1536),
                ("ppo", "loss", WALKER, 1536),
                ("sac", "augment", CARTPOLE, off),
            )
        ),
        ("ppo privileged critic", _of("ppo", WALKER, unseen, "env.kwargs.privileged=true"), 1536),
        ("ppo reward model", _of("ppo", CARTPOLE, "n_envs=2", model), 1536),
        ("sac reward model", _of("sac", CARTPOLE, model), off),
        ("sac demonstrations", _of("sac", CARTPOLE, data, "network=layer_norm"), off),
        ("sac simba", _of("sac", PENDULUM, "network=simba"), off),
        ("td3 resnet", _of("td3", PENDULUM, "network=resnet"), off),
        ("crossq droq", _of("crossq", PENDULUM, "network=droq"), off),
        ("sac_discrete", _of("sac_discrete", DISCRETE), off),
        ("recurrent_sac", _of("recurrent_sac", PENDULUM, *memory), off),
        ("bc", ["algo=bc", *CLONED, data], 4096),
        ("bc_sac", ["algo=bc_sac", *CLONED, data], 4096),
        ("dagger", ["algo=dagger", *CLONED, TEACHER], 4096),
        ("distill", ["algo=distill", *CLONED, TEACHER], 4096),
    ]


def _replay(name: str) -> str:
    return f"algo.replay_buffer={name}"


def _of(name: str, env: list[str], *more: str) -> list[str]:
    algo = name.removeprefix("sbx_")
    chosen = {word.partition("=")[0] for word in (*env, *more)}
    words = [f"algo={name}", "num_threads=1", "eval.episodes=2", *env, *more]
    words += ["algo.hyperparams.n_epochs=3"] if algo in ("ppo", "recurrent_ppo") else []
    if algo in ON_POLICY or algo == "maskable_ppo":
        steps = 32 if "env.id=tests/TinyImage-v0" in env or algo == "maskable_ppo" else 128
        words.append(f"algo.hyperparams.n_steps={steps}")
        if algo != "a2c":
            words.append("algo.hyperparams.batch_size=32")
    elif algo != "ars":
        words += LEARN_EARLY
    if "tuned" not in chosen:
        words.append("tuned=none")
    if algo != "ars" and "network.net_arch" not in chosen:
        words += NETWORK
    return words


def _length(algo: str, n_envs: int) -> int:
    if algo in OFF_POLICY or algo == "her":
        return 700
    if algo == "ars":
        return 3000
    rollouts = 6 if n_envs < 4 and algo != "recurrent_ppo" else 4
    return 128 * n_envs * rollouts


def main() -> int:
    """Verify the rows and print a table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="rows whose name contains this; may be given several times",
    )
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--list", action="store_true", help="print the commands only")
    told = "where demonstrations and a reward model are kept, which some rows need"
    out = Path("outputs/resume_matrix")
    parser.add_argument("--out", type=Path, default=out, metavar="FOLDER", help=told)
    options = parser.parse_args()
    folder = options.out.resolve()
    try:
        chosen = _chosen(rows(folder), options.only)
    except ValueError as error:
        parser.error(str(error))
    os.environ.setdefault(KEY, secrets.token_hex(32))
    failed = []
    for name, overrides, steps, many in chosen:
        kills = many or options.kills
        if options.list:
            trial = shlex.join([*overrides, "--steps", str(steps), "--kills", str(kills)])
            print(f"rlzoo-plus verify-resume {trial}")
            continue
        _prepare(folder, overrides)
        if not _verify(name, overrides, steps, kills):
            failed.append(name)
    if options.list:
        return 0
    print(f"failed: {', '.join(failed)}" if failed else f"all {len(chosen)} identical")
    return 1 if failed else 0


def _chosen(table: list[Row], only: list[str] | None) -> list[Row]:
    """Return the rows whose name contains one of these texts, all of them without any.

    Raises:
        ValueError: A text is in the name of no row.
    """
    names = [row[0] for row in table]
    for text in only or []:
        if not any(text in name for name in names):
            raise ValueError(f"--only {text}: is in the name of no row. Rows: {'; '.join(names)}")
    return [row for row in table if only is None or any(text in row[0] for text in only)]


def _prepare(folder: Path, overrides: list[str]) -> None:
    """Make what a row needs, unless it is there: demonstrations, or a reward model."""
    data, answers, model = (folder / name for name in (DATA, ANSWERS, REWARD))
    if f"data={data}" in overrides and not data.exists():
        call("collect", "trained/cartpole_bullet", "--episodes", "3", "--out", str(data))
    if f"reward_model={model}" in overrides and not model.exists():
        rater = ("--rater", "synthetic:mistake=0.1")
        call("prefer", "trained/cartpole_bullet", "--out", str(answers), *rater)
        call("prefer", str(answers), "--fit", str(model))


def _verify(name: str, overrides: list[str], steps: int, kills: int) -> bool:
    from rlzoo_plus.doctor.verify_resume import TrialFailedError, shortened, verify
    from rlzoo_plus.runs.load import load

    config = shortened(load(overrides), steps)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rlzoo-matrix-") as folder:
        try:
            verdict = verify(config, Path(folder), kills=kills, say=lambda _: None)
        except TrialFailedError as error:
            print(f"| {name} | failed: {error}", flush=True)
            return False
    word = "identical" if verdict.is_identical else "DIFFERENT"
    print(
        f"| {name} | {config.n_envs} x {config.vec_env} | {config.n_timesteps:,} | {verdict.kills} "
        f"({verdict.while_writing}) | {len(verdict.expected)} | {word} | "
        f"{time.monotonic() - started:.0f} s |",
        flush=True,
    )
    for part in verdict.expected:
        if verdict.expected[part] != verdict.found.get(part):
            print(f"  differs: {part}", flush=True)
    for reason in verdict.inexact_because:
        print(f"  not exact: {reason}", flush=True)
    return verdict.is_identical


if __name__ == "__main__":
    sys.exit(main())
