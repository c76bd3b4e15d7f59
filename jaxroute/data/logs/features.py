"""Features of queries: from their text, from what an encoder has computed, or none."""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.features import Standardisation, scales
from jaxroute.data.files import load_embeddings

_WIDTH = 32
_WIDEST = 64  # Embeddings with more numbers are reduced.
_CHARACTERS = 4000
_HASHED = 2**15  # Numbers that words are hashed to.
INSTALL = 'pip install "jaxroute[data]"'


def has_sklearn() -> bool:
    """Whether scikit-learn can be imported."""
    return importlib.util.find_spec("sklearn") is not None


@dataclass(frozen=True, eq=False)
class Directions:
    """Numbers of queries in fewer directions, as rows of length one: those found on a log, for queries that are new.

    Attributes:
      components: `[r, d]` directions.
    """

    components: np.ndarray

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """`[Q, r]` float32 of `[Q, d]` numbers."""
        numbers = np.asarray(numbers, np.float64)
        if numbers.shape[-1] != self.components.shape[1]:
            size = self.components.shape[1]
            raise ValueError(f"features must have {size} numbers a query, as the log had, got {numbers.shape[-1]}")
        return _of_length_one(numbers @ self.components.T)


@dataclass(frozen=True, eq=False)
class Words:
    """Texts as points in the directions that were found on a log, for queries that are new.

    Attributes:
      columns: `[c]` hashed words and pairs of words that the log has.
      rarity: `[c]` weight of each.
      components: `[r, c]` directions.
      width: numbers that words are hashed to.
    """

    columns: np.ndarray
    rarity: np.ndarray
    components: np.ndarray
    width: int

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """`[Q, r]` float32 rows of length one; a text without words that the log has is zero.

        Raises:
          ImportError: scikit-learn is not installed.
        """
        counts = _counted(texts, self.width).tocsc()[:, self.columns].tocsr()
        counts.data = 1.0 + np.log(counts.data)  # Sublinear; the length of what the log lacks does not count.
        weighted = counts.multiply(self.rarity).tocsr()
        return _of_length_one(np.asarray(weighted @ self.components.T))


def _counted(texts: Sequence[str], width: int) -> Any:
    """`[Q, width]` how often each hashed word and pair of words is there."""
    if not has_sklearn():
        raise ImportError(f"features of text need scikit-learn: {INSTALL}")
    from sklearn.feature_extraction.text import HashingVectorizer

    plain: Any = None  # Counts as they are.
    hashed = HashingVectorizer(n_features=width, ngram_range=(1, 2), alternate_sign=False, norm=plain)
    return hashed.transform([str(text)[:_CHARACTERS] for text in texts])


def _read_text(texts: Sequence[str]) -> tuple[np.ndarray, Words]:
    """Texts as points: hashed words and pairs of words, weighted by rarity, in the directions in which they differ most; and their maker."""
    counts = _counted(texts, _HASHED)
    if not counts.nnz:
        nothing = Words(np.zeros(0, int), np.zeros(0), np.zeros((1, 0), np.float32), _HASHED)
        return np.zeros((len(texts), 1), np.float32), nothing
    from sklearn.feature_extraction.text import TfidfTransformer

    rare: Any = TfidfTransformer(sublinear_tf=True)
    points, components = _reduced(rare.fit_transform(counts))
    columns = np.unique(counts.indices)
    return points, Words(columns, np.asarray(rare.idf_)[columns], components[:, columns].astype(np.float32), _HASHED)


def _reduced(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """`[Q, d]` unit rows in at most 32 directions, and the directions."""
    from sklearn.decomposition import TruncatedSVD

    svd = TruncatedSVD(min(_WIDTH, *matrix.shape), random_state=0)
    with np.errstate(all="ignore"):  # Of a variance of 0, which is not used.
        points = svd.fit_transform(matrix)
    there = svd.singular_values_ > 1e-5 * svd.singular_values_.max()
    return _of_length_one(points[:, there]), np.asarray(svd.components_)[there]


def _of_length_one(points: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(length > 0, length, 1.0)).astype(np.float32)


# Makes features of further queries from their texts or numbers; None where numbers are taken as they are.
Reader = Words | Directions | Standardisation | None


def choose(
    wanted: str | np.ndarray | None,
    text: tuple[np.ndarray, str] | None,
    own: tuple[np.ndarray, str, bool] | None,
    rows: np.ndarray,
    num_rows: int,
) -> tuple[np.ndarray | None, str, list[str], Reader]:
    """Returns features `[Q, d]` or None, where they come from in words, lines for people, and the maker of those of further queries.

    Args:
      wanted: None for the best there is; "none", "text" or "own"; an array; or the path of one.
      text: `[Q]` texts and their column, or None.
      own: `[Q, d]` numbers of the file, where they are, and whether they are separate columns, each in its own unit, and no embedding; or None.
      rows: `[Q]` rows of the file that the queries are in, of `num_rows`.
      num_rows: number of rows of the file.

    Raises:
      ValueError: what is wanted is not there, or does not fit.
    """
    word = wanted.lower() if isinstance(wanted, str) else ""
    if word == "own" and own is None:
        raise ValueError('features is "own", but the file has no embedding: name its column (columns={"embedding": ...})')
    if word == "text" and text is None:
        raise ValueError(
            'features is "text", but no column of text was found: name it (columns={"text": ...}, --column text=NAME)'
        )
    if wanted is not None and word not in ("none", "categories", "text", "own"):
        return _narrow(_given(wanted, rows, num_rows), "the features that were given", False)
    if own is not None and word in ("", "own"):
        return _narrow(own[0], f"the file's own {own[0].shape[1]} numbers ({own[1]})", own[2])
    if text is None or word in ("none", "categories"):
        return None, "", [], None
    if not has_sklearn() and word != "text":
        return None, "", [f"features: text becomes features with scikit-learn, which is not installed: {INSTALL}"], None
    points, reader = _read_text(text[0].tolist())
    words = "directions" if points.shape[1] > 1 else "direction"
    return points, f"text of column {text[1]!r}, hashed, {points.shape[1]} {words}", [], reader


def _given(wanted: Any, rows: np.ndarray, num_rows: int) -> np.ndarray:
    """`[Q, d]` features from an array or its file, with a row per query of the file or of the table."""
    array = load_embeddings(wanted) if isinstance(wanted, (str, os.PathLike)) else np.asarray(wanted)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or len(array) not in (len(rows), num_rows):
        either = f"[{num_rows}, d], a row per query of the file"
        either += f", or [{len(rows)}, d], per query of the table" if num_rows != len(rows) else ""
        raise ValueError(f"features must be numbers {either}, got {checks.show(array)}")
    return checks.numbers("features", np.asarray(array[rows] if len(array) == num_rows else array, np.float64))


def _narrow(numbers: np.ndarray, source: str, columns: bool) -> tuple[np.ndarray, str, list[str], Reader]:
    """Numbers as features: separate columns standardised, a long embedding in fewer directions."""
    if columns or (scales(numbers) != 1).any():
        standard = Standardisation.fit(numbers)
        return standard.of(numbers), f"{source}, standardised", [], standard
    if numbers.shape[1] > _WIDEST and has_sklearn():
        points, components = _reduced(numbers)
        return points, f"{source}, reduced to {points.shape[1]} directions", [], Directions(components)
    more = f"features: {numbers.shape[1]} numbers are kept; fewer need scikit-learn: {INSTALL}"
    return numbers.astype(np.float32), source, [more] if numbers.shape[1] > _WIDEST else [], None
