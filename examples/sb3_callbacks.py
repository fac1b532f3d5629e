"""Use callbacks of Stable-Baselines3, and one of FastES, which is called once per generation. Needs stable-baselines3."""

from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env

from fastes import Callback, FastES


class Progress(Callback):
    """Prints a line per generation."""

    def on_generation(self, model, record):
        print(f"generation {record.generation}: mean return {record.return_mean:.1f}, evaluation {record.eval_return:.1f}")


evaluation = EvalCallback(make_vec_env("CartPole-v1"), eval_freq=5_000, n_eval_episodes=5, verbose=0)
with FastES("CartPole-v1", seed=0) as model:
    model.learn(total_timesteps=20_000, callback=[evaluation, Progress()])
print(f"EvalCallback's best mean return: {evaluation.best_mean_reward:.0f}")
