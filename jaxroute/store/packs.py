"""Packs, immutable files with numbers of simulations, and stores, each of which is the union of its packs.

A cell is a few arrays at an address, which contains digests of everything on which their numbers depend (`jaxroute.store.cells`). A pack holds the
cells that were finished since the last pack. It is named by a digest of its index, which has a digest of each cell, so that the name determines the
content. No file is changed and nothing is locked: any number of processes may write. All content is verified when it is read; missing or damaged
cells are simulated again.

A form lists names, types and shapes of a cell's arrays. A frame holds cells of one form, each as the difference (exclusive or) to the previous cell,
and is compressed as a whole: settings that share their random numbers differ little. A session is the versions and devices by which cells were
computed; a note is other plain JSON. A pack is a sequence of frames, forms, notes, a row for each cell, the table of frames, and a footer.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import math
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import zstandard

from jaxroute.store.places import FileState, Location

ENDING = ".pack"
# Endings of files that killed processes may leave: incomplete packs, and claims.
LEFT = (".partial", ".claim")
# Bytes of an address, and of its first part, which all cells of a family with the same first granule share (see `cells`).
ADDRESS, GROUP = 64, 32
_MAGIC = b"jaxroute pack 2\n"
OTHER_VERSION = "it was written by another version of jaxroute"
# Number of bytes at the end of a pack that are read first, bytes of a frame, bytes below which a pack is small and joined with others, and largest
# number of bytes of a joined pack, before compression.
_TAIL, _FRAME, _SMALL, _LARGE = 1 << 16, 1 << 18, 2 << 20, 256 << 20
# Bytes of a new pack, before compression; longest time for which cells wait to be written; and number of threads that write and read.
_PACK_BYTES, _WAIT_S, _THREADS = 16 << 20, 5.0, 4
_SIZES = [(name, "<u8") for name in ("cells", "frames", "forms", "notes", "rows")]
_FOOTER = np.dtype([*_SIZES, ("digest", "V16"), ("magic", "S16")])
_ROW = np.dtype([("address", f"V{ADDRESS}"), ("digest", "V16"), ("form", "<u4"), ("session", "<u4")])
_FRAMES = np.dtype(
    [("start", "<u8"), ("size", "<u8"), ("raw", "<u8"), ("first", "<u8"), ("cells", "<u4"), ("packed", "<u4")]
)

Cell = Mapping[str, np.ndarray]
Note = Mapping[str, Any]
# Size and time of a file that could not be read, and the reason in words.
Damage = tuple[FileState, str]


class StoreMismatchError(ValueError):
    """Error: a store has results of other settings or other code than those of this call."""


class Index(NamedTuple):
    """Verified index of a pack; the module explains frames, forms, sessions and notes.

    Attributes:
      file: size and time of the file.
      rows: address, digest, and indices of form and session of each cell, a structured array (`_ROW`), frame by frame.
      frames: position, size and cells of each frame, a structured array (`_FRAMES`).
      forms: names, types and shapes of a cell's arrays, as JSON, for each form.
      sessions: versions and devices by which cells were computed, as plain JSON.
      notes: other plain JSON, by its digest.
    """

    file: FileState
    rows: np.ndarray
    frames: np.ndarray
    forms: list[str]
    sessions: list[dict[str, Any]]
    notes: dict[str, dict[str, Any]]

    @property
    def addresses(self) -> list[bytes]:
        """Addresses of the cells, in the order of `rows`."""
        content = self.rows["address"].tobytes()
        return [content[i : i + ADDRESS] for i in range(0, len(content), ADDRESS)]


def digest_of(*parts: Any) -> bytes:
    """Returns a digest (16 bytes) of the byte strings `parts`, joined in order."""
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def plain(value: Any) -> bytes:
    """Encodes a JSON value so that equal values give equal bytes."""
    return json.dumps(value, sort_keys=True).encode()


def encode(
    cells: Mapping[bytes, tuple[Cell, int]], sessions: Sequence[Mapping[str, Any]], notes: Iterable[Note]
) -> tuple[str, list[bytes]]:
    """Returns the name of a new pack, and its content in parts.

    Args:
      cells: arrays of each cell and index of its session in `sessions`, by address. Similar cells should follow each other: they compress better.
      sessions: versions and devices by which the cells were computed.
      notes: what else the store records about its results, as dicts of plain JSON values.
    """
    rows, frames, content, offset = [], [], [], 0
    by_form: dict[str, list[tuple[bytes, int, bytes]]] = {}
    for address, (cell, session) in cells.items():
        arrays = {name: np.asarray(value, order="C") for name, value in sorted(cell.items())}
        form = json.dumps([[name, a.dtype.str, a.shape] for name, a in arrays.items()])
        by_form.setdefault(form, []).append((address, session, b"".join(a.tobytes() for a in arrays.values())))
    forms = list(by_form)
    for number, (form, group) in enumerate(by_form.items()):
        size = len(group[0][2])
        step = max(1, _FRAME // max(1, size))
        for some in (group[i : i + step] for i in range(0, len(group), step)):
            raw = np.frombuffer(b"".join(body for *_, body in some), np.uint8).reshape(len(some), size)
            raw = np.concatenate([raw[:1], raw[1:] ^ raw[:-1]]).tobytes()
            small = zstandard.compress(raw, 1)
            content.append(small if len(small) < 0.9 * len(raw) else raw)
            frames.append((offset, len(content[-1]), len(raw), len(rows), len(some), content[-1] is small))
            offset += len(content[-1])
            rows += [(one, digest_of(one, form.encode(), body), number, session) for one, session, body in some]
    about = {"sessions": list(sessions), "notes": list(notes)}
    plain_parts = (json.dumps(forms).encode(), json.dumps(about).encode(), np.array(rows, _ROW).tobytes())
    end = [*(zstandard.compress(one, 1) for one in plain_parts), np.array(frames, _FRAMES).tobytes()]
    footer = np.array([(len(rows), len(frames), *map(len, end[:3]), digest_of(*end), _MAGIC)], _FOOTER)
    return f"{digest_of(*end).hex()}{ENDING}", [*content, *end, footer.tobytes()]


def read_index(place: Location, name: str, file: FileState) -> Index:
    """Reads and verifies the index of the pack `name` in `place`; `file` has its size. Raises `FileNotFoundError` if there is no such pack.

    Raises `ValueError` if the index is damaged, or belongs to a pack with another name or to another version of jaxroute.
    """
    size = file.size
    tail = place.read(name, max(0, size - _TAIL), size)
    footer = np.frombuffer(tail[-_FOOTER.itemsize :], _FOOTER)[0] if len(tail) >= _FOOTER.itemsize else None
    if footer is not None and footer["magic"] != _MAGIC and footer["magic"].startswith(_MAGIC[:14]):
        raise ValueError(OTHER_VERSION)
    if footer is None or footer["magic"] != _MAGIC:
        raise ValueError("it is cut, or was never a pack")
    lengths = [*(int(footer[one]) for one in ("forms", "notes", "rows")), int(footer["frames"]) * _FRAMES.itemsize]
    start, cuts = size - _FOOTER.itemsize - sum(lengths), [0, *itertools.accumulate(lengths)]
    if start < 0:
        raise ValueError("its index is damaged")
    tail = tail[start - size :] if size - start <= len(tail) else place.read(name, start, size)
    if digest_of(tail[: cuts[4]]) != footer["digest"].tobytes():
        raise ValueError("its index is damaged")
    if name != f"{footer['digest'].tobytes().hex()}{ENDING}":
        raise ValueError("its content is that of another pack")
    forms, content = (json.loads(zstandard.decompress(tail[a:b])) for a, b in itertools.pairwise(cuts[:3]))
    rows = np.frombuffer(zstandard.decompress(tail[cuts[2] : cuts[3]]), _ROW)
    frames = np.frombuffer(tail[cuts[3] : cuts[4]], _FRAMES)
    if len(frames) and int(frames["start"][-1] + frames["size"][-1]) != start:
        raise ValueError("it is cut, or longer than it was")
    notes = {digest_of(plain(one)).hex(): one for one in content["notes"]}
    return Index(file, rows, frames, forms, content["sessions"], notes)


def _decoded(index: Index, frame: int, content: bytes) -> list[dict[str, np.ndarray] | None]:
    """Decodes the cells of a frame, given by its index and its bytes, in order. A damaged cell becomes None."""
    about = index.frames[frame]
    rows = index.rows[int(about["first"]) : int(about["first"]) + int(about["cells"])]
    form = index.forms[int(rows["form"][0])]
    try:
        size = zstandard.frame_content_size(content) if about["packed"] else len(content)
        raw = zstandard.decompress(content) if about["packed"] and size == about["raw"] else content
    except zstandard.ZstdError:
        raw = b""
    if len(raw) != about["raw"]:
        return [None] * len(rows)
    raw = np.bitwise_xor.accumulate(np.frombuffer(raw, np.uint8).reshape(len(rows), -1), axis=0)
    found: list[dict[str, np.ndarray] | None] = []
    shapes = json.loads(form)
    for row, body in zip(rows, map(bytes, raw), strict=True):
        if digest_of(row["address"].tobytes(), form.encode(), body) != row["digest"].tobytes():
            found.append(None)
            continue
        arrays, place = {}, 0
        for name, dtype, shape in shapes:
            arrays[name] = np.frombuffer(body, dtype, math.prod(shape), place).reshape(shape)
            place += arrays[name].nbytes
        found.append(arrays)
    return found


class PackStore:
    """Reader of the packs (files of results) that a location had at the last `refresh`, and writer of new packs.

    Cells are written by other threads: as soon as there are 16 MiB, or five seconds after the first cell. If that fails, the next `put` or `flush`
    raises the exception. Only one thread may call methods of a store.

    Args:
      place: location of the packs.
      session: versions and devices by which this process computes cells, as plain JSON.

    Attributes:
      packs: index of each readable pack, by name.
      damaged: size, time and reason for each pack that cannot be read, by name.
      bad: name of the pack and index of the row of each cell that was found to be damaged.
      where: name of the pack and index of the row of each cell, by address.
      groups: addresses of cells, by their first `GROUP` bytes.
      families: digests (8 bytes) of the versions of code that computed cells, by the first 16 bytes of the cells' addresses (see `cells`).
      notes: notes of all packs, by digest.
      conflicts: number of copies of cells whose numbers differ from those of another copy; all readers take the same copy.
    """

    def __init__(self, place: Location, session: Mapping[str, Any] | None = None):
        self.place, self.session = place, dict(session or {})
        self.packs: dict[str, Index] = {}
        self.damaged: dict[str, Damage] = {}
        self.bad: set[tuple[str, int]] = set()
        self.where: dict[bytes, tuple[str, int]] = {}
        self.groups: dict[bytes, list[bytes]] = {}
        self.families: dict[bytes, set[bytes]] = {}
        self.notes: dict[str, dict[str, Any]] = {}
        self.conflicts = 0
        self._pool = ThreadPoolExecutor(_THREADS)
        self._lock = threading.RLock()
        self._waiting: dict[bytes, Cell] = {}
        self._next_notes: list[Note] = []  # Notes for the next pack.
        self._standing: list[Note] = []  # Notes for all further packs.
        self._gathered = 0
        self._pending: list[Future[Any]] = []
        self._timer: threading.Timer | None = None
        self.refresh()

    def __reduce__(self) -> tuple[Any, ...]:  # Another process opens the store again.
        return type(self), (self.place, self.session)

    # Reading.

    def refresh(self, again: int = 5) -> None:
        """Reads the indices of new packs and forgets removed packs. Raises `OSError` if a listed pack is not found after `again` more attempts."""
        found = self._listed()
        gone = {name for name, index in self.packs.items() if found.get(name) != index.file}
        self.packs = {name: index for name, index in self.packs.items() if name not in gone}
        self.damaged = {name: one for name, one in self.damaged.items() if found.get(name) == one[0]}
        new = [name for name in sorted(found) if name not in self.packs and name not in self.damaged]
        for name, index in zip(new, self._pool.map(lambda name: self._index(name, found[name]), new), strict=True):
            if isinstance(index, Index):
                self.packs[name] = index
            elif index is not None:
                self.damaged[name] = index
        if gone:
            self.bad = {one for one in self.bad if one[0] not in gone}
            self._find_all()
        else:
            self._find([name for name in new if name in self.packs])
        if any(name not in self.packs and name not in self.damaged for name in new):
            if not again:
                raise OSError(errno.EIO, f"{str(self.place)!r} lists files that cannot be read")
            self.refresh(again - 1)

    def _listed(self) -> dict[str, FileState]:
        """Lists the packs by name. If a known pack is missing or none is known yet, lists them again until two lists agree.

        While another process joins packs, a list may lack both an old pack, already removed, and the new pack.
        """
        found = self.place.names(ENDING)
        if not self.packs or self.packs.keys() - found.keys():
            for _ in range(20):
                before, found = found, self.place.names(ENDING)
                if before.keys() == found.keys():
                    break
        return found

    def _index(self, name: str, file: FileState) -> Index | Damage | None:
        """Returns the index of a pack; a pair of `file` and the reason if it cannot be read; None if the pack was removed meanwhile."""
        try:
            return read_index(self.place, name, file)
        except FileNotFoundError:
            return None
        except (ValueError, zstandard.ZstdError) as error:
            return file, str(error)

    def _find_all(self) -> None:
        self.where, self.groups, self.families, self.notes, self.conflicts = {}, {}, {}, {}, 0
        self._find(self.packs)

    def _find(self, names: Iterable[str]) -> None:
        """Adds the cells of some packs to `where`, `groups` and `families`. If cells with one address differ, the smaller digest decides."""
        for name in names:
            index = self.packs[name]
            self.notes |= index.notes
            for row, address in enumerate(index.addresses):
                if self.bad and (name, row) in self.bad:
                    continue
                if address not in self.where:
                    self.where[address] = name, row
                    self.groups.setdefault(address[:GROUP], []).append(address)
                    self.families.setdefault(address[:16], set()).add(address[16:24])
                    continue
                own, known = (self.packs[one].rows["digest"][at].tobytes() for one, at in ((name, row), self.where[address]))
                self.conflicts += own != known
                if own < known:
                    self.where[address] = name, row

    def read(self, addresses: Iterable[bytes]) -> Iterator[tuple[bytes, dict[str, np.ndarray]]]:
        """Yields address and arrays of the cells with these `addresses`, pack by pack, after verification. Missing and damaged cells are left out."""
        left = dict.fromkeys(addresses)
        for _ in range(10):
            if not (left := {one: None for one in left if one in self.where}):
                return
            by_pack: dict[str, list[int]] = {}
            for one in left:
                name, row = self.where[one]
                by_pack.setdefault(name, []).append(row)
            for name, rows in by_pack.items():
                for address, arrays, row in self._cells(name, rows):
                    if arrays is None:
                        self.bad.add((name, row))
                    else:
                        del left[address]
                        yield address, arrays
            if left:  # There may be another copy, or the cells were moved to another pack.
                self.refresh()
                self._find_all()
        if left:
            raise OSError(errno.EIO, f"{str(self.place)!r} lists files that cannot be read")

    def get(self, addresses: Iterable[bytes]) -> dict[bytes, dict[str, np.ndarray]]:
        """Returns by address the arrays of the cells with these `addresses`, except missing and damaged cells."""
        return dict(self.read(addresses))

    def _cells(self, name: str, rows: Sequence[int]) -> Iterator[tuple[bytes, dict[str, np.ndarray] | None, int]]:
        """Yields address, arrays (None if damaged) and row of the cells in these rows of a pack. Reads all cells at once if most are needed."""
        index = self.packs[name]
        firsts = index.frames["first"].astype(np.int64)
        by_frame: dict[int, list[int]] = {}
        for row, frame in zip(rows, (np.searchsorted(firsts, rows, "right") - 1).tolist(), strict=True):
            by_frame.setdefault(frame, []).append(row)
        sizes = index.frames["size"].astype(np.int64)
        try:
            content = self.place.read(name, 0, int(sizes.sum())) if 2 * sizes[list(by_frame)].sum() > sizes.sum() else None

            def decoded(frame: int) -> list[dict[str, np.ndarray] | None]:
                start = int(index.frames["start"][frame])
                stop = start + int(sizes[frame])
                part = self.place.read(name, start, stop) if content is None else content[start:stop]
                return _decoded(index, frame, part)

            for frame, cells in zip(by_frame, self._pool.map(decoded, by_frame), strict=True):
                first = int(firsts[frame])
                for row in by_frame[frame]:
                    yield index.rows["address"][row].tobytes(), cells[row - first], row
        except FileNotFoundError:  # It was replaced meanwhile: the cells are in another pack.
            return

    # Writing.

    def add_note(self, note: Note, always: bool = False) -> None:
        """Adds a note (a JSON value) to the next pack that this store writes, or, with `always`, to all further packs."""
        with self._lock:
            (self._standing if always else self._next_notes).append(note)

    def put(self, address: bytes, cell: Cell) -> None:
        """Adds a cell, which is written to a pack soon, in the background. Raises `OSError` if earlier cells could not be written."""
        with self._lock:
            while self._pending and self._pending[0].done():
                self._pending.pop(0).result()
            self._waiting[address] = cell
            self._gathered += sum(a.nbytes for a in cell.values())
            if self._gathered >= _PACK_BYTES:
                self._start()
            elif self._timer is None:
                self._timer = threading.Timer(_WAIT_S, self._tick)
                self._timer.daemon = True
                self._timer.start()

    def _tick(self) -> None:
        with self._lock, contextlib.suppress(Exception):  # Raised by `put` or `flush`.
            if self._waiting:
                self._start()

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while len(self._pending) >= _THREADS:  # Waits for the disk, so that memory does not fill up.
            self._pending[0].result()  # An error stays there until it is raised outside of the timer.
            del self._pending[0]
        cells, self._waiting, self._gathered, self._timer = self._waiting, {}, 0, None
        notes, self._next_notes = [*self._standing, *self._next_notes], []
        self._pending.append(
            self._pool.submit(self._write, {one: (cell, 0) for one, cell in cells.items()}, [self.session], notes)
        )

    def _write(
        self, cells: Mapping[bytes, tuple[Cell, int]], sessions: Sequence[Mapping[str, Any]], notes: Sequence[Note]
    ) -> str:
        name, parts = encode(cells, sessions, notes)
        try:
            self.place.write(name, parts)
        except OSError as error:
            what = f"{str(self.place)!r} cannot be written to: {error.strerror or error}"
            raise OSError(
                error.errno, f"{what}; finished blocks are stored, and the same call, or command, continues"
            ) from error
        return name

    def check(self) -> None:
        """Checks before a simulation that the location can be written to, by a small file; raises `OSError` otherwise."""
        name = f"{uuid.uuid4().hex}.claim"
        try:
            self.place.write(name, [b"."], False)
        except OSError as error:
            what = f"out must be a folder or URL that can be written to, got {str(self.place)!r}"
            raise OSError(error.errno, f"{what}: {error.strerror or error}") from error
        with contextlib.suppress(OSError):  # Without permission to delete, the file is left for other processes to remove.
            self.place.delete(name)

    def flush(self) -> None:
        """Writes all waiting cells and notes, waits until the disk or server has them, and refreshes the store. Raises `OSError` if this fails."""
        with self._lock:
            wrote = False
            while self._pending or self._waiting or self._next_notes:
                if not self._pending:
                    self._start()
                wrote = True
                self._pending.pop(0).result()
        if wrote:
            self.refresh()

    def close(self) -> None:
        """Writes all waiting cells and notes, and ends the threads even if that fails."""
        try:
            self.flush()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._pool.shutdown()

    # Whole packs.

    def add(self, other: "PackStore") -> None:
        """Copies the packs of another store into this one."""
        for name in sorted(set(other.packs) - set(self.packs)):
            self.place.write(name, [other.place.read(name, 0, other.packs[name].file.size)])
        self.refresh()

    def compact(self) -> None:
        """Writes the cells of small packs, and of packs with damaged cells, to larger packs, and then removes the old ones.

        Several processes may do this at the same time and may be killed: each cell of a removed pack is in a pack that was written before. Readers
        that do not find a pack list the packs again.
        """
        self.refresh()
        groups, total, damaged = [[]], 0, {name for name, _ in self.bad}
        for name in sorted(name for name, index in self.packs.items() if index.file.size < _SMALL or name in damaged):
            raw = int(self.packs[name].frames["raw"].sum())
            if groups[-1] and total + raw > _LARGE:
                groups.append([])
                total = 0
            groups[-1].append(name)
            total += raw
        for group in groups:
            # A group is skipped if another process has joined some of its packs meanwhile.
            if (len(group) > 1 or damaged.intersection(group)) and self.packs.keys() >= set(group):
                self._join(group)
        self.refresh()

    def _join(self, group: Sequence[str]) -> None:
        # The packs with most cells and notes come first: one that has all of them is then written again with the same content and name.
        group = sorted(group, key=lambda name: (-len(self.packs[name].rows) - len(self.packs[name].notes), name))
        packs = {name: self.packs[name] for name in group}
        held = {name: pack.addresses for name, pack in packs.items()}
        notes = {digest: note for pack in packs.values() for digest, note in pack.notes.items()}
        sessions: list[dict[str, Any]] = []
        cells: dict[bytes, tuple[Cell, int]] = {}
        found = self.get(addresses := dict.fromkeys(itertools.chain(*held.values())))
        for address in (one for one in addresses if one in found):
            name, row = self.where[address]
            if (session := self.packs[name].sessions[int(self.packs[name].rows["session"][row])]) not in sessions:
                sessions.append(session)
            cells[address] = found[address], sessions.index(session)
        if not cells and not notes:
            return
        new = self._write(cells, sessions, list(notes.values()))
        for name, pack in packs.items():
            if name != new and ({*held[name]} != cells.keys() or pack.notes.keys() != notes.keys() or new < name):
                self.place.delete(name)

    def tidy(self, most: int = 32) -> None:
        """Joins packs (`compact`) if more than `most` are small or one has a damaged cell, and removes leftover files (`clean`).

        Damaged cells and packs are read again first: a disk or server may have failed for a moment.
        """
        bad = {(name, row) for name, row in self.bad if name in self.packs}
        self.bad = {one for one in bad if not any(arrays for _, arrays, _ in self._cells(one[0], [one[1]]))}
        self._find_all()
        self.damaged = {n: one for n, one in self.damaged.items() if not isinstance(self._index(n, one[0]), Index)}
        if self.bad or sum(index.file.size < _SMALL for index in self.packs.values()) > most:
            self.compact()
        if self.damaged or any(name.endswith(LEFT) for name in self.place.names("")):
            self.clean()

    def clean(self, age: float = 3600.0) -> None:
        """Removes files of killed processes (`LEFT`) and damaged packs, if unchanged for `age` seconds. Packs of other versions of jaxroute stay."""
        self.refresh()
        left = {name: file for name, file in self.place.names("").items() if name.endswith(LEFT)}
        left |= {name: file for name, (file, why) in self.damaged.items() if why != OTHER_VERSION}
        if not left:
            return
        clock = f"{uuid.uuid4().hex}.claim"
        self.place.write(clock, [b"now"], False)
        now = self.place.names(clock)[clock].changed
        for name, file in [*left.items(), (clock, FileState(0, now - age - 1))]:
            if now - file.changed > age:
                self.place.delete(name)
