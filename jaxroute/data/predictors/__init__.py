"""Predictors of scores from features and categories, in NumPy: those of `jaxroute data` and of `jaxroute compare`."""

from .design import Design
from .logistic import Logistic, fit_logistic
from .neighbours import Neighbours, fit_neighbours
from .sample import Predictor, Sample, random_folds

__all__ = ["Design", "Logistic", "Neighbours", "Predictor", "Sample", "fit_logistic", "fit_neighbours", "random_folds"]
