"""A game of the Arcade Learning Environment, as the papers play it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import numpy.typing as npt
from ale_py import roms
from gymnasium import spaces
from gymnasium.utils import EzPickle, seeding

from fastes._core import AreaResize, Greys
from fastes.envs.atari.options import FRAMES_A_SECOND, Options, bare_name, no_game
from fastes.errors import suggest

Bytes = npt.NDArray[np.uint8]

_MEMORY = 128  # bytes of an Atari 2600

# games in which nothing happens until FIRE is pressed: a ball to serve, or a title. In most games FIRE shoots
_WAIT_FOR_FIRE = frozenset({"breakout", "donkey_kong", "earthworld", "tennis"})
_TWO_PLAYERS = frozenset({"combat", "joust", "maze_craze", "warlords"})  # ale-py ends the process when it loads one of these
_STRENGTH = 1.0  # of a paddle's turn; ale-py 0.10.0 takes 0 if it is left out
_FIRE_FRAMES = 4  # of a press that every game notices: Tennis may overlook a single frame


class AtariGame(gymnasium.Env[Bytes, np.int64], EzPickle):
    """A game on small grey screens, several of them stacked, with frames skipped and raw scores.

    Observations are uint8 (frame_stack, height, width), the latest screen last; after a reset the first one is in all places.
    Screens are resized by area. With obs_type='ram' they are uint8 (128,), the console's memory after a step. An action is an
    index into `get_action_meanings()`. Rewards are points of the score.

    The seed of `reset` alone decides how an episode begins and what sticky actions do in it, not the episodes before. The
    same seed and actions give the observations and rewards of gymnasium.wrappers.AtariPreprocessing in FrameStackObservation,
    except in the four games that wait for FIRE, and for the observation after the last step.

    Args:
        game: Name of its ROM in ale-py, such as 'space_invaders'.
        render_mode: 'rgb_array' for the screen in colour, uint8 (210, 160, 3) in most games; 'human' for ale-py's window.
        **options: See fastes.envs.atari.options.Options.

    Raises:
        TypeError, ValueError: An option is wrong, ale-py does not know the game, mode or difficulty, or a step's action is out
            of range.
        OSError: The ROM is missing, or another file.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, game: str, render_mode: str | None = None, **options: Any) -> None:
        EzPickle.__init__(self, game, render_mode, **options)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode = {render_mode!r}: expected 'rgb_array' (frames), 'human' (a window) or None")
        self.game, self.render_mode, self.options = game, render_mode, Options.checked(options)
        self.metadata = {**self.metadata, "render_fps": max(1, FRAMES_A_SECOND // self.options.frame_skip)}
        self._emulator = _Emulator(game, self.options, render_mode == "human")
        ale = self.ale = self._emulator.ale
        self._actions = ale.getLegalActionSet() if self.options.full_action_space else ale.getMinimalActionSet()
        width, height = self.options.size
        self.action_space = spaces.Discrete(len(self._actions))
        self._stack = np.zeros((self.options.frame_stack, height, width), np.uint8)
        self._sees_screens = self.options.obs_type == "screens"
        self.observation_space = spaces.Box(0, 255, self._stack.shape if self._sees_screens else (_MEMORY,), np.uint8)
        shape = ale.getScreenDims()
        self._earlier, self._latest = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)  # of the last two frames
        self._screen, self._greys = np.zeros(shape, np.uint8), Greys()
        self._resize = AreaResize(shape, (height, width))
        self._colours = np.zeros((2, *shape, 3), np.uint8) if render_mode == "rgb_array" else None  # of the same
        self._lives, self._begun = 0, False

    def get_action_meanings(self) -> list[str]:
        """Return the name of each action."""
        return [action.name for action in self._actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Bytes, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        ale_seed = None
        if seed is not None:  # as ale_py.env.AtariEnv draws them
            numpy_seed, ale_seed = map(int, np.random.SeedSequence(seed).generate_state(2))
            self._np_random, _ = seeding.np_random(numpy_seed)
        most, emulator = self.options.noop_max, self._emulator
        emulator.start(ale_seed)
        for _ in range(int(self.np_random.integers(1, most + 1)) if most else 0):
            emulator.press(ale_py.Action.NOOP, 1)
            if self.ale.game_over():
                emulator.start(ale_seed)
        if self.options.fire_reset and self.game in _WAIT_FOR_FIRE:
            emulator.press(ale_py.Action.FIRE, _FIRE_FRAMES)
        self._lives, self._begun = self.ale.lives(), True
        self._earlier.fill(0)
        self._read(self._latest, 1)
        self._push()
        self._stack[:-1] = self._stack[-1]
        return self._observation(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Bytes, float, bool, bool, dict[str, Any]]:
        if not self._begun:
            raise gymnasium.error.ResetNeeded("step before reset: call reset(seed=...) first")
        if not 0 <= action < len(self._actions):
            raise ValueError(f"action = {action!r}: expected 0 to {len(self._actions) - 1}, of {self.get_action_meanings()}")
        points, died = self._play(self._emulator.held(self._actions[action], self.options.frame_skip))
        self._read(self._latest, 1)
        self._push()
        if self.options.clip_reward:
            points = (points > 0) - (points < 0)
        terminated = died or self.ale.game_over(with_truncation=False)
        return self._observation(), float(points), terminated, self.ale.game_truncated(), self._info()

    def _play(self, held: Sequence[ale_py.Action]) -> tuple[int, bool]:
        """Return the points of a step's frames, and whether a lost life ends the episode. The last frame is not read yet.

        A game that is over plays no further frames.
        """
        ale, points, before_last = self.ale, 0, len(held) - 2
        for number, action in enumerate(held):
            points += ale.act(action, _STRENGTH)
            if self.options.terminal_on_life_loss:
                lives, self._lives = self._lives, ale.lives()
                if self._lives < lives:
                    self._earlier.fill(0)
                    return points, True
            if number == before_last:
                self._read(self._earlier, 0)
        return points, False

    def _read(self, grey: Bytes, which: int) -> None:
        """Read the present frame. ale-py's greys take far longer than its colours: they are read only if a colour is new."""
        if not self._sees_screens and self._colours is None:
            return
        self.ale.getScreen(self._screen)
        if not self._greys.look_up(self._screen, grey):
            self.ale.getScreenGrayscale(grey)
            self._greys.learn(self._screen, grey)
        if self._colours is not None:
            self.ale.getScreenRGB(self._colours[which])

    def _push(self) -> None:
        """Put the brighter one of the last two frames at each pixel, resized, behind the screens of the stack."""
        if self._sees_screens:
            self._stack[:-1] = self._stack[1:]
            self._resize.brighter(self._earlier, self._latest, self._stack[-1])

    def _observation(self) -> Bytes:
        observation: Bytes = self._stack.copy() if self._sees_screens else self.ale.getRAM()
        return observation

    def _info(self) -> dict[str, Any]:
        ale = self.ale
        frames = {"episode_frame_number": ale.getEpisodeFrameNumber(), "frame_number": ale.getFrameNumber()}
        return {"lives": ale.lives(), **frames}

    def render(self) -> Bytes | None:
        """Return the screen in colour: at each pixel the brighter one of the last two frames, as in observations of screens.

        None without a render_mode, and for 'human', whose window shows itself.
        """
        if self._colours is None:
            return None
        earlier, latest = self._colours
        brighter: Bytes = np.where((self._earlier > self._latest)[..., np.newaxis], earlier, latest)
        return brighter


class _Emulator:
    """ale-py's emulator, started for each episode as if it were new.

    Loading a ROM takes as long as a hundred steps or more. The state after it is kept, restored and reset instead: an emulator
    that has played would continue its random numbers, which it takes from its memory. Sticky actions are drawn here, from the
    numbers that ale-py would draw: only loading seeds those.
    """

    def __init__(self, game: str, options: Options, window: bool) -> None:
        self.game, self.options = game, options
        if not isinstance(game, str):
            raise no_game(game)
        if game not in (known := roms.get_all_rom_ids()):
            hint = suggest(game, known, bare_name)
            raise ValueError(
                f"game = {game!r}: ale-py {ale_py.__version__} has no such game{hint or ':'} expected the name "
                "of a ROM, such as 'pong' or 'space_invaders'"
            )
        if game in _TWO_PLAYERS:
            raise ValueError(f"game = {game!r}: it is for two players, and ale-py cannot play it: expected another game")
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # before the first one prints its banner
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", options.max_num_frames_per_episode)
        self.ale.setBool("display_screen", window)
        self.ale.setBool("sound", window)
        # Adventure draws where things lie when another level is chosen
        self._must_load = game == "adventure" and bool(options.mode)
        self._load(0)
        self._loaded = self.ale.cloneState()
        self._sticky: np.random.RandomState | None = None
        self._least = float(np.float32(options.repeat_action_probability)) * 2.0**32  # draw that lets an action through
        self._last = ale_py.Action.NOOP

    def _load(self, seed: int) -> None:
        self.ale.setInt("random_seed", int(np.uint32(seed).astype(np.int32)))
        self.ale.loadROM(_rom_path(self.game))
        for name, value, known, choose in (
            ("mode", self.options.mode, self.ale.getAvailableModes(), self.ale.setMode),
            ("difficulty", self.options.difficulty, self.ale.getAvailableDifficulties(), self.ale.setDifficulty),
        ):
            if value is not None:
                if value not in known:
                    raise ValueError(f"{name} = {value}: {self.game} has {', '.join(map(str, known))}")
                choose(value)

    def start(self, seed: int | None) -> None:
        """Begin an episode. seed: of sticky actions, uint32; None continues their numbers."""
        if self._must_load:
            self._load(seed or 0)
        else:
            self.ale.restoreState(self._loaded)
        self.ale.reset_game()
        self._last = ale_py.Action.NOOP
        if seed is not None or self._sticky is None:
            self._sticky = np.random.RandomState(seed) if self._least else None

    def held(self, action: ale_py.Action, frames: int) -> Sequence[ale_py.Action]:
        """Return the action of each frame: the given one, or with sticky actions that of the frame before."""
        if self._sticky is None:
            return (action,) * frames
        held = []
        for draw in self._sticky.randint(0, 2**32, 2 * frames, dtype=np.uint32)[::2].tolist():  # the others: a second player
            self._last = action if draw >= self._least else self._last
            held.append(self._last)
        return held

    def press(self, action: ale_py.Action, frames: int) -> None:
        """Play frames whose screens are not read."""
        for each in self.held(action, frames):
            self.ale.act(each, _STRENGTH)


def _rom_path(game: str) -> Path:
    """Return the file of a game's ROM, which ale-py finds and checks. Raises OSError if it is missing or another file."""
    try:
        path: Path = roms.get_rom_path(game)
    except OSError as error:
        given = os.environ.get("ALE_ROMS_DIR")
        folder = Path(given).absolute() if given else Path(roms.__file__).parent
        remedy = f"put {game}.bin there, or unset ALE_ROMS_DIR, which names it" if given else "install ale-py again"
        finds = f"game = {game!r}: ale-py {ale_py.__version__} finds no ROM that it knows in {folder}"
        raise OSError(f"{finds}; {remedy}. {error}") from error
    return path
