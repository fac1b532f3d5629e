"""Train an environment that is defined in this script: no registration, no __main__ guard."""

import gymnasium
import numpy as np

from fastes import FastES


class Target(gymnasium.Env):
    """Push a point to a target that is drawn anew each episode."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.velocity, self.time = np.zeros(2), np.zeros(2), 0
        self.target = self.np_random.uniform(-1.0, 1.0, 2)
        return self.observe(), {}

    def step(self, action):
        self.velocity = 0.9 * self.velocity + 0.1 * action
        self.position = self.position + 0.2 * self.velocity
        self.time += 1
        reward = -float(np.linalg.norm(self.position - self.target))
        return self.observe(), reward, False, self.time == 100, {}

    def observe(self):
        return np.concatenate([self.position, self.velocity, self.target]).astype(np.float32)


# no preset knows this environment: recipes race on a third to a half of the budget, and the best one takes the rest
with FastES(Target, seed=0) as model:
    model.learn(total_timesteps=400_000, progress_bar=True)
    result = model.evaluate(100)
    print(f"return {result.mean:.1f} +- {result.std:.1f} after {model.num_timesteps} timesteps")
