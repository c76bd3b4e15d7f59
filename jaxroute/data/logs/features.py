"""Features of queries: from their text, from what an encoder has computed, or none."""

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.public import load_embeddings

WIDTH = 32
_WIDEST = 64  # Embeddings with more numbers are reduced.
_CHARACTERS = 4000
INSTALL = 'pip install "jaxroute[data]"'


def has_sklearn() -> bool:
    """Whether scikit-learn can be imported."""
    return importlib.util.find_spec("sklearn") is not None


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
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    plain: Any = None  # Counts as they are.
    hashed = HashingVectorizer(n_features=2**15, ngram_range=(1, 2), alternate_sign=False, norm=plain)
    counts = hashed.transform([str(text)[:_CHARACTERS] for text in texts])
    if not counts.nnz:
        return np.zeros((len(texts), 1), np.float32)
    return _reduced(TfidfTransformer(sublinear_tf=True).fit_transform(counts), width)


def _reduced(matrix, width: int) -> np.ndarray:
    """`[Q, d]` unit rows in at most `width` directions."""
    from sklearn.decomposition import TruncatedSVD

    size = min(width, min(matrix.shape))
    svd = TruncatedSVD(size, random_state=0, algorithm="arpack" if size < min(matrix.shape) and size < 4 else "randomized")
    points = svd.fit_transform(matrix)
    there = svd.singular_values_ > 1e-5 * svd.singular_values_.max()
    points = points[:, there]
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(length > 0, length, 1.0)).astype(np.float32)


def choose(
    wanted: str | np.ndarray | None,
    text: np.ndarray | None,
    text_column: str,
    numbers: np.ndarray | None,
    numbers_from: str,
    categories: bool,
    rows: np.ndarray,
    num_rows: int,
) -> tuple[np.ndarray | None, str, list[str]]:
    """Features `[Q, d]` or None, where they come from in words, and lines for people.

    Args:
      wanted: None for the best there is; "none", "text" or "own"; an array; or the path of one.
      text: `[Q]` texts, or None.
      text_column: their column.
      numbers: `[Q, d]` the file's own, or None.
      numbers_from: where they are.
      categories: whether queries have categories.
      rows: `[Q]` rows of the file that the queries are in.
      num_rows: how many it has.

    Raises:
      ValueError: what is wanted is not there, or does not fit.
    """
    nothing = "categories only" if categories else "none"
    if isinstance(wanted, str) and wanted.lower() in ("none", "categories"):
        return None, nothing, []
    if isinstance(wanted, str) and wanted.lower() == "own" and numbers is None:
        raise ValueError('features is "own", but the file has no embedding: name its column (columns={"embedding": ...})')
    if isinstance(wanted, str) and wanted.lower() == "text" and text is None:
        raise ValueError(
            'features is "text", but no column of text was found: name it (columns={"text": ...}, --column text=NAME)'
        )
    if wanted is not None and not (isinstance(wanted, str) and wanted.lower() in ("text", "own")):
        array = load_embeddings(wanted) if isinstance(wanted, (str, os.PathLike)) else np.asarray(wanted)
        if array.ndim != 2 or array.dtype.kind not in "fiub" or len(array) not in (len(rows), num_rows):
            rule = f"[{num_rows}, d], a row per query of the file" + (
                f", or [{len(rows)}, d], per query kept" if num_rows != len(rows) else ""
            )
            raise ValueError(f"features must be numbers {rule}, got {checks.show(array)}")
        array = np.asarray(array[rows] if len(array) == num_rows else array, np.float64)
        return _narrow(checks.numbers("features", array), "the features that were given")
    by_text = isinstance(wanted, str) and wanted.lower() == "text"
    if numbers is not None and not by_text:
        return _narrow(numbers, f"the file's own {numbers.shape[1]} numbers ({numbers_from})")
    if text is None:
        return None, nothing, []
    if not has_sklearn():
        if by_text:
            raise ImportError(f"features of text need scikit-learn: {INSTALL}")
        return None, nothing, [f"features: text becomes features with scikit-learn, which is not installed: {INSTALL}"]
    points = of_text(text.tolist())
    words = "directions" if points.shape[1] > 1 else "direction"
    return points, f"text of column {text_column!r}, hashed, {points.shape[1]} {words}", []


def _narrow(numbers: np.ndarray, source: str) -> tuple[np.ndarray, str, list[str]]:
    if numbers.shape[1] <= _WIDEST:
        return numbers.astype(np.float32), source, []
    if not has_sklearn():
        return (
            numbers.astype(np.float32),
            source,
            [f"features: {numbers.shape[1]} numbers are kept; fewer need scikit-learn: {INSTALL}"],
        )
    points = _reduced(numbers, WIDTH)
    return points, f"{source}, reduced to {points.shape[1]} directions", []
