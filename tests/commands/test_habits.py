"""Forty typing errors and habits of other tools: the first suggestion is what was meant."""

import re

import pytest

from rlzoo_plus.commands.verbs import OTHER_NAMES, VERBS

# What a message suggests first.
_SUGGESTION = re.compile(
    r"(?:Did you mean '|Write |Use )(?P<what>[^']+?)(?='|\. |\.$|, or |$)", re.M
)

FORTY = {
    # Typing errors
    "n_timestpes=1000": "n_timesteps",
    "algo.hyperparams.learnig_rate=1e-3": "algo.hyperparams.learning_rate",
    "network.activaton=relu": "network.activation",
    "eval.evry_steps=1000": "eval.every_steps",
    "algo=sca": "sac",
    "env=kuka_rech": "kuka_reach",
    "env.wrapers=[time_feature]": "env.wrappers",
    "checkpoints.keep=5": "checkpoint.keep",
    # Stable-Baselines3
    "ent_coeff=0.01": "algo.hyperparams.ent_coef",
    "policy=CnnPolicy": "network.policy",
    "policy_kwargs.activation_fn=relu": "network.activation",
    "vec_env_cls=subproc": "vec_env",
    "algo=PPO": "ppo",
    "n_eval_envs=2": "eval.n_envs",
    "vec_normalize.clip_obs=5": "normalize.clip_observation",
    "callback.eval_freq=1000": "eval.every_steps",
    "log_std_init=-2": "network.log_std_init",
    # rl_zoo3
    "env_wrapper=[time_feature]": "env.wrappers",
    "hyperparams.n_steps=512": "algo.hyperparams.n_steps",
    "algo=ppo_lstm": "recurrent_ppo",
    "normalize.norm_reward=false": "normalize.reward",
    "algo=td3 noise_std=0.1": "algo.action_noise.std",
    "pruner=halving": "hpo.pruner",
    "sampler=random": "hpo.sampler",
    "storage=here": "hpo.storage",
    # CleanRL
    "--env-id CartPole-v1 --total-timesteps 500000 --num-envs 4": (
        "env.id=CartPole-v1 n_timesteps=500000 n_envs=4"
    ),
    "--no-cuda": "device=cpu",
    "--learning-rate 2.5e-4 --num-steps 128": (
        "algo.hyperparams.learning_rate=2.5e-4 algo.hyperparams.n_steps=128"
    ),
    "algo=dqn exploration_fraction=0.2": "algo.hyperparams.exploration_fraction",
    "clip_vloss=true": "algo.hyperparams.clip_range_vf",
    "target_kl=0.01": "algo.hyperparams.target_kl",
    "wandb_entity=me": "tracker.kwargs.entity",
    "exp_name=first": "run_dir",
    # Lightning
    "trainer.devices=1": "device",
    "limit_val_batches=10": "eval.episodes",
    "trainer.default_root_dir=out": "run_dir",
    "logger=wandb": "tracker=wandb",
    # Hydra
    "--multi-run seed=1,2": "--multirun",
    "hydra.run.dir=here": "run_dir=DIRECTORY",
    "--config_dir=mine": "--config-dir",
}


@pytest.mark.parametrize("line", list(FORTY))
def test_the_first_suggestion_is_what_was_meant(answer, line):
    code, text = answer("train", *line.split())
    assert code == 2, text
    assert "Traceback" not in text
    found = _SUGGESTION.search(text)
    assert found is not None, text
    assert found["what"] == FORTY[line], text


@pytest.mark.parametrize(
    "verb", ["tune", "eval", "play", "video", "list", "ui", "download", "trian"]
)
def test_verbs_of_other_tools_are_understood(answer, verb):
    meant = {"trian": "train"}.get(verb) or OTHER_NAMES[verb]
    code, text = answer(verb)
    assert code == 2
    assert f"Did you mean '{meant}'?" in text


def test_what_is_suggested_for_verbs_exists():
    assert {words.split()[0] for words in OTHER_NAMES.values()} <= VERBS.keys()
    assert not OTHER_NAMES.keys() & VERBS.keys()
