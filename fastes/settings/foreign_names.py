"""Names of settings in Stable-Baselines3, sb3-contrib and packages for ES, each with what to write here."""

from __future__ import annotations

import re
from collections.abc import Collection

from fastes.errors import suggest
from fastes.es.hyperparameters import RENAMED
from fastes.policies.policy_keywords import KEYS

# fmt: off
_OF_GRADIENTS = (
    "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf", "ent_coef", "vf_coef",
    "max_grad_norm", "normalize_advantage", "target_kl", "use_sde", "sde_sample_freq",
    "cg_max_steps", "cg_damping", "line_search_shrinking_factor", "line_search_max_iter",
    "n_critic_updates", "sub_sampling_factor", "rollout_buffer_class", "rollout_buffer_kwargs", "buffer_size",
    "learning_starts", "tau", "train_freq", "gradient_steps", "replay_buffer_class", "replay_buffer_kwargs",
    "optimize_memory_usage", "target_update_interval", "target_entropy", "use_sde_at_warmup", "exploration_fraction",
    "exploration_initial_eps", "exploration_final_eps", "policy_delay", "target_policy_noise", "target_noise_clip",
)
# fmt: on
# of sb3-contrib's ARS and of packages for ES -> the name here
_RENAMED = {
    **RENAMED,
    "popsize_max": "max_population_size",
    "num_interactions": "generation_timesteps",
    **dict.fromkeys(("timesteps", "n_timesteps", "total_steps", "steps", "max_timesteps"), "total_timesteps"),
    **dict.fromkeys(("reward_threshold", "target_reward"), "target_return"),
    **dict.fromkeys(
        ("num_workers", "num_actors", "n_jobs", "n_cpu", "num_cpu", "n_processes", "workers", "n_worker"), "n_workers"
    ),
    **dict.fromkeys(("random_seed", "random_state", "master_seed"), "seed"),
    **dict.fromkeys(("n_eval_episodes", "num_episodes", "eps_per_policy"), "episodes_per_candidate"),
    **dict.fromkeys(("episode_length", "rollout_length", "max_steps", "timestep_limit"), "max_episode_steps"),
    **dict.fromkeys(("observation_normalization", "obs_norm", "normalize_observations"), "normalize_obs"),
    "decrease_rewards_by": "alive_bonus",
}
_FLAGS = {"n_workers": "--workers"}  # those that are no setting's name with dashes
_EVALUATION = "SB3 2.0 has removed it: pass callback=EvalCallback(eval_env) to learn, or read model.last_evaluation"
_REMOVED = ("create_eval_env", "eval_env", "eval_freq", "eval_log_path")
_OF_LEARN = ("callback", "callbacks", "log_interval", "tb_log_name", "reset_num_timesteps", "progress_bar", "max_minutes")
_DIRECTIONS = ("n_delta", "n_deltas", "n_directions", "num_directions", "nb_directions", "num_deltas")
_BEST_DIRECTIONS = ("n_top", "deltas_used", "num_top_directions", "nb_best_directions", "n_best_directions", "top_directions")
_TIME = (
    "max_seconds", "max_hours", "max_time", "time_limit", "time_budget", "time_out", "timeout", "minutes", "hours", "max_mins",
    "max_runtime", "max_duration",
)  # fmt: skip
# their name -> the key of policy_kwargs here; the keys themselves are asked for as settings, too
_OF_POLICIES = {
    **dict.fromkeys(("hidden_sizes", "hidden_layers", "hidden_dims", "layers"), "net_arch"),
    "activation": "activation_fn",
    **{name: name for name in KEYS},
}
ANSWERS = {
    **dict.fromkeys(_OF_GRADIENTS, "it has no counterpart in ES: leave it out"),
    **{name: f"it is {here} here" for name, here in _RENAMED.items()},
    **dict.fromkeys(_REMOVED, _EVALUATION),
    **dict.fromkeys(_DIRECTIONS, "population_size is twice that here"),
    **dict.fromkeys(("use_rms_prop", "rms_prop_eps"), "optimizer takes a class of your own here, such as RMSprop"),
    "population_scale": "it multiplies a preset's population when a model is made: pass population_size and learning_rate",
    **dict.fromkeys(_BEST_DIRECTIONS, "top_fraction is n_top / n_delta here"),
    "delta_schedule": "sigma takes a schedule itself here, such as 'lin_0.05_0.01'",
    "alive_bonus_offset": "it is alive_bonus here, with the other sign",
    "zero_policy": "LinearPolicy begins at zero anyway: leave it out",
    "async_eval": "n_workers processes play the episodes here: leave it out",
    "n_envs": "n_workers processes play the episodes here (--workers), or pass a vector environment as env",
    "num_envs": "n_workers processes play the episodes here (--workers), or pass a vector environment as env",
    **dict.fromkeys(_OF_LEARN, "it is an argument of learn"),
    **dict.fromkeys(_TIME, "max_minutes, an argument of learn, ends a training by time"),
    **{name: f"it is {KEYS[key].in_python} here" for name, key in _OF_POLICIES.items()},
    "antithetic": "candidates always come in mirrored pairs here: leave it out",
    "mirrored_sampling": "candidates always come in mirrored pairs here: leave it out",
    "n_generations": "total_timesteps, steps of the environment, end a training here",
    "num_generations": "total_timesteps, steps of the environment, end a training here",
    "_init_setup_model": "it is of SB3's own loading: leave it out",
    "monitor_wrapper": "episodes are counted without a Monitor here: leave it out",
    "support_multi_env": "it is of SB3's own classes: leave it out",
}
_LIKENESS = 0.75  # of a name with few letters wrong; below it any two that share a word are alike
_MOST = 3  # names in a suggestion
_IN_PYTHON = "it is for Python, an argument of"
FLAG_ANSWERS = {  # where a command is told another thing than Python
    "env": "the environment stands without a flag, as in fastes train CartPole-v1",
    **dict.fromkeys(("env_id", "env_name"), "the environment stands without a flag, as in fastes train CartPole-v1"),
    **dict.fromkeys(_REMOVED, "each generation is evaluated, over --eval-episodes episodes: leave it out"),
    **{name: f"it is {KEYS[key].flag} here" for name, key in _OF_POLICIES.items() if name != key},
    "policy_kwargs": f"its keys have flags of their own, such as {next(iter(KEYS.values())).flag}",
    **dict.fromkeys(
        ("progress_bar", "log_interval", "verbose"), "progress is shown anyway: -v shows more, and --quiet nothing"
    ),
    **dict.fromkeys(("callback", "callbacks"), f"{_IN_PYTHON} learn"),
    **dict.fromkeys(("tensorboard_log", "tensorboard", "tb_log_name"), "it is --report tensorboard here"),
    **dict.fromkeys(("track", "wandb", "wandb_project", "wandb_project_name"), "it is --report wandb here"),
    "trackio": "it is --report trackio here",
    **dict.fromkeys(("reports", "report_to", "logger", "loggers"), "it is --report here"),
    "reset_num_timesteps": "--resume continues counting",
    **dict.fromkeys(_TIME, "--max-minutes ends a training by time"),
    **dict.fromkeys(("n_envs", "num_envs"), "--workers processes play the episodes here"),
    **dict.fromkeys(("log_folder", "log_dir", "logdir", "output", "out", "output_dir", "save_dir"), "it is --runs here"),
    **dict.fromkeys(("device", "gpu", "cuda"), "it runs on the CPU: leave it out"),
    "algo": "there is one algorithm, and --preset chooses its settings",
}


def answer(name: str, choices: Collection[str]) -> str:
    """Return what to write instead of an unknown name, to be put behind it in an error, or the empty string.

    A flag (--n-delta) is answered as the setting is, or as a command has it if the command has the flags that the answer names.

    Args:
        name: The unknown name or flag.
        choices: The names or flags that there are.
    """
    setting = _bare(name).replace("-", "_")
    if name.startswith("-"):
        if (written := "--" + setting.replace("_", "-")) in choices:
            return f"; did you mean {written!r}?"
        said = FLAG_ANSWERS.get(setting)
        if said is not None and set(re.findall(r"--[\w-]+", said)) <= set(choices):
            return f": {said}"
        here = _RENAMED.get(setting)
        if here is not None and (flag := _FLAGS.get(here, "--" + here.replace("_", "-"))) in choices:
            return f": it is {flag} here"
        if here is not None:
            return ""
    if setting in ANSWERS:
        return f": {_with_flags(ANSWERS[setting], choices) if name.startswith('-') else ANSWERS[setting]}"
    return suggest(name, choices, _bare, _LIKENESS) or _with_its_words(setting, choices)


def _with_flags(text: str, choices: Collection[str]) -> str:
    """Return a text in which settings that have flags are named by their flags."""

    def flag_of(found: re.Match[str]) -> str:
        flag = _FLAGS.get(found[0], "--" + found[0].replace("_", "-"))
        return flag if flag in choices else found[0]

    return re.sub(r"\b[a-z]+(_[a-z]+)+\b", flag_of, text)


def _bare(name: str) -> str:
    """Return a flag without its dashes: they would make any two alike."""
    return name.lstrip("-")


def _with_its_words(setting: str, choices: Collection[str]) -> str:
    """Return '; did you mean X?' for up to three choices that have all words of a name, or the empty string."""
    words = set(setting.split("_"))
    close = [repr(choice) for choice in choices if words <= set(re.split("[-_]", _bare(choice)))][:_MOST]
    return f"; did you mean {' or '.join(close)}?" if setting and close else ""


def answer_in_learn(name: str) -> str:
    """Return the same for an argument of learn; SB3's n_eval_episodes belonged to evaluations there."""
    if name == "n_eval_episodes":
        return f": {_EVALUATION}"
    if (here := _RENAMED.get(name)) not in (None, "total_timesteps"):
        return f": it is {here} here, an argument of FastES"
    if name == "callbacks":
        return ": it is callback here"
    return answer(name, ("total_timesteps", "callback", "progress_bar", "max_minutes"))
