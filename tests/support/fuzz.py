"""Draws of wrong and odd configurations: keys of the schema, with values that no key expects."""

import contextlib
import copy
import random
from dataclasses import dataclass, field
from pathlib import Path

from support.libraries import ACTING, is_of_sbx
from support.training import tiny_config

from rlzoo_plus.commands import dispatch
from rlzoo_plus.commands.typed import make_console
from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.runs.plan import plan_run
from rlzoo_plus.runs.train_job import check_before_building, run_plan

ENVS = {
    "her": "tests/TinyGoal-v0",
    "maskable_ppo": "tests/TinyMasked-v0",
    "dqn": "CartPole-v1",
    "qrdqn": "CartPole-v1",
    "sac_discrete": "CartPole-v1",
}
NAN, INF = float("nan"), float("inf")
DEEP = {"a": {"b": {"c": [[[{"d": None}]]]}}}
NUMBERS = (
    *(0, 1, -1, 2, 3, -5, 7, 64, 1000, 10**6, 10**9, 10**15, 10**20, -(10**20)),
    *(0.0, 0.5, -0.5, 1.5, 1.0, 1e-300, 1e300, NAN, INF, -INF, 1e6),
)
TEXTS = (
    *("", " ", "auto", "null", "none", "mlp", "cnn", "relu", "a/b", "../x", "~", "~/x", "/", "."),
    *("a\nb", "é名", "\0", "x" * 300, "${seed}", "lin_1e-3", "cos_", "exp_0", "auto_0"),
    *("os.system", ".x", "no.such.module", "1", "1e400", "cuda:99", "her", "nstep", "normal"),
)
NESTED = (
    *([], {}, [1], [8, 8], ["a"], [None], [[1]], [1.5], [-1], [10**12], [1, "episode"]),
    *([4, "step"], {"a": 1}, {1: 2}, {"": None}, DEEP, [DEEP], {"type": "normal", "std": NAN}),
    *({"observation": 1}, {"actor": [8], "critic": [8]}, {"actor": [0], "critic": []}),
    *({"name": "wandb"}, ["time_feature"]),
)
WORDS = (
    *("algo=pppo", "env=nothing", "tuned=ppo/none_such", "network=smal", "infra=cloud"),
    *("tracker=x", "hpo=ppo", "experiment=x", "+x=1", "++a.b=1", "~seed", "~env", "env=null"),
    *("algo=", "=5", "seed", "seed=[1", "env.kwargs={a:", 'a"b=1', "run_dir=~/x", "seed=1,2"),
    *("seed=${nothing}", "hydra=5", "hydra.job=5", "hydra.run.dir=x", "env@x=cartpole"),
    *("env=[cartpole]", "--cfg=jab", "-x", "--", "seed=???", "network.net_arch.actor.x=1"),
    *("env.id.x=1", "a" * 3000 + "=1", "study=x", "trial=1"),
)
# Far more than a draw may take: what is larger is checked, and not built.
MOST_STEPS, MOST_ENVS, MOST_BATCH = 2000, 16, 10_000
FEW = 3
# One for each wrong key, of which a replaced section has several.
MOST_LINES = 6


@dataclass
class Tally:
    """How draws ended."""

    refused: int = 0
    built: int = 0
    trained: int = 0
    broken_off: int = 0
    resolved: int = 0
    failures: list[str] = field(default_factory=list)


def draw(number: int) -> tuple[str, dict[str, object], list[str]]:
    """Return an algorithm, values by dotted key, and words of a command line instead of those."""
    rng = random.Random(number)
    # Those of sbx compile for seconds, and their library may be missing.
    algo = rng.choice(sorted(algo for algo in ACTING if not is_of_sbx(algo)))
    if number % 10 == 0:
        return algo, {}, rng.sample(WORDS, rng.choice((1, 1, 2)))
    keys = list(_keys(base_values(algo)))
    changes = {}
    for key in rng.sample(keys, rng.choice((1, 1, 2))):
        if rng.random() < 0.05:
            key = "".join(rng.sample(key, len(key)))
        changes[key] = copy.deepcopy(_value(rng, _at(base_values(algo), key)))
    return algo, changes, []


def _value(rng: random.Random, usual: object) -> object:
    """Return a value, half of the time of the kind that the key has."""
    if rng.random() < 0.5:
        kinds = {bool: (True, False), int: NUMBERS, float: NUMBERS, str: TEXTS}
        return rng.choice(kinds.get(type(usual), NESTED))
    return rng.choice((None, True, False, *NUMBERS, *TEXTS, *NESTED))


def _at(values: object, key: str) -> object:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def base_values(algo: str) -> dict[str, object]:
    """Return the values of a run that trains in a moment."""
    extra = ["eval.every_steps=null", "checkpoint.every_minutes=null", "report.plot=false"]
    env = ENVS.get(algo, "tests/TinyReach-v0")
    config = tiny_config(algo, env, *extra, "report.video=false", "n_timesteps=32")
    return config.model_dump()


def play(number: int, folder: Path, tally: Tally) -> None:
    """Do with a draw what `train` does, in a folder of its own; note how it ended.

    One of `FEW` that can be built is trained.
    """
    algo, changes, words = draw(number)
    about = f"draw {number}: {algo} {changes or words!r}"
    inside = folder / "a" / "b" / "c"
    inside.mkdir(parents=True)
    before = set(folder.rglob("*"))
    try:
        with contextlib.chdir(inside):
            if words:
                _command(words, tally)
            else:
                _run(_changed(base_values(algo), changes), tally, trains=number % FEW == 0)
    except ConfigError as error:
        tally.refused += 1
        lines = str(error).splitlines()
        if not lines or len(lines) > MOST_LINES or max(map(len, lines)) > 1500:
            tally.failures.append(f"{about}\n  unclear: {error!r}")
        left = set(folder.rglob("*")) - before
        if any(path.is_file() for path in left):
            tally.failures.append(f"{about}\n  left {left}")
    except RunError:
        tally.broken_off += 1
    except Exception as error:
        tally.failures.append(f"{about}\n  {type(error).__name__}: {error}")


def _command(words: list[str], tally: Tally) -> None:
    """Start a command with words that cannot be right; it must end before it trains."""
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    try:
        code = dispatch.run("train", [*words, "n_timesteps=32", "algo.name=none_such"])
    except SystemExit as stop:
        # Hydra's own parser of options.
        code = stop.code
    finally:
        GlobalHydra.instance().clear()
    assert code == 2, f"exit code {code}"
    tally.refused += 1


def _run(values: dict[str, object], tally: Tally, *, trains: bool) -> None:
    config = resolve(values).config
    if not _is_small(config):
        tally.resolved += 1
        return
    plan = plan_run(config)
    problem = check_before_building(plan)
    if trains:
        run_plan(plan, problem, make_console(), "a draw")
        tally.trained += 1
        return
    _build(config)
    tally.built += 1


def _build(config) -> None:
    from rlzoo_plus.agents.devices import check_device
    from rlzoo_plus.agents.factory import make_agent
    from rlzoo_plus.envs.factory import make_train_env
    from rlzoo_plus.training.callbacks import check_user_callbacks

    check_device(config.device)
    check_user_callbacks(config)
    venv = make_train_env(config, 0)
    try:
        make_agent(config, venv, 0)
    finally:
        venv.close()


def _is_small(config) -> bool:
    values = config.algo.hyperparams
    counts = ("gradient_steps", "n_epochs", "n_delta", "batch_size", "n_eval_episodes")
    counts += ("cg_max_steps", "n_critic_updates", "line_search_max_iter", "stats_window_size")
    sizes = [values.get(key) or 1 for key in counts]
    rollout = int(values.get("n_steps", 1)) * config.n_envs
    episodes = config.eval.episodes if isinstance(config.eval.episodes, int) else 0
    return (
        max(config.n_timesteps, rollout, episodes) <= MOST_STEPS
        and config.n_envs <= MOST_ENVS
        and config.vec_env != "subproc"
        and config.env.frame_stack <= MOST_ENVS
        and max(sizes) <= MOST_BATCH
        and (config.network.lstm.hidden_size or 1) <= MOST_BATCH
        and (config.network.n_quantiles or 1) <= MOST_BATCH
        and config.tracker is None
    )


def _keys(values: object, path: str = "") -> list[str]:
    """Return the dotted keys of nested values, sections among them."""
    if not isinstance(values, dict):
        return []
    keys = []
    for name, value in values.items():
        dotted = f"{path}.{name}" if path else str(name)
        keys += [dotted, *_keys(value, dotted)]
    return keys


def _changed(values: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    values = copy.deepcopy(values)
    for dotted, value in changes.items():
        *path, last = dotted.split(".")
        node = values
        for part in path:
            if not isinstance(node.get(part), dict):
                node[part] = {}
            node = node[part]
        node[last] = value
    return values
