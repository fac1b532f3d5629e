"""Compile an environment in C, train on it with other gravity than it has by itself, and step it from Python."""

import subprocess
from pathlib import Path

import fastes

SOURCE = Path(__file__).with_name("cartpole.c")
subprocess.run(
    ["cc", "-O3", "-shared", "-fPIC", f"-I{fastes.get_include()}", str(SOURCE), "-o", "cartpole.so", "-lm"], check=True
)
with fastes.FastES("./cartpole.so:CartPole", env_kwargs={"gravity": 3.7}, seed=0) as model:
    model.learn(100_000)
    print("return", model.evaluate(10).mean, "after", model.num_timesteps, "timesteps")
    env = fastes.NativeEnv("./cartpole.so:CartPole", gravity=3.7)
    observation, _ = env.reset(seed=1)
    action, _ = model.predict(observation, deterministic=True)
    print("first action", action, "reward", env.step(action)[1])
