"""The Hugging Face Hub: huggingface_sb3's package_to_hub, with a card that says how to load a FastES model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from fastes.models.model import Model
from fastes.system.installation import install_command

_CARD = """# **{architecture}** agent playing **{env_id}**

Trained with FastES (Evolution Strategies for Gymnasium environments): {steps:,} environment steps, seed {seed}.
The file holds numbers and settings; loading it runs no code from it.

## Usage

```python
from huggingface_sb3 import load_from_hub

from fastes import FastES

path = load_from_hub({repo_id!r}, {file!r})
with FastES.load(path{env}) as model:
    print(model.evaluate(episodes=10).mean)
```
"""


def package_to_hub(
    model: Model,
    model_name: str,
    model_architecture: str,
    env_id: str,
    eval_env: Any,
    repo_id: str,
    commit_message: str,
    **named: Any,
) -> Any:
    """Evaluate, film and upload a model; arguments and result are those of huggingface_sb3.package_to_hub.

    The model's card says how to load it, where huggingface_sb3's own has a TODO. ImportError without huggingface_sb3.
    """
    card = model_card(model, model_name, model_architecture, env_id, repo_id)
    try:
        hub = import_module("huggingface_sb3.push_to_hub")
    except ImportError as error:
        raise ImportError(f"package_to_hub needs huggingface_sb3 ({error}): {install_command('hub')}") from error
    given = model_name, model_architecture, env_id, eval_env, repo_id, commit_message
    with _text_of_cards(hub, card):
        return hub.package_to_hub(model, *given, **named)


@contextlib.contextmanager
def _text_of_cards(hub: Any, text: str) -> Iterator[None]:
    """Cards that the tool makes meanwhile get this text, and keep its statistics."""
    generate = hub._generate_model_card

    def generate_with_text(*args: Any, **named: Any) -> Any:
        card = generate(*args, **named)
        if isinstance(card, tuple):  # huggingface-sb3 3.0: a text, and what stands above it
            return text, *card[1:]
        card.text = text  # sb3-team-hf-integration 3.2
        return card

    hub._generate_model_card = generate_with_text
    try:
        yield
    finally:
        hub._generate_model_card = generate


def model_card(model: Model, model_name: str, model_architecture: str, env_id: str, repo_id: str) -> str:
    """The text of a model's card, in Markdown. The environment is named where the file does not say how it is built."""
    source = model.source
    known = source.rebuilds and ":" not in source.name
    return _CARD.format(
        architecture=model_architecture,
        env_id=env_id,
        steps=model.num_timesteps,
        seed=model.seed,
        repo_id=repo_id,
        file=model_name if model_name.endswith(".zip") else f"{model_name}.zip",
        env="" if known else f", env={env_id!r}",
    )
