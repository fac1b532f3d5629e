"""The connection to a Ray cluster. Only this file imports Ray, when a cluster is used."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from typing import Any

from fastes.envs.source import EnvSource
from fastes.errors import ClusterError, warn_user
from fastes.system.installation import install_command
from fastes.system.interrupts import signal_handlers_kept

AUTO = "auto"
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>\d{1,5})")
_SECONDS = 5.0  # for an address to answer


def import_ray() -> Any:
    """Import Ray.

    Raises:
        ImportError: With the command that installs it.
    """
    try:
        import ray

        if not hasattr(ray, "init"):  # a folder of that name in the import path
            raise ImportError(f"{list(ray.__path__)} is something else")
    except ImportError as error:
        raise ImportError(f"cluster needs Ray, which cannot be imported ({error}): {install_command('ray')}") from error
    return ray


def check_cluster(cluster: object, source: EnvSource, n_workers: int | None) -> str:
    """Check the user's arguments about a cluster, and that Ray can be imported. This does not connect.

    Args:
        cluster: The user's argument.
        source: Builds the environment.
        n_workers: The user's argument.

    Returns:
        The address.

    Raises:
        TypeError: If `cluster` is not a string.
        ValueError: If it is not an address, or the other arguments do not go with a cluster.
        ImportError: If Ray cannot be imported.
    """
    if not isinstance(cluster, str):
        raise TypeError(
            f"cluster = {cluster!r} is a {type(cluster).__name__}: expected 'auto', 'host:port' or 'ray://host:port'"
        )
    match = _ADDRESS.fullmatch(cluster)
    if cluster != AUTO and (match is None or not 0 < int(match["port"]) < 65536):
        raise ValueError(f"cluster = {cluster!r}: expected 'auto', 'host:port' or 'ray://host:port'")
    if source.vector_env is not None:
        raise ValueError(
            f"cluster = {cluster!r} cannot be used with {source.vector_env}, which lives in this process: pass the "
            "environment's id, or a function that builds one, as env"
        )
    if n_workers is not None:
        raise ValueError(f"n_workers = {n_workers!r} with cluster = {cluster!r}: each node has a worker per CPU; leave it out")
    import_ray()
    return cluster


class Connection:
    """A connection to a cluster. If this process is already connected, that connection is used, and stays open.

    Raises:
        ClusterError: If no cluster answers.
    """

    def __init__(self, cluster: str) -> None:
        self.ray = import_ray()
        self._own = not self.ray.is_initialized()
        if self._own:
            _check_answer(cluster)
            self._connect(cluster)
        elif _ADDRESS.fullmatch(cluster) and not cluster.startswith("ray://"):
            self._compare(cluster)

    def _connect(self, cluster: str) -> None:
        quiet = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # Ray warns without it
        missing = {name: value for name, value in quiet.items() if name not in os.environ}
        os.environ.update(missing)
        try:
            with signal_handlers_kept():
                self.ray.init(address=cluster, logging_level=logging.WARNING, log_to_driver=True)
        except Exception as error:
            with contextlib.suppress(Exception):
                self.ray.shutdown()
            raise ClusterError(f"no Ray cluster can be used at {cluster!r}: {_reason(error)}{_advice(cluster)}") from error
        finally:
            for name in missing:
                os.environ.pop(name, None)

    def _compare(self, cluster: str) -> None:
        """Warn if this process is connected to another address than the one that was passed."""
        connected = str(self.ray.get_runtime_context().gcs_address)
        if connected != cluster:
            warn_user(
                f"this process is connected to the Ray cluster at {connected} already, and trains there: cluster = {cluster!r} "
                "is not looked for; call ray.shutdown() first to use that one",
            )

    def actor_on(self, node_id: str, kind: type, num_cpus: int, threads: int) -> Any:
        """Make the Ray class of an actor that runs on one node.

        Args:
            node_id: Ray's name of the node.
            kind: The class.
            num_cpus: The cores that the actor gets.
            threads: The threads in which its methods run concurrently.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(node_id, soft=False)
        options = {"num_cpus": num_cpus, "max_restarts": 0, "max_concurrency": threads, "scheduling_strategy": place}
        return self.ray.remote(**options)(kind)

    def close(self) -> None:
        """Disconnect, unless other code of this process has connected."""
        if self._own and self.ray.is_initialized():
            with signal_handlers_kept():
                self.ray.shutdown()


def _check_answer(cluster: str) -> None:
    """Raise ClusterError if no process listens at an address: Ray itself would try for minutes."""
    match = _ADDRESS.fullmatch(cluster)
    if match is None:
        return
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), _SECONDS).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers at {cluster!r} ({error}){_advice(cluster)}") from error


def _reason(error: BaseException) -> str:
    """Return the reason of a failure. A missing or wrong token is mentioned only in the causes of Ray's exception."""
    cause: BaseException | None = error
    while cause is not None:
        if "AuthenticationError" in f"{type(cause).__name__}: {cause}":
            return "it needs a token: set RAY_AUTH_MODE=token here, and copy the head's ~/.ray/auth_token"
        cause = cause.__cause__ or cause.__context__
    return str(error).rstrip(".")


def _advice(cluster: str) -> str:
    start = "ray start --head --port=6379"
    if cluster == AUTO:
        return f". To start one: {start}; or name its head: host:6379"
    return f". Is it the address that `{start}` showed, with a port that this machine may reach?"
