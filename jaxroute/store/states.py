"""What runs are continued from: their states and sums after the last round, a file for each block.

One belongs to a finished block, or, with another name, to a block of a store whose horizon has grown: then it holds the curves up to where it
stopped, too, and goes away when the block has been played to the end. Both carry a digest of all that they hold and of what they belong to.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping

import numpy as np

from jaxroute.store.places import Place

FOLDER = "_states"
FINISHED, BEGUN = "states", "begun"

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


def name_of(kind: str, cell: tuple[int, ...]) -> str:
    """Name of the file of a block."""
    return f"{'-'.join(map(str, cell))}.{kind}"


def file_of(store: Place, kind: str, cell: tuple[int, ...]) -> Place:
    """Where what is kept of a block lies."""
    return store / FOLDER / name_of(kind, cell)


def read(file: Place, belongs: bytes) -> Kept | None:
    """What a file holds, None if there is none or it is damaged: then the block is played from its first round."""
    try:
        return Kept.decoded(file.read() or b"", belongs)
    except ValueError:
        return None
