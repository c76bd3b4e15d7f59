"""What runs are continued from: their states and sums after the last round, a file for each block.

A file of `_states` belongs to a finished block, one of `_begun` to a block of a store whose horizon has grown: it holds the curves up to where
it stopped, too, and goes away when the block has been played to the end. Both carry a digest of all that they hold and of what they belong to.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

FINISHED, BEGUN = "_states", "_begun"

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Kept:
    """What the runs of a block are continued from; arrays `[tiled axes..., seeds, ...]` by name.

    rounds: that have been played. states: their leaves. totals: float64 sums of what was recorded. curves: up to there, if they are needed.
    """

    rounds: int
    states: Arrays
    totals: Arrays
    curves: Arrays = dataclasses.field(default_factory=dict)

    def encoded(self, belongs: bytes) -> bytes:
        """As the content of a file."""
        parts = {"states": self.states, "totals": self.totals, "curves": self.curves}
        arrays = [(kind, name, np.ascontiguousarray(a)) for kind, some in parts.items() for name, a in some.items()]
        about = {"rounds": self.rounds, "arrays": [[kind, name, a.dtype.str, a.shape] for kind, name, a in arrays]}
        head = json.dumps(about).encode()
        body = b"".join([len(head).to_bytes(8, "little"), head, *(a.tobytes() for *_, a in arrays)])
        return hashlib.blake2b(belongs + body, digest_size=16).digest() + body

    @staticmethod
    def decoded(content: bytes, belongs: bytes) -> "Kept":
        """What `encoded` wrote; `ValueError` if it is not what was written, or belongs to something else."""
        body = content[16:]
        if len(content) < 24 or hashlib.blake2b(belongs + body, digest_size=16).digest() != content[:16]:
            raise ValueError("not what was written")
        size = int.from_bytes(body[:8], "little")
        about, place = json.loads(body[8 : 8 + size]), 8 + size
        parts: dict[str, dict[str, np.ndarray]] = {"states": {}, "totals": {}, "curves": {}}
        for kind, name, dtype, shape in about["arrays"]:
            array = np.frombuffer(body, dtype, math.prod(shape), place).reshape(shape)
            parts[kind][name], place = array, place + array.nbytes
        return Kept(about["rounds"], **parts)


def file_of(store: Path, kind: str, cell: tuple[int, ...]) -> Path:
    """Where what is kept of a block lies."""
    return store / kind / "-".join(map(str, cell))


def write(file: Path, kept: Kept, belongs: bytes) -> None:
    """Writes a file in one step."""
    file.parent.mkdir(exist_ok=True)
    partial = file.with_name(file.name + ".partial")
    partial.write_bytes(kept.encoded(belongs))
    partial.replace(file)


def read(file: Path, belongs: bytes) -> Kept | None:
    """What a file holds, None if there is none or it is damaged: then the block is played from its first round."""
    try:
        return Kept.decoded(file.read_bytes(), belongs)
    except (FileNotFoundError, ValueError):
        return None


def remove(file: Path) -> None:
    """Takes a file away, and its folder with the last one."""
    if file.parent.is_dir():
        file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.parent.rmdir()
