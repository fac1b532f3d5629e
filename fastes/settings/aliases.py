"""What Stable-Baselines3 and sb3-contrib's ARS call their settings, and what to do about each of these here."""

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
ANSWERS = {
    **dict.fromkeys(_OF_GRADIENTS, "it has no counterpart in ES: leave it out"),
    "n_delta": "population_size is twice that here",
    "n_top": "top_fraction is n_top / n_delta here",
    "delta_std": "it is sigma here",
    "n_eval_episodes": "it is episodes_per_candidate here",
    "alive_bonus_offset": "it is alive_bonus here, with the other sign",
    "zero_policy": "LinearPolicy begins at zero anyway: leave it out",
}


def answer(name: str, choices: Collection[str]) -> str:
    """What to do instead of a name that is none of the choices, to be put behind it; the empty string where nobody knows.

    A flag (--n-delta) is answered as the setting is.
    """
    setting = name.lstrip("-").replace("-", "_")
    return f": {ANSWERS[setting]}" if setting in ANSWERS else suggest(name, choices)
