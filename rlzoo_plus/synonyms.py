"""What other libraries call the keys of a configuration, and which key a wrong one stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import SequenceMatcher

_ALGO = "algo.hyperparams."
# Names of Stable-Baselines3, rl_zoo3, CleanRL, Lightning and others, by our key, or our override.
_NAMES = {
    "n_timesteps": "total_timesteps num_timesteps timesteps total_steps max_steps num_steps_total "
    "train_steps training_steps steps max_timesteps max_epochs iterations",
    "n_envs": "num_envs n_env num_env envs num_workers_per_env parallel_envs",
    "vec_env": "vec_env_type vec_env_class vectorization",
    "seed": "random_seed seeds seed_everything",
    "num_threads": "torch_threads n_threads num_thread",
    "device=cpu": "no_cuda",
    "device": "cuda gpu use_cuda accelerator devices gpus",
    "run_dir": "log_dir logdir log_folder output_dir save_dir save_path default_root_dir exp_name "
    "run_name folder",
    "init_from": "trained_agent load load_path pretrained pretrained_model ckpt_path "
    "checkpoint_path resume_from",
    "callbacks": "callback",
    "fast": "fast_math",
    "packages": "gym_packages import_modules",
    "normalize": "vec_normalize norm",
    "normalize.observation": "normalize_obs norm_obs obs_norm normalize_observation "
    "normalize_observations",
    "normalize.clip_observation": "clip_obs",
    "normalize.reward": "normalize_rewards norm_reward reward_norm normalize_return",
    "algo": "algorithm agent model",
    "env": "environment task",
    "env.id": "env_id gym_id env_name environment_id task_id",
    "env.kwargs": "env_kwargs env_args eval_env_kwargs",
    "env.wrappers": "env_wrapper wrapper wrappers wrapper_class vec_env_wrapper",
    "env.frame_stack": "n_stack framestack num_stack vec_frame_stack frame_stack_observation",
    "env.time_limit": "max_episode_steps episode_length max_episode_length max_ep_len timelimit",
    "algo.hyperparams": "hyperparams hyperparameters params hyperparameter",
    "algo.replay_buffer": "replay_buffer_class",
    "algo.action_noise": "action_noise noise noise_type",
    "algo.action_noise.std": "noise_std exploration_noise",
    "eval.every_steps": "eval_freq eval.freq eval.frequency eval.every eval.interval eval_interval "
    "eval_every evaluation_freq val_check_interval evalcallback eval.steps n_evaluations",
    "eval.episodes": "eval_episodes n_eval_episodes num_eval_episodes eval.n_episodes "
    "eval.n_eval_episodes limit_val_batches",
    "eval.n_envs": "n_eval_envs num_eval_envs eval.num_envs",
    "eval.deterministic": "deterministic deterministic_eval",
    "checkpoint.every_steps": "save_freq checkpoint_freq checkpoint_frequency save_interval "
    "save_every checkpoint.freq checkpoint.every checkpoint.interval checkpoint.save_freq "
    "checkpointcallback every_n_train_steps",
    "checkpoint.keep": "save_top_k keep_checkpoints checkpoint.max_to_keep",
    "stop.no_improvement_evals": "patience early_stopping max_no_improvement_evals "
    "stop_training_on_no_model_improvement",
    "stop.reward_threshold": "reward_threshold stop_training_on_reward_threshold target_reward",
    "stop.wall_clock_minutes": "max_time time_limit_minutes max_minutes",
    "log.level": "verbose verbosity",
    "log.interval": "log_interval log_every_n_steps",
    "log.tensorboard": "tensorboard_log tensorboard tb_log",
    "log.progress": "progress progress_bar enable_progress_bar progressbarcallback",
    "report.video": "capture_video record_video save_video video",
    "tracker=wandb": "track wandb use_wandb logger wandbcallback",
    "tracker.project": "wandb_project_name wandb_project project project_name",
    "tracker.kwargs.entity": "wandb_entity entity",
    "infra.workers": "n_jobs workers num_workers n_workers max_workers",
    "hpo=ppo": "optimize optuna tune",
    "hpo.n_trials": "num_trials trials max_trials",
    "hpo.study": "study_name",
    "hpo.sampler_options.n_startup_trials": "n_startup_trials",
    "network.net_arch": "hidden hidden_size hidden_sizes hidden_dim layers arch num_units "
    "network.arch network.hidden_sizes network.layers",
    "network.activation": "activation_fn activation_function network.activation_fn",
    "network.optimizer": "optimizer_class",
    "network.features_extractor": "features_extractor_class",
    "network.lstm.hidden_size": "lstm_hidden_size lstm_size",
    "network.lstm.n_layers": "n_lstm_layers",
    _ALGO + "learning_rate": "lr alpha step_size stepsize policy_lr q_lr actor_lr critic_lr "
    "pi_lr initial_lr",
    _ALGO + "learning_rate=lin_3e-4": "anneal_lr lr_schedule linear_schedule",
    _ALGO + "n_steps": "num_steps rollout_length rollout_steps unroll_length horizon nsteps "
    "steps_per_epoch rollout_fragment_length",
    _ALGO
    + "batch_size": "num_minibatches minibatch_size mini_batch_size n_minibatches nminibatches "
    "sgd_minibatch_size",
    _ALGO + "n_epochs": "update_epochs epochs num_epochs ppo_epochs ppo_epoch noptepochs "
    "num_sgd_iter",
    _ALGO + "gamma": "discount discount_factor",
    _ALGO + "gae_lambda": "lam lambda lambd gae",
    _ALGO + "clip_range": "clip_coef clip clip_param clip_ratio cliprange clip_eps eps_clip",
    _ALGO + "clip_range_vf": "clip_vloss",
    _ALGO + "ent_coef": "entropy_coef entropy_coeff ent_coeff entropy entropy_beta autotune",
    _ALGO + "vf_coef": "value_coef value_loss_coef vf_coeff value_loss_coeff",
    _ALGO + "normalize_advantage": "norm_adv normalize_adv",
    _ALGO + "max_grad_norm": "gradient_clip_val grad_clip clip_grad_norm max_gradient_norm",
    _ALGO + "buffer_size": "replay_size replay_buffer_size memory_size capacity",
    _ALGO + "tau": "polyak soft_update_coef",
    _ALGO + "learning_starts": "start_steps warmup_steps learning_start update_after random_steps",
    _ALGO + "target_update_interval": "target_network_frequency target_update_freq "
    "target_network_update_freq",
    _ALGO + "train_freq": "train_frequency update_every update_freq",
    _ALGO + "gradient_steps": "utd utd_ratio updates_per_step n_updates num_updates",
    _ALGO + "policy_delay": "policy_frequency policy_freq",
    _ALGO + "exploration_initial_eps": "start_e epsilon_start eps_start epsilon",
    _ALGO + "exploration_final_eps": "end_e epsilon_end eps_end final_epsilon",
    _ALGO + "target_policy_noise": "policy_noise",
    _ALGO + "target_noise_clip": "noise_clip",
}
# Options of rl_zoo3 that are no names.
_OPTIONS = {"n": "n_timesteps", "f": "run_dir", "i": "init_from", "P": "log.progress"}
# The least likeness of two names for one to be suggested in place of the other.
_NEAR = 0.7


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


_OURS = {_plain(name): key for key, names in _NAMES.items() for name in names.split()}


def elsewhere(name: str) -> str | None:
    """Return our key for a name of another library, None if it is not known."""
    return _OURS.get(_plain(name))


def key_meant(name: str, keys: Iterable[str]) -> str | None:
    """Return the full path of the key that a wrong one stands for, None if nothing is near."""
    known = [key for key in keys if key != name]
    section, _, last = name.rpartition(".")
    for part in (name, last):
        ours = elsewhere(part)
        is_other_algorithm = ours is not None and ours.startswith(_ALGO)
        if ours is not None and (not is_other_algorithm or ours.partition("=")[0] in known):
            return ours
    same = [key for key in known if _plain(key.rpartition(".")[2]) == _plain(last)]
    if same:
        return max(same, key=lambda key: _likeness(section, key.rpartition(".")[0]))
    owner = key_meant(section, known) if section and section not in _sections(known) else None
    if owner is not None and "=" not in owner:
        return f"{owner}.{last}"
    spellings = {**{_plain(key): key for key in known}, **_OURS}
    best = max(spellings, key=lambda spelling: _near(_plain(name), spelling), default="")
    return spellings[best] if best and _near(_plain(name), best) >= _NEAR else None


def as_overrides(
    arguments: Sequence[str], meant: Callable[[str], str | None], files: Collection[str]
) -> tuple[list[str], list[str]]:
    """Translate the command line of another program, such as rl_zoo3.

    Args:
        arguments: `--algo ppo --env CartPole-v1 -params gamma:0.9`; overrides stay as they are.
        meant: Returns the key that an option stands for.
        files: The names that `env=` takes; another one is an id.

    Returns:
        Overrides, and the options that have none.
    """
    overrides, unknown, rest = [], [], list(arguments)
    while rest:
        word = rest.pop(0)
        option, _, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            overrides.append(word)
            continue
        values = [value] if value else []
        while not value and rest and not rest[0].startswith("-") and "=" not in rest[0]:
            values.append(rest.pop(0))
        key = _OPTIONS.get(option) or meant(option.replace("-", "_"))
        if key == "env" and values and values[0] not in files:
            key = "env.id"
        if key is None:
            unknown.append(word)
        elif "=" in key:
            overrides.append(key)
        elif key.endswith(("kwargs", "hyperparams")):
            overrides += [f"{key}.{value.replace(':', '=', 1)}" for value in values]
        else:
            overrides.append(f"{key}={','.join(values) or 'true'}")
    return overrides, unknown


def _sections(keys: Iterable[str]) -> set[str]:
    parts = [key.split(".") for key in keys]
    return {".".join(part[:depth]) for part in parts for depth in range(1, len(part))}


def _near(name: str, key: str) -> float:
    """Return how like two plain keys are, from 0 to 1; their last parts count most."""
    section, _, last = name.rpartition(".")
    there, _, own = key.rpartition(".")
    return _likeness(last, own) - 0.1 * (section != there)


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
