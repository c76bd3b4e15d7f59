"""Features of queries: from their text, from an encoder's embeddings, or none."""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.core import checks

from ..features import Standardisation, scales
from ..files import load_embeddings

_WIDTH = 32  # Directions of texts and of long embeddings.
_WIDEST = 64  # Embeddings with more numbers are reduced.
_CHARACTERS = 4000  # Characters of a text that count.
_HASHED = 2**15  # Numbers that words are hashed to.
INSTALL = 'pip install "jaxroute[data]"'


def has_sklearn() -> bool:
    """Whether scikit-learn can be imported."""
    return importlib.util.find_spec("sklearn") is not None


@dataclass(frozen=True, eq=False)
class Directions:
    """Projection of a log's features to fewer directions, with rows of length one; applied also to new queries.

    Attributes:
      components: `[r, d]` directions.
    """

    components: np.ndarray

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """Returns `[Q, r]` float32 features of `[Q, d]` numbers."""
        numbers = np.asarray(numbers, np.float64)
        if numbers.shape[-1] != self.components.shape[1]:
            size = self.components.shape[1]
            raise ValueError(f"features must have {size} numbers a query, as the log had, got {numbers.shape[-1]}")
        return _normalise(numbers @ self.components.T)


@dataclass(frozen=True, eq=False)
class Words:
    """Projection of a log's texts to points; applied also to texts of new queries.

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
        """Returns `[Q, r]` float32 rows of length one; a text without words of the log is zero. Needs scikit-learn."""
        counts = _count_words(texts, self.width).tocsc()[:, self.columns].tocsr()
        counts.data = 1.0 + np.log(counts.data)  # Sublinear; the length of unknown words does not count.
        weighted = counts.multiply(self.rarity).tocsr()
        return _normalise(np.asarray(weighted @ self.components.T))


# Maker of the features of new queries; None where numbers are not converted.
Reader = Words | Directions | Standardisation | None


def choose_features(
    wanted: str | np.ndarray | None,
    text: tuple[np.ndarray, str] | None,
    own: tuple[np.ndarray, str, bool] | None,
    rows: np.ndarray,
    num_rows: int,
) -> tuple[np.ndarray | None, str, list[str], Reader]:
    """Returns features `[Q, d]` or None, their source in words, lines for the user, and the maker of those of new queries.

    Args:
      wanted: None for the best available; "none", "text" or "own"; an array; or the path of one.
      text: `[Q]` texts and their column, or None.
      own: `[Q, d]` numbers of the file, their source, and whether they are separate columns and not an embedding; or None.
      rows: `[Q]` rows of the file, which has `num_rows`.
    """
    word = wanted.lower() if isinstance(wanted, str) else ""
    if word == "own" and own is None:
        raise ValueError('features is "own", but the file has no embedding: name its column (columns={"embedding": ...})')
    if word == "text" and text is None:
        give = 'name it (columns={"text": ...}, --column text=NAME)'
        raise ValueError(f'features is "text", but no column of text was found: {give}')
    if wanted is not None and word not in ("none", "categories", "text", "own"):
        return _from_numbers(_load_given(wanted, rows, num_rows), "the features that were given", False)
    if own is not None and word in ("", "own"):
        return _from_numbers(own[0], f"the file's own {own[0].shape[1]} numbers ({own[1]})", own[2])
    if text is None or word in ("none", "categories"):
        return None, "", [], None
    if not has_sklearn() and word != "text":
        return None, "", [f"features: text becomes features with scikit-learn, which is not installed: {INSTALL}"], None
    points, reader = _from_texts(text[0].tolist())
    directions = "directions" if points.shape[1] > 1 else "direction"
    return points, f"text of column {text[1]!r}, hashed, {points.shape[1]} {directions}", [], reader


def _load_given(wanted: Any, rows: np.ndarray, num_rows: int) -> np.ndarray:
    """`[Q, d]` features from an array or its file, with a row per query of the file or of the table."""
    array = load_embeddings(wanted) if isinstance(wanted, (str, os.PathLike)) else np.asarray(wanted)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or len(array) not in (len(rows), num_rows):
        either = f"[{num_rows}, d], a row per query of the file"
        either += f", or [{len(rows)}, d], per query of the table" if num_rows != len(rows) else ""
        raise ValueError(f"features must be numbers {either}, got {checks.show(array)}")
    return checks.numbers("features", np.asarray(array[rows] if len(array) == num_rows else array, np.float64))


def _from_numbers(numbers: np.ndarray, source: str, are_columns: bool) -> tuple[np.ndarray, str, list[str], Reader]:
    """Features from numbers: separate columns standardised, a long embedding in fewer directions."""
    if are_columns or (scales(numbers) != 1).any():
        standard = Standardisation.fit(numbers)
        return standard.of(numbers), f"{source}, standardised", [], standard
    if numbers.shape[1] > _WIDEST and has_sklearn():
        points, components = _reduce(numbers)
        return points, f"{source}, reduced to {points.shape[1]} directions", [], Directions(components)
    more = f"features: {numbers.shape[1]} numbers are kept; fewer need scikit-learn: {INSTALL}"
    return numbers.astype(np.float32), source, [more] if numbers.shape[1] > _WIDEST else [], None


def _from_texts(texts: Sequence[str]) -> tuple[np.ndarray, Words]:
    """Points of texts, and their maker: hashed words and pairs, weighted by rarity, in the directions of most difference."""
    counts = _count_words(texts, _HASHED)
    if not counts.nnz:
        nothing = Words(np.zeros(0, int), np.zeros(0), np.zeros((1, 0), np.float32), _HASHED)
        return np.zeros((len(texts), 1), np.float32), nothing
    from sklearn.feature_extraction.text import TfidfTransformer

    weights: Any = TfidfTransformer(sublinear_tf=True)
    points, components = _reduce(weights.fit_transform(counts))
    columns = np.unique(counts.indices)
    return points, Words(columns, np.asarray(weights.idf_)[columns], components[:, columns].astype(np.float32), _HASHED)


def _count_words(texts: Sequence[str], width: int) -> Any:
    if not has_sklearn():
        raise ImportError(f"features of text need scikit-learn: {INSTALL}")
    from sklearn.feature_extraction.text import HashingVectorizer

    no_norm: Any = None
    hashed = HashingVectorizer(n_features=width, ngram_range=(1, 2), alternate_sign=False, norm=no_norm)
    return hashed.transform([str(text)[:_CHARACTERS] for text in texts])


def _reduce(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """`[Q, d]` unit rows in at most 32 directions, and the directions."""
    from sklearn.decomposition import TruncatedSVD

    svd = TruncatedSVD(min(_WIDTH, *matrix.shape), random_state=0)
    with np.errstate(all="ignore"):  # The variance may be 0, and is not used.
        points = svd.fit_transform(matrix)
    present = svd.singular_values_ > 1e-5 * svd.singular_values_.max()
    return _normalise(points[:, present]), np.asarray(svd.components_)[present]


def _normalise(points: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(length > 0, length, 1.0)).astype(np.float32)
