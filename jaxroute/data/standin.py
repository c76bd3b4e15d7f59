"""Generates synthetic prompts, with features and the score and cost of each model, for use where recorded logs are not available."""

from typing import Literal

import numpy as np

from jaxroute.core import checks

from .papers import STANDIN_MODELS
from .table import RoutingTable

_QUANTILE = 0.995
# `a`, `b`, `s_f` and the spread of the difficulty in `standin`.
_PRESETS = {"clean": (0.7, 0.0, 0.7, 0.7), "semantic-noise": (0.45, 0.6, 0.0, 0.5)}
_SKILL = {"soft": 1.5, "binary": 2.5}  # Spread of a model's skill between topics.


def standin(
    models: str | tuple[np.ndarray, np.ndarray] = "sprout",
    *,
    preset: Literal["clean", "semantic-noise"] = "clean",
    scores: Literal["soft", "binary"] = "soft",
    queries: int = 1000,
    offline: int = 2000,
    dim: int = 64,
    topics: int = 8,
    styles: int = 8,
    seed: int = 0,
) -> tuple[RoutingTable, RoutingTable]:
    """Generates synthetic prompts of known structure: a pool to route online, and a separate set to learn representations from.

    A prompt has a topic `c`, a style `s`, a direction `h_i` uniform on the sphere, and a difficulty `D_i`:

        feature_i = normalise(a G_c + b H_s + sqrt(1 - a^2 - b^2) h_i),   G, H orthonormal,
        logit_ij  = logit(accuracy_j) + delta_cj + s_f h_i . beta_j - D_i,
        score_ij  = sigmoid(logit_ij) if soft, else 1 with this probability,
        cost_ij   = price_j x tokens_i x LogNormal(0, 0.3),   tokens_i ~ LogNormal(5.5, 0.7),

    for prompt `i` and model `j`. The directions `G_c` of topics and `H_s` of styles have the weights `a` and `b`. The model's skill `delta_cj` on
    a topic is normal of standard deviation 1.5 (soft) or 2.5 (binary); its skill by direction, `beta_j`, is standard normal and has the weight
    `s_f`. Topics and styles are drawn with probabilities from Dirichlet(5). "clean": `a = 0.7, b = 0, s_f = 0.7`, and `D_i` normal of standard
    deviation 0.7. "semantic-noise": `a = 0.45, b = 0.6, s_f = 0`, and `D_i` of standard deviation 0.5, so style dominates the features, but does
    not affect the scores. Costs are divided by the 0.995 quantile of the pool's costs and cut off at 1.

    Source: our own construction, for use where the files of ACQB's experiments (RouterBench, SPROUT, EmbedLLM) are not
    available. Its numbers are not those of real prompts.

    Args:
      models: "routerbench" (11 models) or "sprout" (14), see `STANDIN_MODELS`; "embedllm" (112 invented models `j` of price
        `70 ** (j / 111)` and accuracy `0.3 + 0.4 j / 111 + 0.1 sin(37 j)`); or arrays `(accuracy, price)`, each `[N]`,
        accuracies between 0 and 1 exclusive, prices at least 0 in any unit.
      preset: "clean" or "semantic-noise": how much the features reveal, as above.
      scores: "soft" for scores in [0, 1], "binary" for 0 or 1, as above.
      queries: number of prompts in the pool.
      offline: number of prompts in the separate set.
      dim: `d`, number of features, at least `topics + styles`.
      topics, styles: number of topics, and of styles.
      seed: seed of all random draws. The pool does not depend on `offline`.

    Returns:
      The pool and the separate set: tables with features `[Q, d]` of length 1, groups by topic, and costs in [0, 1].

    Raises:
      ValueError: an argument is out of range.
    """
    names, accuracy, price = _models(models)
    topic_weight, style_weight, feature_spread, difficulty_spread = _PRESETS[checks.one_of("preset", preset, _PRESETS)]
    skill_spread = _SKILL[checks.one_of("scores", scores, _SKILL)]
    for name, value in {"queries": queries, "offline": offline, "topics": topics, "styles": styles}.items():
        checks.count(name, value)
    if checks.count("dim", dim) < topics + styles:
        raise ValueError(f"dim must be at least topics + styles = {topics + styles}, one direction for each, got {dim}")
    world, *pools = np.random.default_rng(checks.count("seed", seed, minimum=0)).spawn(3)

    directions = np.linalg.qr(world.normal(size=(dim, topics + styles)))[0].T
    topic_probability, style_probability = world.dirichlet(np.full(topics, 5.0)), world.dirichlet(np.full(styles, 5.0))
    skill = skill_spread * world.normal(size=(topics, len(names)))
    beta = world.normal(size=(dim, len(names)))

    def draw(rng: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        topic, style = rng.choice(topics, number, p=topic_probability), rng.choice(styles, number, p=style_probability)
        direction = _unit(rng.normal(size=(number, dim)))
        features = topic_weight * directions[topic] + style_weight * directions[topics + style]
        features = _unit(features + np.sqrt(1 - topic_weight**2 - style_weight**2) * direction)
        difficulty = difficulty_spread * rng.normal(size=(number, 1))
        logit = np.log(accuracy / (1 - accuracy)) + skill[topic] + feature_spread * direction @ beta - difficulty
        probability = (1 + np.tanh(logit / 2)) / 2
        uniform = rng.uniform(size=probability.shape)
        tokens = rng.lognormal(5.5, 0.7, size=(number, 1)) * rng.lognormal(0.0, 0.3, size=probability.shape)
        return features, probability if scores == "soft" else uniform < probability, price * tokens, topic

    drawn = [draw(rng, number) for rng, number in zip(pools, (queries, offline), strict=True)]
    unit = np.quantile(drawn[0][2], _QUANTILE) or 1.0
    names_of_groups, cost_unit = tuple(f"topic {c}" for c in range(topics)), f"{_QUANTILE} quantiles of the pool's costs"
    online, other = (
        RoutingTable(score, np.clip(cost / unit, 0.0, 1.0), names, features, topic, names_of_groups, cost_unit)
        for features, score, cost, topic in drawn
    )
    return online, other


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _models(models: str | tuple[np.ndarray, np.ndarray]) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Returns names, accuracies `[N]` and prices `[N]` of the `N` models that the argument `models` of `standin` means."""
    if isinstance(models, str):
        checks.one_of("models", models, [*STANDIN_MODELS, "embedllm"])
        if models == "embedllm":
            j = np.arange(112)
            place = j / 111
            return tuple(f"invented-{i:03}" for i in j), 0.3 + 0.4 * place + 0.1 * np.sin(37 * j), 70.0**place
        names, accuracy, price = zip(*STANDIN_MODELS[models], strict=True)
        return names, np.array(accuracy), np.array(price)
    if not isinstance(models, (tuple, list)) or len(models) != 2:
        raise ValueError(f"models must be a name or a pair of arrays (accuracy, price), got {checks.show(models)}")
    accuracy = checks.numbers("accuracy", models[0])
    if accuracy.ndim != 1 or not accuracy.size:
        raise ValueError(f"accuracy must have shape [N] with at least one model, got {accuracy.shape}")
    outside = np.flatnonzero((accuracy <= 0) | (accuracy >= 1))
    if outside.size:
        raise ValueError(f"accuracy must be between 0 and 1 exclusive, got {accuracy[outside[0]]:g} at index {outside[0]}")
    price = checks.non_negative("price", models[1], accuracy.shape)
    return tuple(f"model-{j}" for j in range(accuracy.size)), accuracy, price
