"""What is trained before a run: first parameters of a predictor, and RouterDC."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax import lax

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.heads import binary_cross_entropy
from jaxroute.estimators.sgd import SGD
from jaxroute.problems.service.baselines import Fixed, serve_with
from jaxroute.problems.service.env import Service
from jaxroute.problems.service.requests import draw_requests


def pretrain(env: Service, head: Any, *, steps: int, optimiser: SGD = SGD(), seed: int = 0) -> Any:
    """Parameters of a head after SGD on fresh requests, one step each, all labels known: for `Learned(head, params=...)`.

    Args:
      env: where requests come from. head: `Logistic` or `Mlp`. steps: number of requests.
      optimiser: as on line. seed: of requests, first parameters and dropout.
    """
    if not hasattr(head, "training_logits"):
        raise ValueError(f"head must be Logistic() or Mlp(), got {checks.show(head)}")
    k_requests, k_init, k_step = draws.split(draws.key(checks.count("seed", seed, minimum=0)), 3)
    requests = draw_requests(env.requests, k_requests, checks.count("steps", steps))
    transform = optimiser.transform()
    params = head.init(k_init, env.spec.num_features, env.spec.num_models)

    def step(carry, request):
        params, state, number = carry

        def loss(params):
            logits = head.training_logits(draws.fold_in(k_step, number), params, request.features)
            return binary_cross_entropy(logits, request.satisfied.astype(jnp.float32))

        updates, state = transform.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state, number + 1), None

    (params, _, _), _ = lax.scan(step, (params, transform.init(params), jnp.int32(0)), requests)
    return params


def contrastive_loss(logits, satisfied, positives: int = 3, negatives: int = 3) -> jax.Array:
    """Sample-LLM loss of one request: each of the best models against the worst ones.

    `sum_p -log(e^{l_p} / (e^{l_p} + sum_n e^{l_n}))` over at most `positives` models that satisfy, against at most `negatives` that
    do not. logits: `[M]`. satisfied: `[M]` bool.

    Source: RouterDC (Chen et al., 2024), eq. (4), as MESS+ uses it.
    """
    good = satisfied & (numerics.rank(satisfied) < positives)
    bad = ~satisfied & (numerics.rank(~satisfied) < negatives)
    against = jax.nn.logsumexp(jnp.where(bad, logits, -jnp.inf))
    each = jnp.logaddexp(logits, against) - logits
    return jnp.sum(jnp.where(good & jnp.any(bad), each, 0.0))


def cluster_loss(own, inside, outside) -> jax.Array:
    """Sample-sample loss of one request: a request of its own cluster against some of others, by cosine similarity.

    own, inside: `[e]`. outside: `[H, e]`. Source: RouterDC (Chen et al., 2024), eq. (5).
    """
    near, far = _cosine(own, inside), jax.vmap(lambda other: _cosine(own, other))(outside)
    return jnp.logaddexp(near, jax.nn.logsumexp(far)) - near


def _cosine(a, b):
    """Cosine of the angle between vectors `[e]`."""
    return jnp.sum(a * b) / jnp.sqrt(jnp.maximum(jnp.sum(a * a) * jnp.sum(b * b), 1e-12))


@struct.dataclass
class RouterDC(Fixed):
    """The model whose learned vector points most in the direction of the encoded request.

    Trained beforehand on requests with known labels; see `fit_routerdc`. Neither cost nor target enters.

    Source: RouterDC (Chen et al., 2024); MESS+, section 4.1 and appendix B.

    encoder: `[d, e]`. experts: `[M, e]`.
    """

    encoder: Leaf
    experts: Leaf

    def init(self, key, spec) -> tuple:
        del key
        (d, e), (models, f) = np.shape(self.encoder), np.shape(self.experts)
        if (d, models) != (spec.num_features, spec.num_models) or e != f:
            raise ValueError(
                f"encoder and experts must have the shapes [{spec.num_features}, e] and [{spec.num_models}, e] here, "
                f"got {[d, e]} and {[models, f]}"
            )
        return ()

    def act(self, key, state, obs, t):
        del key, state, t
        logits = self.logits(obs.features)
        return serve_with(numerics.argmax(logits)), {"logits": logits}

    def logits(self, features) -> jax.Array:
        """Cosine similarities `[M]` of features `[d]`."""
        code = numerics.combine(features, jnp.asarray(self.encoder))
        experts = jnp.asarray(self.experts)
        lengths = jnp.sqrt(jnp.maximum(jnp.sum(experts * experts, axis=-1) * jnp.sum(code * code), 1e-12))
        return jnp.sum(experts * code, axis=-1) / lengths

    @classmethod
    def of(cls, env: Service) -> "RouterDC":
        """Trained on requests of an environment with the paper's numbers."""
        return fit_routerdc(env)


def _clusters(x, number: int, key, sweeps: int = 10):
    """Cluster `[n]` of each row of `x` `[n, d]`, by Lloyd's algorithm from random rows."""
    centres = x[jnp.argsort(draws.uniform(key, (x.shape[0],)))[:number]]

    def nearest(centres):
        return jnp.argmin(jnp.sum(jnp.square(x[:, None] - centres), axis=-1), axis=-1)

    def sweep(centres, _):
        member = jax.nn.one_hot(nearest(centres), number, axis=0)
        count = jnp.sum(member, axis=1, keepdims=True)
        return jnp.where(count > 0, member @ x / jnp.maximum(count, 1.0), centres), None

    centres, _ = lax.scan(sweep, centres, None, length=sweeps)
    return nearest(centres)


def fit_routerdc(
    env: Service,
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
    """Trains `RouterDC` on requests of an environment by AdamW, sample-LLM plus sample-sample loss.

    Source: MESS+, appendix B: 1,000 training requests, 1,000 steps of 64 requests; three positives, three negatives and three
    requests outside the cluster as in RouterDC.

    Differs from the paper: the encoder is a linear map of the features in place of a pretrained transformer, for which a learning
    rate of 5e-3 replaces 5e-5. On a table the training requests are among those replayed.

    Args:
      env: where requests come from. num_requests: how many to train on. learning_rate: of AdamW.
      width: `e`. positives, negatives: most models on either side of the sample-LLM loss.
      cluster_weight: weight of the sample-sample loss; num_clusters: by k-means; outside: requests of other clusters.
      seed: of everything random.
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


@functools.partial(jax.jit, static_argnums=4)
def _fit(env: Service, learning_rate, cluster_weight, seed, sizes: tuple[int, ...]) -> RouterDC:
    """`fit_routerdc` after its checks; compiled once for all environments of a structure."""
    num_requests, steps, batch, width, positives, negatives, num_clusters, outside = sizes
    k_data, k_init, k_cluster, k_steps = draws.split(draws.fold_in(draws.key(0), seed), 4)
    data = draw_requests(env.requests, k_data, num_requests)
    x, satisfied = data.features, data.satisfied
    cluster = _clusters(x, num_clusters, k_cluster)
    spec = env.spec
    k_encoder, k_experts = draws.split(k_init)
    router: Any = RouterDC(
        encoder=draws.normal(k_encoder, (spec.num_features, width)) / np.sqrt(spec.num_features).astype(np.float32),
        experts=0.78 * draws.normal(k_experts, (spec.num_models, width)),
    )
    optimiser = optax.adamw(learning_rate, weight_decay=0.01)

    def loss(router, key):
        k_batch, k_inside, k_outside = draws.split(key, 3)
        chosen = draws.randint(k_batch, num_requests, (batch,))
        routed = jax.vmap(lambda i: contrastive_loss(router.logits(x[i]), satisfied[i], positives, negatives))(chosen)
        same = cluster[chosen][:, None] == cluster
        inside = jnp.argmax(jnp.where(same, draws.uniform(k_inside, same.shape), -1.0), axis=-1)
        _, others = lax.top_k(jnp.where(same, -1.0, draws.uniform(k_outside, same.shape)), outside)
        codes = x @ router.encoder
        apart = jax.vmap(lambda i, j, others: cluster_loss(codes[i], codes[j], codes[others]))(chosen, inside, others)
        return jnp.mean(routed) + cluster_weight * jnp.mean(apart)

    def step(carry, number):
        router, state = carry
        updates, state = optimiser.update(jax.grad(loss)(router, draws.fold_in(k_steps, number)), state, router)
        return (optax.apply_updates(router, updates), state), None

    (router, _), _ = lax.scan(step, (router, optimiser.init(router)), jnp.arange(steps))
    return router
