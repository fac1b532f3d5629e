"""Options of Atari games, and the ids that get the environment of FastES. Nothing here needs ale-py."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gymnasium import Space
from gymnasium.envs.registration import EnvSpec, registry

from fastes.envs.import_hook import ATARI
from fastes.errors import check_int, suggest, whole

FRAMES_A_SECOND = 60
_GAMES = re.compile(r"ALE/\w+-v5|\w+NoFrameskip-v4")  # ids that stand for a game, to be played with the usual preprocessing
_OF_IDS = re.compile(r"^ale/|(noframeskip|deterministic)?(-v\d+)?$")  # what they add to a name, in lower case
_OF_GYMNASIUM = ("render_mode", "max_episode_steps", "disable_env_checker")  # arguments of gymnasium.make itself
_ALE_ENV = "ale_py.env:AtariEnv"
_ALE_OBS_TYPES = ("rgb", "grayscale")  # whole screens: an id with one of them gets ale-py's own environment
_OBS_TYPES = ("screens", "ram")
_LARGEST = 1_000  # side of a screen


@dataclass(frozen=True)
class Options:
    """Options of a game.

    Attributes:
        obs_type: 'screens' to observe screens, 'ram' for the console's 128 bytes of memory.
        frame_skip: Frames that an action lasts, at least 1. The observation is the brighter of the last two at each pixel.
        frame_stack: Screens in an observation, the latest one last. A memory is always a single one.
        screen_size: Size of a screen in pixels, one number or (width, height).
        noop_max: An episode begins with 1 to noop_max frames without an action, drawn from its seed; 0 for none.
        fire_reset: Whether FIRE is pressed then, in games that wait for it.
        repeat_action_probability: Probability that a frame repeats the action of the frame before it (sticky actions), 0 to 1.
        full_action_space: Whether there are all 18 actions, not only those that the game knows.
        mode, difficulty: The game's mode and difficulty, as ale-py numbers them; None for its default.
        terminal_on_life_loss: Whether an episode is one life.
        clip_reward: Whether a step's reward is its sign, -1, 0 or 1.
        max_num_frames_per_episode: Frames after which an episode is cut; 0 for no limit.
    """

    obs_type: str = "screens"
    frame_skip: int = 4
    frame_stack: int = 4
    screen_size: int | tuple[int, int] = 84
    noop_max: int = 30
    fire_reset: bool = True
    repeat_action_probability: float = 0.0
    full_action_space: bool = False
    mode: int | None = None
    difficulty: int | None = None
    terminal_on_life_loss: bool = False
    clip_reward: bool = False
    max_num_frames_per_episode: int = 108_000

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> Options:
        """Return options from arguments by name. Raises TypeError or ValueError, with the option and the expected value."""
        known = [each.name for each in fields(cls)]
        if unknown := next((name for name in given if name not in known), None):
            raise ValueError(
                f"{unknown!r} = {given[unknown]!r} is not an option of an Atari game{suggest(unknown, known) or '.'} Options "
                f"and their defaults are {', '.join(f'{name} = {value!r}' for name, value in DEFAULTS.items())}. ale-py's own "
                "environment has other arguments: pass what gymnasium.make('ALE/Pong-v5', ...) returns"
            )
        options = cls(**{name: _CHECKS[name](name, whole(value)) for name, value in given.items()})
        if options.obs_type == "ram" and (moot := next((name for name in _OF_SCREENS if name in given), None)):
            raise ValueError(f"{moot} = {given[moot]!r} is for screens: leave it out with obs_type = 'ram'")
        return options

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a screen."""
        return self.screen_size if isinstance(self.screen_size, tuple) else (self.screen_size, self.screen_size)

    def as_arguments(self) -> dict[str, Any]:
        """Return the options by name, as JSON has them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


DEFAULTS = Options().as_arguments()
_OF_SCREENS = ("frame_stack", "screen_size")


def defaults_with(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of all options that can be given together with these."""
    unused = _OF_SCREENS if given.get("obs_type") == "ram" else ()
    return {name: value for name, value in DEFAULTS.items() if name not in unused}


def is_ale_env(spec: EnvSpec | None) -> bool:
    """Return whether a spec makes ale-py's own environment."""
    return spec is not None and spec.entry_point == _ALE_ENV


def is_our_game(spec: EnvSpec, kwargs: Mapping[str, Any]) -> bool:
    """Return whether an id gets FastES's environment: ALE/<Game>-v5 or <Game>NoFrameskip-v4, if no other obs_type is given."""
    if not (is_ale_env(spec) and _GAMES.fullmatch(spec.id) and "game" in spec.kwargs):
        return False
    return spec.kwargs.get("obs_type", "rgb") == "rgb" and kwargs.get("obs_type") not in _ALE_OBS_TYPES


def of_game(spec: EnvSpec, kwargs: Mapping[str, Any]) -> tuple[str, EnvSpec, dict[str, Any]]:
    """Return the name of a game's environment, its spec, and the arguments that differ from their defaults.

    Args:
        spec: Spec of ATARI, whose game is in kwargs, or of an id that `is_our_game`.
        kwargs: Arguments for gymnasium.make.

    Raises:
        TypeError, ValueError: An option is wrong, or there is no game.
    """
    given = dict(kwargs)
    game = given.pop("game", None) if spec.id == ATARI else spec.kwargs["game"]
    if not isinstance(game, str):
        raise no_game(game)
    passed_on = {name: given.pop(name) for name in _OF_GYMNASIUM if name in given}
    options = Options.checked(given).as_arguments()
    spec = copy.deepcopy(registry[ATARI])
    spec.kwargs = {"game": game}
    return ale_id(game), spec, {**{name: value for name, value in options.items() if value != DEFAULTS[name]}, **passed_on}


def no_game(game: object) -> ValueError:
    """Return the error for a game that is not a name."""
    kind = "" if game is None else f", of type {type(game).__name__}"
    return ValueError(f"game = {game!r}{kind}: {ATARI} needs the name of a game's ROM, such as 'pong' or 'space_invaders'")


def ale_id(game: str) -> str:
    """Return the id of a game in ale-py: 'ALE/SpaceInvaders-v5' for space_invaders."""
    return f"ALE/{game.title().replace('_', '')}-v5"


def bare_name(name: str) -> str:
    """Return a game's name in one form: 'spaceinvaders' for 'ALE/SpaceInvaders-v5', 'SpaceInvaders' and 'space_invaders'."""
    return _OF_IDS.sub("", name.casefold()).replace("_", "")


def preset_id(name: str, spec: EnvSpec | None, space: Space[Any]) -> str:
    """Return the id by which presets know an environment: of a game that is seen as images ale-py's, in any wrappers.

    Args:
        name: Name of an environment that is not a game.
        spec: The environment's spec, if it has one.
        space: Its observation space. A game whose observations are not images, such as its memory, has the id
            ALE/<Game>-ram-v5.
    """
    if spec is not None and "game" in spec.kwargs and (spec.id == ATARI or is_ale_env(spec)):
        name = ale_id(str(spec.kwargs["game"]))
    is_image = len(space.shape or ()) > 1
    return name if is_image or not name.startswith("ALE/") or "-ram-" in name else name.replace("-v", "-ram-v")


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} = {value!r} is a {type(value).__name__}: expected True or False")
    return value


def _obs_type(name: str, value: Any) -> str:
    if value not in _OBS_TYPES:
        raise ValueError(
            f"{name} = {value!r}: expected 'screens' (small grey ones) or 'ram' (128 bytes of memory); 'rgb' and 'grayscale' "
            "are of ale-py's own environment, such as ALE/Pong-v5"
        )
    return str(value)


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} = {value!r} is a {type(value).__name__}: expected a number from 0 to 1")
    if not 0.0 <= value <= 1.0 or math.isnan(value):
        raise ValueError(f"{name} = {value!r} is out of range: expected a number from 0 to 1")
    return float(value)


def _screen_size(name: str, value: Any) -> int | tuple[int, int]:
    if not isinstance(value, (list, tuple)):
        return check_int(name, value, 1, _LARGEST)
    if len(value) != 2:
        raise ValueError(f"{name} = {value!r}: expected a number of pixels, or (width, height)")
    width, height = (check_int(name, whole(side), 1, _LARGEST) for side in value)
    return width, height


def _number(low: int, high: int | None = None) -> Any:
    return lambda name, value: check_int(name, value, low, high)


def _number_or_none(name: str, value: Any) -> int | None:
    return None if value is None else check_int(name, value, 0)


_CHECKS = {
    "obs_type": _obs_type,
    "frame_skip": _number(1, 60),
    "frame_stack": _number(1, 64),
    "screen_size": _screen_size,
    "noop_max": _number(0, 10_000),
    "fire_reset": _flag,
    "repeat_action_probability": _share,
    "full_action_space": _flag,
    "mode": _number_or_none,
    "difficulty": _number_or_none,
    "terminal_on_life_loss": _flag,
    "clip_reward": _flag,
    "max_num_frames_per_episode": _number(0, 2**31 - 1),
}
