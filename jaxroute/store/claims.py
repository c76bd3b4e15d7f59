"""Claims of processes that share the work of one store: hints that keep two of them from simulating the same cells.

Each process has a small file that says what it simulates, and rewrites it as long as it lives. A wrong or lost claim costs work that is
done twice, never a wrong number: all processes write the same bytes for a cell.
"""

import contextlib
import threading
import uuid
from collections.abc import Iterable

from jaxroute.store.packs import GROUP
from jaxroute.store.places import Location

_ENDING = ".claim"


class Claims:
    """A context in which this process claims cells, by the first bytes of their addresses (`cells.group`).

    Args:
      place: of the store.
      expires: seconds without a sign after which a process counts as dead, by the times of the disk or server.
    """

    def __init__(self, place: Location, expires: float = 60.0):
        self._place, self.expires = place, expires
        self.name = f"{uuid.uuid4().hex}{_ENDING}"
        self._mine: list[bytes] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "Claims":
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._place.delete(self.name)

    def _beat(self) -> None:
        while not self._over.wait(self.expires / 4):
            try:
                self._write()
                self._failed = None
            except OSError as error:  # Raised by `others`: the times of claims no longer tell who is alive.
                self._failed = error

    def _write(self) -> None:
        with self._lock:
            self._place.write(
                self.name, [*self._mine, b"."], False
            )  # Never empty: some servers refuse ranges of empty objects.

    def keep(self, groups: Iterable[bytes], new: Iterable[bytes]) -> set[bytes]:
        """Claims cells that this process simulates or has not written yet, and new ones; returns those of the new ones that it may not have.

        Of two that claim the same at the same time, the one with the smaller name gets it; if the other one looked before, both do.
        """
        groups, new = list(groups), set(new)
        self._mine = [*groups, *new]
        self._write()
        if lost := self.others(self.name) & new:
            self._mine = [*groups, *(new - lost)]
            self._write()
        return lost

    def drop(self) -> None:
        """Claims nothing any more: all that this process simulated is written. Two that wait could otherwise wait for each other."""
        if self._mine:
            self._mine = []
            self._write()

    def others(self, below: str = "~") -> set[bytes]:
        """Returns what other processes claim that seem to be alive; of those with names below another one.

        Raises:
          OSError: the claim of this process could not be rewritten.
        """
        if self._failed is not None:
            raise self._failed
        there = self._place.names(_ENDING)
        now = there[self.name].changed if self.name in there else max((one.changed for one in there.values()), default=0.0)
        found: set[bytes] = set()
        for name, file in there.items():
            if name != self.name and name < below and now - file.changed < self.expires:
                with contextlib.suppress(OSError):
                    content = self._place.read(name, 0, file.size)
                    found.update(content[i : i + GROUP] for i in range(0, len(content) - GROUP + 1, GROUP))
        return found
