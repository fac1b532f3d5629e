"""Train a torch module as the policy. Needs torch."""

import torch

from fastes import FastES, TorchPolicy

torch.manual_seed(0)  # the net begins with the same weights each time
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))  # scores of CartPole's two actions

with FastES("CartPole-v1", TorchPolicy(net), seed=0, target_return=475.0) as model:
    model.learn(total_timesteps=100_000)
    print(f"return {model.evaluate(20).mean:.0f} after {model.num_timesteps} timesteps")
    trained = model.policy_spec.module_with(model.theta)  # a new module; net is as it was
    print("its first weights", trained[0].weight[0].tolist())
