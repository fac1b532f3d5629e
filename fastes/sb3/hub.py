"""The Hugging Face Hub: huggingface_sb3's package_to_hub, with a card that says how to load a FastES model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from fastes.models.model import Model

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


class _WithCard:
    """A model for package_to_hub: what it saves gets a card beside it, which the tool keeps and adds its statistics to."""

    def __init__(self, model: Any, card: str) -> None:
        self._model, self._card = model, card

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def save(self, path: Any) -> None:
        self._model.save(path)
        Path(path).with_name("README.md").write_text(self._card, encoding="utf-8")


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
        raise ImportError(f"package_to_hub needs huggingface_sb3 ({error}): pip install 'fastes[hub]'") from error
    given = model_name, model_architecture, env_id, eval_env, repo_id, commit_message
    with _texts_of_cards(hub, card):
        return hub.package_to_hub(_WithCard(model, card), *given, **named)


@contextlib.contextmanager
def _texts_of_cards(hub: Any, text: str) -> Iterator[None]:
    """Cards that the tool makes as objects get this text. It writes them over a card that is there."""
    generate = hub._generate_model_card

    def generate_with_text(*args: Any, **named: Any) -> Any:
        card = generate(*args, **named)
        if hasattr(card, "text"):  # of sb3-team-hf-integration 3.2; huggingface-sb3 3.0 keeps the file that _WithCard wrote
            card.text = text
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
