"""Parameters fitted before a run."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from service_cases import cells, first_observation

from jaxroute.core import draws
from jaxroute.estimators.heads import binary_cross_entropy
from jaxroute.estimators.sgd import SGD
from jaxroute.problems import service as sv
from jaxroute.problems.service.sources import draw_requests


@pytest.mark.slow
def test_pretraining_and_given_parameters():
    env = cells(signal=1.0)
    head = sv.Logistic(init_spread=0.1)
    params = sv.pretrain(env, head, steps=1500, optimiser=SGD(0.02, 0.9, 1e-3))
    requests = draw_requests(env.requests, draws.key(23), 4000)
    labels = requests.satisfied.astype(jnp.float32)

    def losses(params):
        logits = jax.vmap(lambda x: head.logits(params, x))(requests.features)
        return np.asarray(jax.vmap(binary_cross_entropy)(logits, labels))

    fresh = head.init(draws.key(1), env.spec.num_features, 3)
    gain = losses(fresh) - losses(params)
    assert gain.mean() > 0.1 and gain.mean() > 5 * gain.std() / math.sqrt(4000)
    fixed = sv.Learned(head, params=params, trains=False)
    policy, obs = sv.MessPlus(c=1e6, predictor=fixed), first_observation(env)
    state = policy.init(draws.key(0), env.spec)
    action, info = policy.act(draws.key(1), state, obs, jnp.int32(3))
    feedback = sv.types.Feedback(jnp.bool_(True), jnp.float32(0), jnp.float32(1), jnp.ones(3), jnp.ones(3))
    after = jax.jit(policy.update)(draws.key(2), state, obs, action, feedback, jnp.int32(3))
    assert bool(action.explore) and int(after.num_steps) == 0 and float(after.queue.length) > 0
    jax.tree.map(np.testing.assert_array_equal, after.params, params)
    np.testing.assert_allclose(info["probability"], jax.nn.sigmoid(head.logits(params, obs.features)), rtol=1e-5)
    trained = policy.replace(predictor=fixed.replace(trains=True))
    state = trained.init(draws.key(0), env.spec)
    jax.tree.map(np.testing.assert_array_equal, state.params, params)
    after = jax.jit(trained.update)(draws.key(2), state, obs, action, feedback, jnp.int32(3))
    assert int(after.num_steps) == 1 and not np.array_equal(after.params["b"], params["b"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sv.pretrain(sv.typed_service(), sv.Logistic(), steps=0), "steps must be at least 1"),
    ],
)  # fmt: skip
def test_bad_input_of_pretraining(make, message):
    with pytest.raises(ValueError, match=message):
        make()
