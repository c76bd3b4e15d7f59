"""The papers' tables as data: numbers to simulate with, exactly as printed."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from jaxroute.core import checks


@dataclass(frozen=True, eq=False)
class ModelTable:
    """One score and one cost per model, in the order the models were released.

    names: the `N` model names, as printed in the paper.
    scores: `[N]` float64, in `score_unit`.
    costs: `[N]` float64, in `cost_unit`.
    score_unit: what a score measures.
    cost_unit: what a cost counts.
    source: the paper and its table.

    Raises:
      ValueError: the columns differ in length or hold a value that is not finite.
    """

    names: tuple[str, ...]
    scores: np.ndarray
    costs: np.ndarray
    score_unit: str
    cost_unit: str
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        for column in ("scores", "costs"):
            values = np.array(getattr(self, column), dtype=np.float64)
            if values.shape != (len(self.names),):
                raise ValueError(f"{column} has shape {values.shape}; expected ({len(self.names)},), one per name")
            if not np.isfinite(values).all():
                raise ValueError(f"{column} is {values.tolist()}; every value must be finite")
            values.flags.writeable = False
            object.__setattr__(self, column, values)


@dataclass(frozen=True, eq=False)
class PriceTable:
    """One list price per model.

    names: the `K` model names, as printed in the paper.
    prices: `[K]` float64, in `unit`.
    unit: what a price counts.
    source: the paper and its table.
    """

    names: tuple[str, ...]
    prices: np.ndarray
    unit: str
    source: str


def _price_table(rows: Iterable[tuple[str, float]], **about: str) -> PriceTable:
    names, prices = zip(*rows, strict=True)
    values = np.asarray(prices, np.float64)
    values.flags.writeable = False
    return PriceTable(names, values, **about)


@dataclass(frozen=True)
class RunTimes:
    """Run times on one random instance.

    num_models: `K`. size: `N`, models of a set. budget: cost per round.
    relaxed_s, direct_s: seconds for 10,000 rounds of one run, with relaxation and rounding, and solved directly.
    """

    num_models: int
    size: int
    budget: float
    relaxed_s: float
    direct_s: float


def min_max(scores: np.ndarray) -> np.ndarray:
    """Scores on a scale where the worst model is 0 and the best is 1: `(s - min s) / (max s - min s)`.

    Source: StageRoute, section 6.1, says only that scores are "normalized to lie within the [0,1] interval";
    this reading spreads the pool over the whole interval.

    Args:
      scores: `[N]` scores in any unit, at least two of them different.

    Returns:
      `[N]` float64 in `[0, 1]`.

    Raises:
      ValueError: all scores are equal.
    """
    scores = checks.numbers("scores", scores)
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    if not low < high:
        raise ValueError(f"scores is {scores.tolist()}; min_max needs at least two different finite values")
    return (scores - low) / (high - low)


def divide_by_max(scores: np.ndarray) -> np.ndarray:
    """Scores as a share of the best model's: `s / max s`.

    Source: StageRoute, section 6.1, the other reading (see `min_max`); it keeps the ratios between models.

    Args:
      scores: `[N]` scores in any unit, none negative, the largest positive.

    Returns:
      `[N]` float64 in `[0, 1]`.

    Raises:
      ValueError: a score is negative or none is positive.
    """
    scores = checks.numbers("scores", scores)
    if not (scores.min(initial=np.inf) >= 0 and scores.max(initial=0.0) > 0):
        raise ValueError(f"scores is {scores.tolist()}; divide_by_max needs values >= 0 and a positive largest one")
    return scores / scores.max()


def _model_table(rows: Iterable[tuple[str, float, float]], **about: str) -> ModelTable:
    names, scores, costs = zip(*rows, strict=True)
    return ModelTable(names, np.asarray(scores), np.asarray(costs), **about)


STAGEROUTE_TABLE_1 = _model_table(
    (
        ("GPT-4o", 1336, 10.00),
        ("Gemini-1.5-pro-002", 1302, 5.00),
        ("Yi-Lightning", 1287, 0.14),
        ("o1-mini", 1304, 0.60),
        ("Llama 3.3 70B Instruct", 1257, 0.40),
        ("DeepSeek-R1", 1358, 0.55),
        ("Gemini 2.0 Flash", 1380, 1.50),
        ("Claude 3.7 Sonnet", 1300, 15.00),
        ("Hunyuan-turbos", 1296, 0.28),
        ("Deepseek-v3", 1373, 0.28),
        ("Llama-4-Maveric", 1417, 0.82),
        ("GPT-4.1", 1366, 8.00),
        ("Grok-3-preview", 1403, 15.00),
        ("o3 by OpenAI", 1413, 40.00),
        ("Gemini-2.5-Pro", 1446, 10.00),  # the Preview-05-06 version
    ),
    score_unit="Chatbot-Arena Elo",
    cost_unit="USD per 1M output tokens",
    source="StageRoute (arXiv 2506.17254v1), Table 1",
)

STAGEROUTE_TABLE_2 = _model_table(
    (
        ("claude-instant-v1", 0.5900, 0.001236),
        ("claude-v1", 0.6480, 0.005870),
        ("claude-v2", 0.5116, 0.006153),
        ("meta/llama-2-70b-chat", 0.6059, 0.001337),
        ("WizardLM/WizardLM-13B-V1.2", 0.5392, 0.000142),
        ("meta/code-llama-instruct-34b-chat", 0.5040, 0.000550),
        ("mistralai/mistral-7b-chat", 0.4999, 0.000139),
        ("gpt-3.5-turbo-1106", 0.6867, 0.000709),
        ("gpt-4-1106-preview", 0.8048, 0.007943),
        ("zero-one-ai/Yi-34B-Chat", 0.7153, 0.000558),
        ("mistralai/mixtral-8x7b-chat", 0.6504, 0.000414),
    ),
    score_unit="mean score in [0, 1]",
    cost_unit="USD per query",
    source="StageRoute (arXiv 2506.17254v1), Table 2; means over the RouterBench queries",
)

C2MABV_TABLE_1 = _price_table(
    (
        ("ChatGPT", 2.0),
        ("GPT-3", 20.0),
        ("GPT-4", 60.0),
        ("ForeFrontAI", 5.8),
        ("J1-Large", 30.0),
        ("J1-Jumbo", 250.0),
        ("Xlarge", 10.0),
        ("GPT-Neox", 35.0),
        ("GPT-J", 5.0),
        ("GPT-Curie", 2.0),
        ("FAIRSEQ", 15.0),
        ("J1-Grande", 80.0),
    ),
    unit="USD per 10M output tokens",
    source="C2MAB-V (Dai et al.), Table 1, from FrugalGPT",
)

C2MABV_TABLE_3 = _price_table(
    (
        ("ChatGLM2-6B-32K", 0.005),
        ("ChatGPT-3.5", 0.02),
        ("Claude 2", 0.08),
        ("ERNIE 3.5-8K", 0.015),
        ("Llama 2-7B", 0.005),
        ("Llama 2-13B", 0.008),
        ("Llama 2-70B", 0.05),
        ("Mixtral-8x7B-Instruct", 0.05),
        ("ChatGPT-4", 0.12),
    ),
    unit="USD per 1k tokens",
    source="C2MAB-V (Dai et al.), Table 3",
)

# What C2MAB-V (Dai et al.) prints of its experiments; tasks are "awc" (any win), "suc" (sum up) and "aic" (all in).

# Section 6: multipliers of the radii of rewards and of costs.
C2MABV_SETTINGS = {"(a)": (0.3, 0.05), "(b)": (1.0, 0.05), "(c)": (0.3, 0.01), "(d)": (1.0, 0.01)}
# Section 6, Fig. 4: the ratio of reward to violation of setting (c) is at least so many times that of a rival.
C2MABV_FIGURE_4 = {"EpsilonGreedy": 1.6472, "Thompson": 3.9, "CUCB": 4.0, "Always ChatGPT-4": 6.0}
# Section 6: the rewards of ChatGLM2, without violation, are below these.
C2MABV_CHATGLM2 = {"awc": 0.18, "suc": 0.10, "aic": 1e-4}
# Appendix E.3, Fig. 8: the ratio of setting (d) is at least so many times that of a rival, at every budget.
C2MABV_FIGURE_8 = {"CUCB": 4.56, "EpsilonGreedy": 1.557}
# Appendix E.3, Table 4.
C2MABV_TABLE_4 = {
    "awc": RunTimes(16, 8, 2.5, 221.78, 1464.33),
    "suc": RunTimes(25, 8, 1.4, 267.20, 16890.91),
    "aic": RunTimes(25, 8, 1.6, 283.06, 17320.47),
}
