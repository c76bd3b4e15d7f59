"""Computes features of queries from their texts or from embeddings, and from features the context vectors that bandits observe."""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.core import checks

from .files import load_embeddings

_LARGEST_RATIO = 100.0  # Largest ratio between the standard deviations of two columns of one embedding.
_WIDTH = 32  # Number of principal directions to which texts and long embeddings are reduced.
_WIDEST = 64  # Embeddings with more numbers than this are reduced.
_CHARACTERS = 4000  # Number of characters at the beginning of a text that are used.
_HASHED = 2**15  # Number of different hashes of words.
_INSTALL = 'pip install "jaxroute[data]"'


def has_sklearn() -> bool:
    return importlib.util.find_spec("sklearn") is not None


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Subtracts the mean of each feature in a log and divides by its standard deviation in the log, also for features of new queries."""

    mean: np.ndarray  #: `[d]` float64 mean of each feature in the log.
    scale: np.ndarray  #: `[d]` float64 standard deviation of each feature in the log, infinite for a constant feature.

    @classmethod
    def fit(cls, features: np.ndarray) -> "Standardisation":
        """Computes mean and standard deviation of each feature over queries, `[Q, d]`; a feature that varies only by rounding counts as constant."""
        features = np.asarray(features, np.float64)
        # Differences from the first row are exact in a large column that varies little. Divided by the largest, no square overflows.
        moved = features - features[0]
        largest = np.abs(moved).max(axis=0)
        moved = moved / np.where(largest > 0, largest, 1.0)
        constant = largest <= 8 * np.finfo(np.float64).eps * np.abs(features).max(axis=0)
        mean = features[0] + largest * moved.mean(axis=0)
        return cls(mean, np.where(constant, np.inf, largest * moved.std(axis=0)))

    def of(self, features: np.ndarray) -> np.ndarray:
        """Standardises the features of queries, `[Q, d]`, to float32; a constant feature becomes 0."""
        return ((np.asarray(features, np.float64) - self.mean) / self.scale).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Directions:
    """Projects features of new queries onto the principal directions of a log's features, and scales the projection of each query to length 1."""

    components: np.ndarray  #: `[r, d]` directions of the projection.

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """Projects features of `Q` new queries, `[Q, d]`, onto the `r` principal directions: returns `[Q, r]` float32."""
        numbers = np.asarray(numbers, np.float64)
        if numbers.shape[-1] != self.components.shape[1]:
            expected = f"{self.components.shape[1]} numbers a query, as the log had"
            raise ValueError(f"features must have {expected}, got {numbers.shape[-1]}")
        return _normalise(numbers @ self.components.T)


@dataclass(frozen=True, eq=False)
class Words:
    """Converts texts to features by their words and pairs of words, whose weights and principal directions were fitted to the texts of a log."""

    columns: np.ndarray  #: `[c]` hashes that occur in the log.
    rarity: np.ndarray  #: `[c]` weight of each hash, larger for words of fewer texts.
    components: np.ndarray  #: `[r, c]` directions of the projection.
    width: int  #: Number of different hashes.

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """Returns `r` features of each of `Q` texts, `[Q, r]` float32 of length 1, or zeros if a text has no word of the log. Needs scikit-learn."""
        counts = _count_words(texts, self.width).tocsc()[:, self.columns].tocsr()
        counts.data = 1.0 + np.log(counts.data)  # Repeated words count less; words that the log lacks do not count.
        return _normalise(np.asarray(counts.multiply(self.rarity).tocsr() @ self.components.T))


# Object whose method `of` computes the features of new queries; None if their numbers are the features.
Reader = Words | Directions | Standardisation | None


def scales(features: np.ndarray) -> np.ndarray:
    """Returns divisors `[d]` of `features` `[Q, d]`: their standard deviations if the largest of these is over 100 times the smallest, else 1."""
    scale = Standardisation.fit(features).scale
    finite = scale[np.isfinite(scale)]
    return scale if finite.size and finite.max() > _LARGEST_RATIO * finite.min() else np.ones_like(scale)


def main_directions(features: np.ndarray, number: int) -> np.ndarray:
    """Computes contexts of bandits from features: a constant 1, then the principal components.

    Args:
      features: `[N, d]` features; standardised if their standard deviations differ by a factor over 100.
      number: number of principal components, at most `d`.

    Returns:
      `[N, 1 + number]` contexts. The components, without the 1, are scaled so that the longest row has length 1.
    """
    features = np.asarray(features, np.float64)
    features = (features - features.mean(axis=0)) / scales(features)
    axes = np.linalg.svd(features, full_matrices=False)[2][: checks.count("directions", number, 1, features.shape[1])]
    parts = features @ axes.T
    longest = np.linalg.norm(parts, axis=1).max()
    return np.column_stack([np.ones(len(parts)), parts / longest if longest > 0 else parts])


def choose_features(
    requested: str | np.ndarray | None,
    text: tuple[np.ndarray, str] | None,
    own: tuple[np.ndarray, str, bool] | None,
    rows: np.ndarray,
    num_rows: int,
    notes: list[str],
) -> tuple[np.ndarray | None, str, Reader]:
    """Returns features `[Q, d]`, their source in words, and a `Reader` for new queries (None if not needed). Without features: None, "", None.

    Args:
      requested: "own" for numbers in the file, "text" for its texts, "none" for none, an array or its path. None: numbers if present, else texts.
      text: `[Q]` texts of the queries and the name of their column; None without texts.
      own: `[Q, d]` numbers in the file, their source in words, and whether they are separate columns (not an embedding); None without numbers.
      rows: `[Q]` row of each query in the file. An array `requested` has a row for each query, or for each of the file's `num_rows` rows.
      notes: report for the user; it gets a line if scikit-learn is missing, so that texts are ignored or a long embedding is not reduced.
    """
    word = requested.lower() if isinstance(requested, str) else ""
    if word == "own" and own is None:
        raise ValueError('features is "own", but the file has no embedding: name its column (columns={"embedding": ...})')
    if word == "text" and text is None:
        raise ValueError('features is "text", but no column of text was found: name it (columns={"text": ...})')
    if requested is not None and word not in ("none", "categories", "text", "own"):
        array = load_embeddings(requested) if isinstance(requested, (str, os.PathLike)) else np.asarray(requested)
        if array.ndim != 2 or array.dtype.kind not in "fiub" or len(array) not in (len(rows), num_rows):
            either = f", or [{len(rows)}, d], per query of the table" if num_rows != len(rows) else ""
            shape = f"[{num_rows}, d], a row per query of the file{either}"
            raise ValueError(f"features must be numbers {shape}, got {checks.show(array)}")
        array = checks.numbers("features", np.asarray(array[rows] if len(array) == num_rows else array, np.float64))
        return _from_numbers(array, "the features that were given", False, notes)
    if own is not None and word in ("", "own"):
        return _from_numbers(own[0], f"the file's own {own[0].shape[1]} numbers ({own[1]})", own[2], notes)
    if text is None or word in ("none", "categories"):
        return None, "", None
    if not has_sklearn() and word != "text":
        notes.append(f"features: text becomes features with scikit-learn, which is not installed: {_INSTALL}")
        return None, "", None
    points, reader = _from_texts(text[0].tolist())
    directions = "directions" if points.shape[1] > 1 else "direction"
    return points, f"text of column {text[1]!r}, hashed, {points.shape[1]} {directions}", reader


def _from_numbers(numbers: np.ndarray, source: str, are_columns: bool, notes: list[str]) -> tuple[np.ndarray, str, Reader]:
    """Returns features made of `numbers` `[Q, d]`, their description, and the `Reader` that treats new queries alike, None if nothing was changed.

    Separate columns (`are_columns`) and numbers of different scales are standardised. Other vectors (embeddings) with over 64 entries are reduced;
    without scikit-learn they are unchanged, and `notes` gets a hint. The description is `source` followed by what was done.
    """
    if are_columns or (scales(numbers) != 1).any():
        standard = Standardisation.fit(numbers)
        return standard.of(numbers), f"{source}, standardised", standard
    if numbers.shape[1] > _WIDEST:
        if has_sklearn():
            points, components = _reduce(numbers)
            return points, f"{source}, reduced to {points.shape[1]} directions", Directions(components)
        notes.append(f"features: {numbers.shape[1]} numbers are kept; fewer need scikit-learn: {_INSTALL}")
    return numbers.astype(np.float32), source, None


def _from_texts(texts: Sequence[str]) -> tuple[np.ndarray, Words]:
    """Returns at most 32 features of each text of a log, `[Q, r]`, and the object that computes the same features for texts of new queries."""
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
        raise ImportError(f"features of text need scikit-learn: {_INSTALL}")
    from sklearn.feature_extraction.text import HashingVectorizer

    no_norm: Any = None
    hashed = HashingVectorizer(n_features=width, ngram_range=(1, 2), alternate_sign=False, norm=no_norm)
    return hashed.transform([str(text)[:_CHARACTERS] for text in texts])


def _reduce(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """Projects the rows of a matrix onto at most 32 principal directions and scales them to length 1. Returns these rows and the directions."""
    from sklearn.decomposition import TruncatedSVD

    svd = TruncatedSVD(min(_WIDTH, *matrix.shape), random_state=0)
    with np.errstate(all="ignore"):  # The explained variance, which is not used, may divide by 0.
        points = svd.fit_transform(matrix)
    present = svd.singular_values_ > 1e-5 * svd.singular_values_.max()
    return _normalise(points[:, present]), np.asarray(svd.components_)[present]


def _normalise(points: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(length > 0, length, 1.0)).astype(np.float32)
