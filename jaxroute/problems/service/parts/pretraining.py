"""Initial parameters of a predictor, fitted before a run."""

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxroute.core import checks, draws
from jaxroute.estimators.heads import binary_cross_entropy
from jaxroute.estimators.sgd import SGD
from jaxroute.problems.service.env import ServiceEnv
from jaxroute.problems.service.parts.predictors import Head
from jaxroute.problems.service.sources import draw_requests
from jaxroute.problems.service.types import Params, Request


def pretrain(env: ServiceEnv, head: Head, *, steps: int, optimiser: SGD = SGD(), seed: int = 0) -> Params:
    """Trains a head by SGD on fresh requests, one step each, with all labels; returns parameters for `Learned(head, params=...)`.

    Args:
      env: environment with the source of requests.
      head: `Logistic` or `Mlp`.
      steps: number of requests.
      optimiser: optimiser, as in a run.
      seed: seed of requests, initial parameters and dropout.
    """
    if not hasattr(head, "training_logits"):
        raise ValueError(f"head must be Logistic() or Mlp(), got {checks.show(head)}")
    k_requests, k_init, k_step = draws.split(draws.key(checks.count("seed", seed, minimum=0)), 3)
    requests = draw_requests(env.requests, k_requests, checks.count("steps", steps))
    transform = optimiser.transform()
    params = head.init(k_init, env.spec.num_features, env.spec.num_models)

    def step(
        carry: tuple[Params, optax.OptState, jax.Array], request: Request
    ) -> tuple[tuple[Params, optax.OptState, jax.Array], None]:
        params, state, number = carry

        def loss(params: Params) -> jax.Array:
            logits = head.training_logits(draws.fold_in(k_step, number), params, request.features)
            return binary_cross_entropy(logits, request.satisfied.astype(jnp.float32))

        updates, state = transform.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state, number + 1), None

    (params, _, _), _ = lax.scan(step, (params, transform.init(params), jnp.int32(0)), requests)
    return params
