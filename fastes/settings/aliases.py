"""What Stable-Baselines3, sb3-contrib's ARS and packages for ES call their settings, and what to do about each here."""

from __future__ import annotations

from collections.abc import Collection

from fastes.errors import suggest

# fmt: off
_OF_GRADIENTS = (
    "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf", "ent_coef", "vf_coef",
    "max_grad_norm", "normalize_advantage", "target_kl", "use_sde", "sde_sample_freq", "use_rms_prop",
    "rms_prop_eps", "cg_max_steps", "cg_damping", "line_search_shrinking_factor", "line_search_max_iter",
    "n_critic_updates", "sub_sampling_factor", "rollout_buffer_class", "rollout_buffer_kwargs", "buffer_size",
    "learning_starts", "tau", "train_freq", "gradient_steps", "replay_buffer_class", "replay_buffer_kwargs",
    "optimize_memory_usage", "target_update_interval", "target_entropy", "use_sde_at_warmup", "exploration_fraction",
    "exploration_initial_eps", "exploration_final_eps", "policy_delay", "target_policy_noise", "target_noise_clip",
)
# fmt: on
# of sb3-contrib's ARS and of packages for ES -> the name here
_RENAMED = {
    **dict.fromkeys(("lr", "lrate", "lrate_init", "stepsize", "step_size", "center_learning_rate"), "learning_rate"),
    **dict.fromkeys(("std", "delta_std", "noise_std", "noise_stdev", "sigma_init", "stdev_init", "init_stdev"), "sigma"),
    **dict.fromkeys(("stdev_learning_rate", "sigma_lr"), "sigma_learning_rate"),
    **dict.fromkeys(("popsize", "pop_size", "population", "num_population", "n_population"), "population_size"),
    "popsize_max": "max_population_size",
    "num_interactions": "generation_timesteps",
    **dict.fromkeys(("l2_coeff", "l2coeff", "l2_coefficient", "l2"), "weight_decay"),
    **dict.fromkeys(("num_workers", "num_actors", "n_jobs", "n_cpu", "num_cpu", "n_processes"), "n_workers"),
    **dict.fromkeys(("random_seed", "random_state", "seeds", "master_seed"), "seed"),
    **dict.fromkeys(("n_eval_episodes", "num_episodes", "eps_per_policy"), "episodes_per_candidate"),
    **dict.fromkeys(("episode_length", "rollout_length", "max_steps", "timestep_limit"), "max_episode_steps"),
    **dict.fromkeys(("observation_normalization", "obs_norm", "normalize_observations"), "normalize_obs"),
    **dict.fromkeys(("ranking_method", "return_proc_mode", "fitness_shaping"), "shaping"),
    "clipup_max_speed": "max_speed",
    "decrease_rewards_by": "alive_bonus",
}
_FLAGS = {"n_workers": "--workers"}  # those that are no setting's name with dashes
_EVALUATION = "SB3 2.0 has removed it: pass callback=EvalCallback(eval_env) to learn, or read model.last_evaluation"
_REMOVED = ("create_eval_env", "eval_env", "eval_freq", "eval_log_path")
ANSWERS = {
    **dict.fromkeys(_OF_GRADIENTS, "it has no counterpart in ES: leave it out"),
    **{name: f"it is {here} here" for name, here in _RENAMED.items()},
    **dict.fromkeys(_REMOVED, _EVALUATION),
    "n_delta": "population_size is twice that here",
    "population_scale": "it multiplies a preset's population when a model is made: pass population_size and learning_rate",
    "n_top": "top_fraction is n_top / n_delta here",
    "delta_schedule": "sigma takes a schedule itself here, such as 'lin_0.05_0.01'",
    "alive_bonus_offset": "it is alive_bonus here, with the other sign",
    "zero_policy": "LinearPolicy begins at zero anyway: leave it out",
    "async_eval": "n_workers processes play the episodes here: leave it out",
    "n_envs": "n_workers processes play the episodes here (--workers), or pass a vector environment as env",
    "num_envs": "n_workers processes play the episodes here (--workers), or pass a vector environment as env",
    "hidden_sizes": "it is policy_kwargs={'net_arch': [...]} here",
    "antithetic": "candidates always come in mirrored pairs here: leave it out",
    "mirrored_sampling": "candidates always come in mirrored pairs here: leave it out",
    "n_generations": "total_timesteps, steps of the environment, end a training here",
    "num_generations": "total_timesteps, steps of the environment, end a training here",
    "_init_setup_model": "it is of SB3's own loading: leave it out",
    "monitor_wrapper": "episodes are counted without a Monitor here: leave it out",
    "support_multi_env": "it is of SB3's own classes: leave it out",
}


def answer(name: str, choices: Collection[str]) -> str:
    """What to do instead of a name that is none of the choices, to be put behind it; the empty string where nobody knows.

    A flag (--n-delta) is answered as the setting is.
    """
    setting = name.lstrip("-").replace("-", "_")
    if setting not in ANSWERS:
        return suggest(name, choices)
    if name.startswith("--") and (here := _RENAMED.get(setting)) is not None:
        return f": it is {_FLAGS.get(here, '--' + here.replace('_', '-'))} here"
    return f": {ANSWERS[setting]}"


def answer_in_learn(name: str) -> str:
    """The same for an argument of learn, where SB3's n_eval_episodes was one of evaluations."""
    return f": {_EVALUATION}" if name == "n_eval_episodes" else answer(name, ("total_timesteps", "callback", "progress_bar"))
