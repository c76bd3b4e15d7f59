"""Several processes on one simulation: who takes part, which blocks each one plays, and how they meet again.

Runs do not talk to each other, so no compiled program spans processes. Each process of the mesh plays its share of the blocks on its own
devices and writes them to the store that all share; JAX's coordination service carries the few words that they exchange. Process 0 holds
the lock of the store; a process that outlives it for a moment writes what the next run would write.
"""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxroute.core import checks

# How long a process waits for a word before it asks whether another one has failed.
_SLICE_S = 1.0
# How long a shared file system may take to show what another machine has written.
_LATE_S = 90.0

_numbers = itertools.count()


class HostsError(RuntimeError):
    """Some processes of a run did not finish; what is finished is in the store."""


def initialize(
    coordinator: str | None = None, processes: int | None = None, process_id: int | None = None, heartbeat_s: int = 100
) -> None:
    """Joins the other processes of a run, before anything is computed.

    A process that dies does not take the others with it (unless it is process 0): they finish their blocks and say what is missing.

    Args:
      coordinator: `HOST:PORT` of process 0; with `processes` and `process_id`, or none of the three where JAX finds them itself
        (SLURM, Open MPI, Kubernetes, TPU).
      processes: number of processes. process_id: of this one, from 0.
      heartbeat_s: seconds after which a silent process counts as dead.

    Raises:
      ValueError: only some of the three are given, one is out of range, or there is nothing to be found.
      HostsError: the others could not be reached.
    """
    given = {"coordinator": coordinator, "processes": processes, "process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ValueError(f"coordinator, processes and process_id belong together, got no {' and no '.join(missing)}")
    if not missing:
        _, colon, port = str(coordinator).rpartition(":")
        if not (colon and port.isdigit()):
            raise ValueError(f"coordinator must have the form HOST:PORT, got {checks.show(coordinator)}")
        checks.count("process_id", process_id, 0, checks.count("processes", processes) - 1)
    jax.config.update("jax_enable_recoverability", True)
    try:
        jax.distributed.initialize(coordinator, processes, process_id, heartbeat_timeout_seconds=heartbeat_s)
    except ValueError:
        raise ValueError(
            "no cluster was found (SLURM, Open MPI, Kubernetes, TPU): coordinator, processes and process_id must be given"
        ) from None
    except jax.errors.JaxRuntimeError as error:
        raise HostsError(f"process {process_id} could not reach the others at {coordinator}: {_first_line(error)}") from None


def leave() -> None:
    """Parts from the other processes, so that the end of one is no failure to another; process 0, whom all talk to, goes last."""
    client = _client()
    if client is None:
        return
    everyone = list(range(jax.process_count()))
    _waiting(lambda: client.get_live_nodes(everyone))
    if jax.process_index() == 0:
        _waiting(lambda: client.get_live_nodes(everyone))  # Until the others have gone.
    jax.distributed.shutdown()


def is_first() -> bool:
    """Whether this is process 0, which reports what all have done."""
    return jax.process_index() == 0


def whole_mesh() -> jax.sharding.Mesh:
    """All devices of all processes."""
    return jax.sharding.Mesh(np.asarray(jax.devices()), ("seed",))


class Processes:
    """The processes of a run, seen from one of them; a context that tells the others if it is left by an error.

    All processes must call the same methods in the same order.

    rank, size: of this process, among those with a device in the mesh. devices: its own devices. everyone: all devices.
    late_s: seconds until what one of them has written can be read by the others.
    """

    def __init__(self, mesh: Any, devices: Sequence[Any], out: Any):
        """`devices` are those of a run without a mesh.

        Raises:
          ValueError: mesh is no mesh of one axis, has no device of this process, or spans processes that share no store.
        """
        if mesh is None:
            self.everyone = list(devices)
        elif not isinstance(mesh, jax.sharding.Mesh) or mesh.devices.ndim != 1:
            raise ValueError(f"mesh must be a jax.sharding.Mesh with one axis, got {checks.show(mesh)}")
        else:
            self.everyone = list(mesh.devices.flat)
        me = jax.process_index()
        self._members = sorted({d.process_index for d in self.everyone})
        if me not in self._members:
            raise ValueError(f"mesh must hold a device of every process that calls, got none of process {me}")
        if mesh is None and self._members != [me]:
            raise ValueError("devices must belong to this process; for those of several processes give mesh")
        self.rank, self.size = self._members.index(me), len(self._members)
        self.devices = [d for d in self.everyone if d.process_index == me]
        if self.size > 1 and out is None:
            raise ValueError(f"out must be given if mesh spans {self.size} processes: the store is where their results meet")
        self.late_s = _LATE_S if self.size > 1 else 0.0
        self._client = _client() if self.size > 1 else None
        self._place = f"jaxroute/{next(_numbers) if self.size > 1 else 0}"
        self._steps = itertools.count()
        self._held = contextlib.ExitStack()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._client is not None and error is not None:
            text = f"{kind.__name__}: {error}" if str(error) else kind.__name__
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self._client.key_value_set(f"{self._place}/failed/{self.rank}", text)
        self._held.close()

    def hold(self, make: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        """The first process enters a context for all, until this context is left."""
        if self.rank == 0:
            self._held.enter_context(make())

    def agree(self, make: Callable[[], Any]) -> Any:
        """What the first process makes, as plain JSON, in every process."""
        if self._client is None:
            return make()
        key = f"{self._place}/word/{next(self._steps)}"
        if self.rank == 0:
            value = make()
            self._client.key_value_set(key, json.dumps(value))
            return value
        while True:
            try:
                return json.loads(self._client.blocking_key_value_get(key, int(1000 * _SLICE_S)))
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
                self._raise_failure()

    def check_same(self, settings: Any) -> None:
        """`HostsError` if the first process has other settings (plain JSON, or NaN) than this one."""
        own = json.dumps(settings, sort_keys=True)
        if self.agree(lambda: own) != own:
            me = self._members[self.rank]
            raise HostsError(
                f"process {me} was called with other settings than process {self._members[0]}; all must make the same call"
            )

    def in_turn(self, make: Callable[[], Any]) -> Any:
        """What each process makes for itself, the others after the first has."""
        if self.rank == 0:
            value = make()
            self.agree(lambda: None)
            return value
        self.agree(lambda: None)
        return make()

    def gather(self, measured: Mapping[str, float], missing: Callable[[], str]) -> dict[str, float]:
        """Waits until all are as far; returns the sums of what they measured.

        Args:
          measured: numbers by name. missing: says which blocks are not done, after a process has died.

        Raises:
          HostsError: some have died.
        """
        if self._client is None:
            return dict(measured)
        client, place = self._client, f"{self._place}/done/{next(self._steps)}"
        client.key_value_set(f"{place}/{self.rank}", json.dumps(measured))
        _waiting(lambda: client.get_live_nodes(self._members), self._raise_failure)
        self._raise_failure()
        done = {int(key.rpartition("/")[2]): json.loads(text) for key, text in client.key_value_dir_get(f"{place}/")}
        dead = [self._members[rank] for rank in range(self.size) if rank not in done]
        if dead:
            who = ", ".join(map(str, dead))
            raise HostsError(f"process {who} died: {missing()}; the same command continues from here")
        return {name: sum(own[name] for own in done.values()) for name in measured}

    def _raise_failure(self) -> None:
        for key, text in self._client.key_value_dir_get(f"{self._place}/failed/"):  # type: ignore[union-attr]
            process = self._members[int(key.rpartition("/")[2])]
            raise HostsError(f"process {process} stopped: {text}; what is finished is kept")


def _client() -> Any:
    """The client of JAX's coordination service, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client


def _waiting(call: Callable[[], Any], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Makes a call that may block for long, so that an interrupt, or an error of `meanwhile`, ends the wait."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_SLICE_S)
        meanwhile()


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
