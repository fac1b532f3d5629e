"""Learn from images: catch a falling ball, 12 x 12 pixels, with a convolutional network in C."""

from fastes import FastES

with FastES("fastes/Catch-v0", seed=0) as model:  # its preset has a CnnPolicy
    before = model.evaluate(20).mean
    model.learn(total_timesteps=500_000)
    result = model.evaluate(100)
    print(f"return {before:.2f} before, {result.mean:.2f} after {model.num_timesteps} timesteps")
