"""Baseline policies: those of the MESS+ paper, and variants of MESS+ without its virtual queue."""

import functools
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, draws, numerics
from jaxroute.core.protocols import Info, optional
from jaxroute.core.quick import quick_jit
from jaxroute.core.types import FixedPolicy, Leaf
from jaxroute.problems.service.env import ServiceEnv
from jaxroute.problems.service.messplus import Learner
from jaxroute.problems.service.parts.contrastive import Clusters, cluster_loss, contrastive_loss, nearest_clusters
from jaxroute.problems.service.parts.predictors import Predictor, TrueProbabilities
from jaxroute.problems.service.sources import draw_requests
from jaxroute.problems.service.types import Action, Observation, Params, ServiceSpec

_THRESHOLDS = np.round(np.arange(0.9, 0.05, -0.1), 1)


def serve_with(model: Leaf, energy: Leaf = 0.0) -> Action:
    """Returns the action that serves a request by the model of index `model`, without exploration; `energy` is the cost of the decision itself, J."""
    return Action(explore=jnp.zeros((), bool), serve=jnp.asarray(model, jnp.int32), energy=jnp.asarray(energy, jnp.float32))


@final
@struct.dataclass
class Single(FixedPolicy):
    """Policy that always uses the same model. Source: MESS+, section 4.1.

    Attributes:
      model: `[]` index of the model; -1 for the last one, which is the most expensive.
    """

    model: Leaf = -1

    def check(self) -> None:
        checks.whole("model", float(checks.numbers("model", self.model, ())), minimum=-1)

    def act(self, key: Array, state: Params, obs: Observation, t: Array) -> tuple[Action, Info]:
        del key, state, t
        models = obs.cost.shape[-1]
        model = jnp.asarray(self.model, jnp.int32)
        return serve_with(jnp.where(model < 0, models - 1, model)), {}


@struct.dataclass
class RandomMix(FixedPolicy):
    """Policy that draws a model with given probabilities.

    Attributes:
      probabilities: `[M]` numbers proportional to the probabilities (default: equal).
    """

    probabilities: Leaf | None = None

    def check(self) -> None:
        if self.probabilities is not None:
            probabilities = checks.non_negative("probabilities", self.probabilities)
            if probabilities.ndim != 1 or probabilities.sum() <= 0:
                got = checks.show(self.probabilities)
                raise ValueError(f"probabilities must be [M] numbers of at least 0, not all 0, got {got}")

    def act(self, key: Array, state: Params, obs: Observation, t: Array) -> tuple[Action, Info]:
        del state, t
        models = obs.cost.shape[-1]
        probabilities = jnp.ones(models) if self.probabilities is None else jnp.asarray(self.probabilities, jnp.float32)
        if probabilities.shape != (models,):
            raise ValueError(f"probabilities must have one entry per model ({models}), got shape {probabilities.shape}")
        return serve_with(numerics.inverse_cdf(probabilities, draws.uniform(key))), {}


@final
@struct.dataclass
class EducatedGuessing(RandomMix):
    """Policy that draws a model with the probabilities of `educated_guess`. Source: MESS+, appendix B, the listing "random with constraint"."""

    @classmethod
    def of(cls, env: ServiceEnv) -> "EducatedGuessing":
        """Returns the policy with the probabilities that reach the target of `env`, given the accuracies of its models."""
        return cls(probabilities=educated_guess(jnp.asarray(env.accuracy), jnp.asarray(env.alpha)))


def educated_guess(accuracy: Array, alpha: Array) -> Array:
    """Returns probabilities `[M]` with which models of accuracies `[M]` reach the target `alpha`, in the floating-point type of `accuracy`.

    All probabilities are equal at first. While the expected satisfaction is below `alpha`, the probability of each model whose accuracy exceeds this
    expectation is multiplied by 1.01, that of each other model by 0.99, and all are divided by their sum, at most 5,000 times. If that does not
    reach `alpha`, the listing's fallback is used: from the best model down, each gets up to 80 % of the remaining probability, the worst the rest.
    Source: MESS+, appendix B, the listing "random with constraint".

    Differs from the paper: for traced arguments, as under `jit`, an unreachable `alpha` gives that fallback instead of an error.

    Raises:
      ValueError: `alpha` is above the largest accuracy; the listing has this error, too.
    """
    if not any(isinstance(x, jax.core.Tracer) for x in (accuracy, alpha)) and alpha > np.max(accuracy) + 1e-6:
        raise ValueError(f"alpha must be at most the accuracy of the best model, {np.max(accuracy):g}, got {float(alpha):g}")
    return _guess(accuracy, alpha)


@quick_jit
def _guess(accuracy: Array, alpha: Array) -> Array:
    models = accuracy.shape[-1]

    def unmet(state: tuple[Array, Array]) -> Array:
        p, sweeps = state
        return (jnp.sum(p * accuracy) < alpha - 1e-6) & (sweeps < 5000)

    def sweep(state: tuple[Array, Array]) -> tuple[Array, Array]:
        p, sweeps = state
        moved = p * jnp.where(accuracy > jnp.sum(p * accuracy), 1.01, 0.99)
        return moved / jnp.sum(moved), sweeps + 1

    start = jnp.full((models,), 1.0 / models, accuracy.dtype)
    p, _ = lax.while_loop(unmet, sweep, (start, jnp.int32(0)))
    # Fallback of the listing if the sweeps do not suffice: most of the remainder goes to each better model in turn.
    best, worst = jnp.max(accuracy), jnp.min(accuracy)
    span = jnp.where(best > worst, best - worst, 1.0)
    rank = numerics.rank(accuracy)
    left, fallback = 1.0 - models * 1e-10, jnp.full((models,), 1e-10, accuracy.dtype)
    for place in range(models):
        here = rank == place
        part = left if place == models - 1 else left * 0.8 * (numerics.pick(here, accuracy) - worst) / span
        fallback = jnp.where(here, part, fallback)
        left = left - part
    return jnp.where(unmet((p, jnp.int32(0))), fallback / jnp.sum(fallback), p)


@final
@struct.dataclass
class RouteLLM(FixedPolicy):
    """Policy that uses the largest model if a router's score of the request reaches a threshold, otherwise the smallest model.

    The score replaces the paper's router: it is `sigmoid(offset + spread z + advantage h)` with standard normal `z`. The standardised advantage of
    the largest model is `h = (p_largest - p_smallest - usual) / deviation`, where `p` are the probabilities that the models satisfy the request. By
    default `advantage` is 0: the score ignores the request, as in Table 2, where the router is no better than random. The method `knowing` returns an
    informed router.

    Source: MESS+, section 4.1 and appendix B, RouteLLM with thresholds .1 to .9.

    Attributes:
      threshold: `[]` least score with which the largest model serves.
      offset: `[]` mean of the score's logit.
      spread: `[]` standard deviation of the logit's noise.
      advantage: `[]` increase of the logit per unit of `h`.
      energy: `[]` cost of the router, J per request.
      usual, deviation: `[]` mean and standard deviation of the difference between the probabilities of the largest and the smallest model.
      predictor: `TrueProbabilities`, needed for a non-zero `advantage`.
    """

    threshold: Leaf = 0.6
    offset: Leaf = 0.94
    spread: Leaf = 0.5
    advantage: Leaf = 0.0
    energy: Leaf = 0.0
    usual: Leaf = 0.0
    deviation: Leaf = 1.0
    predictor: Predictor | None = None

    def check(self) -> None:
        checks.probability("threshold", self.threshold, ())
        checks.numbers("offset", self.offset, ())
        checks.positive("spread", self.spread, ())
        checks.numbers("advantage", self.advantage, ())
        checks.non_negative("energy", self.energy, ())
        if self.predictor is None and np.any(np.asarray(self.advantage) != 0):
            raise ValueError("advantage needs a predictor, TrueProbabilities(env.requests)")
        checks.positive("deviation", self.deviation, ())
        if self.predictor is not None and (not hasattr(self.predictor, "probabilities") or self.predictor.trains):
            raise ValueError(f"predictor must be TrueProbabilities(...), got {checks.show(self.predictor)}")

    def check_spec(self, spec: ServiceSpec) -> None:
        optional(self.predictor, "check_spec", spec)

    def init(self, key: Array, spec: ServiceSpec) -> Params:
        return () if self.predictor is None else self.predictor.init(key, spec)

    def act(self, key: Array, state: Params, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        lean = self.offset + self.spread * draws.normal(key)
        if self.predictor is not None:
            probability = self.predictor.probabilities(state, obs)
            lean = lean + self.advantage * (probability[-1] - probability[0] - self.usual) / self.deviation
        score = jax.nn.sigmoid(lean)
        return serve_with(jnp.where(score >= self.threshold, obs.cost.shape[-1] - 1, 0), self.energy), {"score": score}

    @classmethod
    def knowing(cls, env: ServiceEnv, advantage: float, **options: Any) -> "RouteLLM":
        """Returns a router whose logit increases by `advantage` per unit of the standardised advantage `h`; `options` are other fields.

        Raises `ValueError` for requests of a table, since their probabilities of satisfaction are unknown.
        """
        predictor = TrueProbabilities(env.requests)
        predictor.check()
        contexts = env.requests.contexts()
        gain = contexts.success[:, -1] - contexts.success[:, 0]
        usual = float(contexts.weight @ gain)
        deviation = float(np.sqrt(contexts.weight @ (gain - usual) ** 2))
        if deviation < 1e-9:
            raise ValueError("env must tell requests apart: the largest model's advantage is the same on all of them")
        return cls(
            advantage=advantage, usual=np.float32(usual), deviation=np.float32(deviation), predictor=predictor, **options
        )

    @classmethod
    def of(cls, env: ServiceEnv, **options: Any) -> "RouteLLM":
        """Returns the router with the largest threshold of .9, .8, ..., .1 that meets the target of `env`; if none does, with threshold 0.

        `options` are the router's other fields; `advantage` has no effect on the threshold. The paper's thresholds are often lower (Table 5).
        """
        router = cls(**options)
        strong = strong_share(jnp.asarray(_THRESHOLDS, jnp.float32), router.offset, router.spread)
        satisfied = strong * env.accuracy[-1] + (1.0 - strong) * env.accuracy[0]
        good = jnp.where(satisfied >= env.alpha, jnp.asarray(_THRESHOLDS, jnp.float32), 0.0)
        return router.replace(threshold=jnp.max(good))


def strong_share(threshold: Leaf, offset: Leaf, spread: Leaf) -> Array:
    """Returns the share of requests whose score `sigmoid(offset + spread z)`, with standard normal `z`, reaches a threshold in (0, 1)."""
    logit = jnp.log(threshold) - jnp.log1p(-threshold)
    return jax.scipy.stats.norm.sf((logit - offset) / spread)


@final
@struct.dataclass
class RouterDC(FixedPolicy):
    """Policy that uses the model whose learned vector has the largest cosine similarity to the encoded request.

    It is trained before the run on requests for which satisfaction by every model is known (see `fit_routerdc`), independently of costs and target.

    Source: RouterDC (Chen et al., 2024); MESS+, section 4.1 and appendix B.

    Attributes:
      encoder: `[d, e]` linear map from `d` features to an encoding of dimension `e`.
      experts: `[M, e]` learned vector of each of `M` models.
    """

    encoder: Leaf
    experts: Leaf

    def init(self, key: Array, spec: ServiceSpec) -> Params:
        del key
        (d, e), (models, f) = np.shape(self.encoder), np.shape(self.experts)
        if (d, models) != (spec.num_features, spec.num_models) or e != f:
            expected = f"[{spec.num_features}, e] and [{spec.num_models}, e]"
            raise ValueError(f"encoder and experts must have the shapes {expected} here, got {[d, e]} and {[models, f]}")
        return ()

    def act(self, key: Array, state: Params, obs: Observation, t: Array) -> tuple[Action, Info]:
        del key, state, t
        logits = self.logits(obs.features)
        return serve_with(numerics.argmax(logits)), {"logits": logits}

    def logits(self, features: Array) -> Array:
        """Returns the cosine similarities `[M]` of the models' vectors to the encoded features `[d]`."""
        code = numerics.combine(features, jnp.asarray(self.encoder))
        experts = jnp.asarray(self.experts)
        lengths = jnp.sqrt(jnp.maximum(jnp.sum(experts * experts, axis=-1) * jnp.sum(code * code), 1e-12))
        return jnp.sum(experts * code, axis=-1) / lengths

    @classmethod
    def of(cls, env: ServiceEnv, training: int = 0) -> "RouterDC":
        """Returns a policy trained on requests of `env` by `fit_routerdc` with its default settings; `training` is the seed of the training.

        Results vary more between training seeds than between runs: for standard errors use several, `grid(RouterDC.of, env=env, training=range(8))`.
        """
        return fit_routerdc(env, seed=training)


def fit_routerdc(
    env: ServiceEnv,
    *,
    num_requests: int = 1000,
    steps: int = 1000,
    batch: int = 64,
    learning_rate: float = 5e-3,
    width: int = 16,
    positives: int = 3,
    negatives: int = 3,
    cluster_weight: float = 1.0,
    num_clusters: int = 5,
    outside: int = 3,
    seed: int = 0,
) -> RouterDC:
    """Trains `RouterDC` on requests of `env`, by AdamW on the sample-LLM loss (`contrastive_loss`) plus the sample-sample loss (`cluster_loss`).

    Source: MESS+, appendix B: 1,000 training requests, 1,000 steps of 64 requests; three positives, three negatives and three requests outside the
    cluster as in RouterDC.

    Differs from the paper: the encoder is a linear map of the features instead of a pretrained transformer, with a learning rate of 5e-3 instead of
    5e-5. On a table the training requests are among the replayed ones.

    Args:
      env: environment with the source of requests; target and costs have no effect.
      num_requests: number of training requests.
      steps, batch: number of AdamW steps, and number of requests per step.
      learning_rate: step size of AdamW.
      width: dimension of the encoding, `e`.
      positives, negatives: largest number of satisfying models, and of other models, that the loss compares per request (`contrastive_loss`).
      cluster_weight: weight of the sample-sample loss (`cluster_loss`).
      num_clusters: number of clusters of the training requests, by k-means.
      outside: number of requests of other clusters in the sample-sample loss.
      seed: seed of the training.
    """
    for name, value in {
        "num_requests": num_requests, "steps": steps, "batch": batch, "width": width, "positives": positives,
        "negatives": negatives, "num_clusters": num_clusters, "outside": outside,
    }.items():  # fmt: skip
        checks.count(name, value)
    checks.count("num_clusters", num_clusters, minimum=2)
    if num_clusters > num_requests:
        raise ValueError(f"num_clusters must be at most num_requests, {num_requests}, got {num_clusters}")
    checks.count("outside", outside, maximum=num_requests)
    checks.positive("learning_rate", learning_rate, ())
    checks.non_negative("cluster_weight", cluster_weight, ())
    sizes = (num_requests, steps, batch, width, positives, negatives, num_clusters, outside)
    return _fit(env, learning_rate, cluster_weight, checks.count("seed", seed, minimum=0), sizes)


@functools.partial(quick_jit, static_argnums=4, often=True)
def _fit(env: ServiceEnv, learning_rate: Leaf, cluster_weight: Leaf, seed: Leaf, sizes: tuple[int, ...]) -> RouterDC:
    num_requests, steps, batch, width, positives, negatives, num_clusters, outside = sizes
    k_data, k_init, k_cluster, k_steps = draws.split(draws.fold_in(draws.key(0), seed), 4)
    data = draw_requests(env.requests, k_data, num_requests)
    x, satisfied = data.features, data.satisfied
    cluster = nearest_clusters(x, num_clusters, k_cluster)
    clusters = Clusters.of(cluster, num_clusters)
    spec = env.spec
    k_encoder, k_experts = draws.split(k_init)
    router: Any = RouterDC(
        encoder=draws.normal(k_encoder, (spec.num_features, width)) / np.sqrt(spec.num_features).astype(np.float32),
        experts=0.78 * draws.normal(k_experts, (spec.num_models, width)),
    )
    optimiser = optax.adamw(learning_rate, weight_decay=0.01)

    def loss(router: RouterDC, key: Array) -> Array:
        k_batch, k_inside, k_outside = draws.split(key, 3)
        chosen = draws.randint(k_batch, num_requests, (batch,))
        routed = jax.vmap(lambda i: contrastive_loss(router.logits(x[i]), satisfied[i], positives, negatives))(chosen)
        inside = jax.vmap(clusters.inside)(cluster[chosen], draws.uniform(k_inside, (batch,)))
        others = jax.vmap(clusters.outside)(cluster[chosen], draws.uniform(k_outside, (batch, outside)))
        codes = jnp.dot(x, router.encoder, precision="highest")  # Not in TF32, on a GPU.
        paired = jax.vmap(lambda i, j, others: cluster_loss(codes[i], codes[j], codes[others]))(chosen, inside, others)
        return jnp.mean(routed) + cluster_weight * jnp.mean(paired)

    def step(carry: tuple[Params, optax.OptState], number: Array) -> tuple[tuple[Params, optax.OptState], None]:
        router, state = carry
        updates, state = optimiser.update(jax.grad(loss)(router, draws.fold_in(k_steps, number)), state, router)
        return (optax.apply_updates(router, updates), state), None

    (router, _), _ = lax.scan(step, (router, optimiser.init(router)), jnp.arange(steps))
    return router


@final
@struct.dataclass
class ShadowPrice(Learner):
    """Policy that serves with the model of least `cost - price * predicted satisfaction`: MESS+ with a constant price instead of the virtual queue.

    Attributes:
      price: `[]` cost, J, that the policy accepts for an increase of the probability of satisfaction from 0 to 1.
    """

    price: Leaf = struct.field(default=1000.0, kw_only=True)

    def check(self) -> None:
        super().check()
        checks.non_negative("price", self.price, ())

    def score(self, queue: Array, cost: Array, probability: Array, alpha: Array) -> Array:
        del queue, alpha
        return cost - self.price * probability


@final
@struct.dataclass
class MostSatisfying(Learner):
    """Policy that serves with the model of largest predicted satisfaction, whatever its cost."""

    def score(self, queue: Array, cost: Array, probability: Array, alpha: Array) -> Array:
        del queue, cost, alpha
        return -probability


@final
@struct.dataclass
class CheapestAbove(Learner):
    """Policy that serves with the cheapest model whose predicted satisfaction reaches the target; if none does, the model of largest prediction."""

    def score(self, queue: Array, cost: Array, probability: Array, alpha: Array) -> Array:
        del queue
        above = probability >= alpha
        return jnp.where(jnp.any(above), jnp.where(above, cost, jnp.inf), -probability)
