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

WIDTH = 32
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
            raise ValueError(
                f"features must have {self.components.shape[1]} numbers a query, as the log had, got {numbers.shape[-1]}"
            )
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


def of_text(texts: Sequence[str], width: int = WIDTH) -> np.ndarray:
    """Texts as points: hashed words and pairs of words, weighted by rarity, in the directions in which they differ most.

    Args:
      texts: `Q` texts, of which the first 4,000 characters count.
      width: number of directions; fewer if the texts span fewer.

    Returns:
      `[Q, d]` float32 rows of length one; a text without words is zero.

    Raises:
      ImportError: scikit-learn is not installed.
    """
    return read_text(texts, width)[0]


def read_text(texts: Sequence[str], width: int = WIDTH) -> tuple[np.ndarray, Words]:
    """Points as of `of_text`, and what makes those of further texts."""
    counts = _counted(texts, _HASHED)
    if not counts.nnz:
        return np.zeros((len(texts), 1), np.float32), Words(
            np.zeros(0, int), np.zeros(0), np.zeros((1, 0), np.float32), _HASHED
        )
    from sklearn.feature_extraction.text import TfidfTransformer

    rare: Any = TfidfTransformer(sublinear_tf=True)
    points, components = _reduced(rare.fit_transform(counts), width)
    columns = np.unique(counts.indices)
    return points, Words(columns, np.asarray(rare.idf_)[columns], components[:, columns].astype(np.float32), _HASHED)


def _reduced(matrix, width: int) -> tuple[np.ndarray, np.ndarray]:
    """`[Q, d]` unit rows in at most `width` directions, and the directions."""
    from sklearn.decomposition import TruncatedSVD

    size = min(width, min(matrix.shape))
    svd = TruncatedSVD(size, random_state=0, algorithm="arpack" if size < min(matrix.shape) and size < 4 else "randomized")
    with np.errstate(all="ignore"):  # Of a variance of 0, which is not used.
        points = svd.fit_transform(matrix)
    there = svd.singular_values_ > 1e-5 * svd.singular_values_.max()
    return _of_length_one(points[:, there]), np.asarray(svd.components_)[there]


def _of_length_one(points: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(length > 0, length, 1.0)).astype(np.float32)


# Makes features of further queries from their texts or numbers; None where numbers are taken as they are.
Reader = Words | Directions | Standardisation | None


@dataclass
class Sources:
    """Sources of features in a log.

    Attributes:
      text: `[Q]` texts, or None.
      text_column: column of the texts.
      numbers: `[Q, d]` numbers of the file, or None.
      numbers_from: where the numbers are, in words.
      columns: whether the numbers are separate columns, each in its own unit, and not one embedding.
      categories: whether queries have categories.
      rows: `[Q]` rows of the file that the queries are in.
      num_rows: number of rows of the file.
    """

    text: np.ndarray | None
    text_column: str
    numbers: np.ndarray | None
    numbers_from: str
    columns: bool
    categories: bool
    rows: np.ndarray
    num_rows: int


def choose(wanted: str | np.ndarray | None, of: Sources) -> tuple[np.ndarray | None, str, list[str], Reader]:
    """Returns features `[Q, d]` or None, where they come from in words, lines for people, and the maker of those of further queries.

    Args:
      wanted: None for the best there is; "none", "text" or "own"; an array; or the path of one.
      of: what the log has.

    Raises:
      ValueError: what is wanted is not there, or does not fit.
    """
    nothing = "categories only" if of.categories else "none"
    word = wanted.lower() if isinstance(wanted, str) else ""
    if word in ("none", "categories"):
        return None, nothing, [], None
    if word == "own" and of.numbers is None:
        raise ValueError('features is "own", but the file has no embedding: name its column (columns={"embedding": ...})')
    if word == "text" and of.text is None:
        raise ValueError(
            'features is "text", but no column of text was found: name it (columns={"text": ...}, --column text=NAME)'
        )
    if wanted is not None and word not in ("text", "own"):
        array = load_embeddings(wanted) if isinstance(wanted, (str, os.PathLike)) else np.asarray(wanted)
        if array.ndim != 2 or array.dtype.kind not in "fiub" or len(array) not in (len(of.rows), of.num_rows):
            rule = f"[{of.num_rows}, d], a row per query of the file" + (
                f", or [{len(of.rows)}, d], per query kept" if of.num_rows != len(of.rows) else ""
            )
            raise ValueError(f"features must be numbers {rule}, got {checks.show(array)}")
        array = np.asarray(array[of.rows] if len(array) == of.num_rows else array, np.float64)
        return _narrow(checks.numbers("features", array), "the features that were given", False)
    if of.numbers is not None and word != "text":
        return _narrow(of.numbers, f"the file's own {of.numbers.shape[1]} numbers ({of.numbers_from})", of.columns)
    if of.text is None:
        return None, nothing, [], None
    if not has_sklearn():
        if word == "text":
            raise ImportError(f"features of text need scikit-learn: {INSTALL}")
        return None, nothing, [f"features: text becomes features with scikit-learn, which is not installed: {INSTALL}"], None
    points, reader = read_text(of.text.tolist())
    words = "directions" if points.shape[1] > 1 else "direction"
    return points, f"text of column {of.text_column!r}, hashed, {points.shape[1]} {words}", [], reader


def _narrow(numbers: np.ndarray, source: str, columns: bool) -> tuple[np.ndarray, str, list[str], Reader]:
    """Numbers as features: separate columns standardised, a long embedding in fewer directions."""
    if columns or (scales(numbers) != 1).any():
        standard = Standardisation.fit(numbers)
        return standard.of(numbers), f"{source}, standardised", [], standard
    if numbers.shape[1] <= _WIDEST:
        return numbers.astype(np.float32), source, [], None
    if not has_sklearn():
        more = [f"features: {numbers.shape[1]} numbers are kept; fewer need scikit-learn: {INSTALL}"]
        return numbers.astype(np.float32), source, more, None
    points, components = _reduced(numbers, WIDTH)
    return points, f"{source}, reduced to {points.shape[1]} directions", [], Directions(components)
