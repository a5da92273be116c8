"""A factory of small finished runs, written through the interface that real ones use."""

import pytest

from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir


def evaluation(step, returns):
    mean = sum(returns) / len(returns)
    return {"step": step, "returns": returns, "mean_return": mean, "std_return": 5.0}


@pytest.fixture
def make_run(tmp_path):
    """Return a function that writes a run below `tmp_path / "outputs"`."""

    def make(
        algo="ppo",
        env="cartpole",
        seed=0,
        name=None,
        evaluations=None,
        solved=475.0,
        kwargs=None,
        **more,
    ):
        run = RunDir(tmp_path / "outputs" / env / algo / (name or f"s{seed}"))
        config = {
            "env": {"name": env, "id": f"{env}-v0", "solved_return": solved},
            "algo": {"name": algo, "hyperparams": more.pop("hyperparams", {})},
            "seed": seed,
            "n_timesteps": 400,
            **more,
        }
        if kwargs is not None:
            config["env"]["kwargs"] = kwargs
        run.start(config, "train", {"machine": machine_fingerprint()})
        default = [(100 * i, [40.0 * i + seed, 60.0 * i]) for i in range(1, 5)]
        records = [evaluation(*e) for e in (default if evaluations is None else evaluations)]
        append_records(run.evaluations_file, records)
        metrics = [("rollout/ep_rew_mean", 20.0), ("train/loss", 1.0)]
        append_records(
            run.metrics_file,
            [
                {"ts": 0.0, "step": 50 * i, "key": key, "value": scale * i, "tags": {}}
                for i in range(1, 9)
                for key, scale in metrics
            ],
        )
        result = {"num_timesteps": 400, "wall_time_s": 12.5}
        if records:
            result |= {"best": records[-1], "final": records[-1]}
        run.write_result({"state": "finished", **result})
        run.write_status("finished", num_timesteps=400, n_timesteps=400)
        return run

    return make
