"""Runs written through the project's own record formats, without training."""

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir

STEPS = (1000, 2000, 3000, 4000)


def write_run(
    root,
    algo="ppo",
    env="cartpole",
    seed=0,
    score=100.0,
    *,
    state="finished",
    name=None,
    steps=STEPS,
    message="",
    about_env=None,
    **values,
):
    """Write a run whose evaluations rise to `score`; `values` are hyperparameters."""
    run = RunDir(root / env / algo / (name or f"s{seed}"))
    run.path.mkdir(parents=True)
    config = {
        "env": {"name": env, "id": f"{env}-v0", "kwargs": {}, "solved_return": None},
        "algo": {"name": algo, "hyperparams": {"gamma": 0.99, **values.pop("hyperparams", {})}},
        "n_timesteps": steps[-1] if steps else 4000,
        "seed": seed,
        "eval": {"episodes": 5, "deterministic": True},
        **values,
    }
    config["env"] |= about_env or {}
    run.start(config, "train", {"python": "3.11", "git": {"commit": "abc123"}})
    records = []
    for number, step in enumerate(steps, start=1):
        mean = score * number / len(steps)
        records.append({"step": step, "returns": [mean - 1, mean + 1], "mean_return": mean})
    append_records(run.evaluations_file, records)
    if state == "finished":
        outcome = {"best": records[-1], "final": records[-1]} if records else {}
        result = {"state": state, "num_timesteps": config["n_timesteps"], **outcome}
        run.write_result(result)
    details = {"message": message} if message else {}
    run.write_status(state, num_timesteps=steps[-1] if steps else 0, **details)
    return run
