"""ACQB, a policy for queues. In some rounds it explores: it serves the newest query with the next set of models in a fixed order.

In all other rounds it serves the waiting query and set of models with the largest probability of an accepted answer, by sampled parameters.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.types import CostHint, Leaf
from jaxroute.estimators import mnl
from jaxroute.estimators.gaussian import Sampler
from jaxroute.estimators.running import mnl_radius
from jaxroute.problems.queueing.parts.choice import choose_parts
from jaxroute.problems.queueing.parts.memory import PromptCounts
from jaxroute.problems.queueing.parts.triggers import DecayingExploration, Trigger
from jaxroute.problems.queueing.types import LEARNER_METRICS, Action, Decision, Feedback, Observation, QueueSpec
from jaxroute.solvers.assortment import best_models, log_weight_of_best

# The paper's c1.
_C1 = 1.0


@struct.dataclass
class LearnerState:
    """State of `ACQB` for `N` models, `K` answers per round and `d` features. With one vector for all models `theta` and `spread` have `N = 1`.

    Attributes:
      theta: `[N, d]` estimated parameters.
      spread: state of the sampler, the design matrices `[N, d, d]` or square roots of their inverses.
      fit: state of the solver that computes the estimate.
      data: observations so far, in the form of the policy's `Memory`.
      pulls: `[N]` int32, number of rounds in which each model was shown.
      next_offer: `[K]` int32, indices of the models that the next explored round shows.
      spec: sizes of the environment (static).
    """

    theta: Array
    spread: Any
    fit: Any
    data: Any
    pulls: Array
    next_offer: Array
    spec: QueueSpec = struct.field(pytree_node=False)


@struct.dataclass
class ACQB:
    """Anytime contextual queueing bandit: Thompson sampling of the query and of the assortment (set of models shown), with forced exploration.

    Some arrivals are explored: served with the next assortment in a fixed order. In the other rounds `M` parameter vectors are sampled from
    `N(theta_j, radius_j^2 V_j^-1)` for each model; the largest utility over the samples counts. The query and assortment with the largest departure
    rate (probability that an answer is accepted) are served. The estimate maximises the regularised likelihood; its logits differ from those of the
    optimum by at most 1e-3 (for logits above 1 a relative 1e-3), and the metric `residual` bounds the remaining error. The default solver takes
    Newton steps for up to 8 features (`Tracked` if rounds show one answer, otherwise `Newton`). With more, and for a pool of prompts, it takes
    quasi-Newton steps (`BFGS`). `Online` approximates the estimate without a pass over the data, which is many times as fast in long runs.

    The environment decides whether features describe queries (one parameter vector per model) or pairs of query and model (one for all models).

    Source: ACQB, Algorithm 1 (pair features) and Algorithm 2, whose lines are given in the code.

    Differs from the paper: kappa, lambda_0 and c1 are not given there. With the kappa of the theory the policy is hardly better than a random one;
    the default is a tuned scale. `log 0` in the radius is 0. Eq. (4) lacks a factor `x_i`. Ties go to the query that arrived first, then to models of
    lower index.

    Attributes:
      curvature: `[]` the paper's kappa, a factor of the confidence radius.
      ridge: `[]` the paper's lambda_0, the weight of the regularisation and the diagonal of the first design matrices.
      c1: `[]` constant of exploration, 0 for none: an arrival is explored with probability `min(1, c1 / sqrt(t))`.
      trigger: rule that decides which arrivals are explored, for example `PhaseThenCoin`; None for the probability given by `c1`.
      second_answer: `[]` probability that a round without exploration shows `K` answers, not one; None for always `K`. Explored rounds show `K`.
      features: `[d', P]` features that replace those of a pool's `P` prompts (the paper's ACQB-CL), None for the pool's own features.
      num_samples: number of samples `M`, None for the paper's number (static).
      solver: `Tracked`, `Newton`, `BFGS` or `Online`, None to choose by sizes (static).
      sampler: `ByCholesky`, `ByRoot` or `ByFactors`, None to choose by sizes (static).
      joint: whether each round updates the estimates of all models together, not only of the models shown (static).
      fifo: whether rounds without exploration serve the query that has waited longest (static).
    """

    curvature: Leaf = 0.3
    ridge: Leaf = 1.0
    c1: Leaf = _C1
    trigger: Trigger | None = None
    second_answer: Leaf | None = None
    features: Leaf | None = None
    num_samples: int | None = struct.field(pytree_node=False, default=None)
    solver: mnl.Solver | None = struct.field(pytree_node=False, default=None)
    sampler: Sampler | None = struct.field(pytree_node=False, default=None)
    joint: bool = struct.field(pytree_node=False, default=False)
    fifo: bool = struct.field(pytree_node=False, default=False)

    metrics = LEARNER_METRICS

    def init(self, key: Array, spec: QueueSpec) -> LearnerState:
        del key
        parts = choose_parts(self, spec)
        num, dim = parts.memory.num_parameters, parts.memory.dim
        ridge = jnp.asarray(self.ridge, jnp.float32)
        return LearnerState(
            theta=jnp.zeros((num, dim), jnp.float32),
            spread=parts.sampler.init(num, dim, ridge, spec.rounds * spec.num_offered),  # V_0 = lambda_0 I
            fit=parts.solver.init(num, dim, ridge),
            data=parts.memory.init(),
            pulls=jnp.zeros((spec.num_models,), jnp.int32),
            next_offer=jnp.arange(spec.num_offered, dtype=jnp.int32),  # C[1]
            spec=spec,
        )

    def act(self, key: Array, state: LearnerState, obs: Observation, t: Array) -> Decision:
        """Returns the query to serve and the models to show, and diagnostics: Algorithm 2, lines 3 to 11; Algorithm 1, lines 2 to 8."""
        k_coin, k_sample, k_size = draws.split(key, 3)
        spec, parts = state.spec, choose_parts(self, state.spec)

        # Lines 3 and 4 (Algorithm 1, lines 2 and 3): if A(t - 1) = E(t - 1) = 1, the newest query, and C[c + 1].
        trigger = DecayingExploration(self.c1) if self.trigger is None else self.trigger
        explore = obs.arrived & trigger.fires(t, draws.uniform(k_coin))
        next_models = jnp.any(state.next_offer[:, None] == jnp.arange(spec.num_models), axis=0)

        # Lines 7 to 9 (Algorithm 1, line 6): M samples of each parameter from N(theta, alpha^2 V^-1), with alpha of eq. (3).
        rounds = parts.memory.rounds_learned(state.pulls, t)
        radius = mnl_radius(rounds, state.theta.shape[1], spec.num_offered, self.curvature, self.ridge)
        # Drawn in one row: with one run a loop over the last axis alone would be short.
        shape = (*state.theta.shape, parts.num_samples)
        noise = xla.compute_once(draws.normal(k_sample, (math.prod(shape),))).reshape(shape)
        noise = xla.compute_once(jnp.swapaxes(noise, 1, 2))
        sample = state.theta[:, None] + radius[:, None, None] * parts.sampler.sample(state.spread, noise)
        sample = xla.compute_once(sample)

        # Line 10 (Algorithm 1, line 7): the query and the assortment with the largest optimistic departure rate.
        size = jnp.int32(spec.num_offered)
        if self.second_answer is not None:
            size = jnp.where(draws.uniform(k_size) < self.second_answer, size, 1)

        def log_weight(utilities: list[Array]) -> Array:
            full = log_weight_of_best(utilities, spec.num_offered)
            return full if self.second_answer is None else jnp.where(size == 1, log_weight_of_best(utilities, 1), full)

        place, score = parts.queries.best(sample, log_weight, obs)
        if self.fifo:
            place = obs.oldest
        best = best_models(parts.queries.utilities(sample, obs, place), size)

        action = Action(
            query=jnp.where(explore, obs.newest, place).astype(jnp.int32),
            offered=jnp.where(explore, next_models, best),
            explored=explore,
        )
        return action, {
            "radius": jnp.broadcast_to(radius, (spec.num_models,)),
            "score": jnp.where(score > -jnp.inf, score, 0.0),
        }

    def update(
        self, key: Array, state: LearnerState, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> LearnerState:
        """Returns the state after a round: Algorithm 2, lines 12 to 20; Algorithm 1, lines 9 to 11. If no query waited, nothing is learned."""
        del key
        spec, parts = state.spec, choose_parts(self, state.spec)
        busy = (obs.queue_length > 0) & (t < spec.rounds)

        # Line 12 (Algorithm 1, line 9): y_t, as the place of the accepted model among those shown.
        items = shown_items(action.offered & busy, spec.num_offered)
        phi = parts.queries.served(obs, feedback)
        new = parts.memory.round_data(state.theta, phi, items, accepted_place(items, feedback.chosen))
        data = xla.barrier(parts.memory.write(state.data, t, feedback.prompt, new, busy))

        # Line 15 (Algorithm 1, line 10): eq. (4) of the models shown, or eq. (1). Its radius, eq. (3), follows from `pulls`.
        likelihood = parts.memory.derivatives(data, new.refit, parts.queries.features(obs), t)
        ridge = jnp.asarray(self.ridge, jnp.float32)
        theta, fit = parts.solver.fit(state.fit, likelihood, state.theta, new.refit, ridge, new.new)

        # Line 16 (Algorithm 1, line 11): V_j <- V_j + phi phi'.
        spread = parts.sampler.add(state.spread, new.parameters, new.x)

        # Line 5 (Algorithm 1, line 4): c <- c + 1 after a round that explored.
        explored = action.explored & busy
        next_offer = jnp.where(explored, next_combination(state.next_offer, spec.num_models), state.next_offer)
        return state.replace(
            theta=xla.compute_once(theta),
            spread=spread,
            fit=fit,
            data=data,
            pulls=state.pulls + (action.offered & busy).astype(jnp.int32),
            next_offer=next_offer,
        )

    def gauges(self, state: LearnerState) -> dict[str, Array]:
        parts = choose_parts(self, state.spec)
        least = parts.sampler.min_eigenvalue(state.spread)
        return {
            "min_eigenvalue": jnp.broadcast_to(least, (state.spec.num_models,)),
            "residual": parts.solver.residual(state.fit),
            "nonfinite": jnp.sum(~jnp.isfinite(state.theta)).astype(jnp.float32),
        }

    def check(self) -> None:
        checks.non_negative("curvature", self.curvature, ())
        checks.positive("ridge", self.ridge, ())
        checks.non_negative("c1", self.c1, ())
        if self.trigger is not None:
            checks.part("trigger", self.trigger, "fires", "PhaseThenCoin(...)")
            if np.any(np.asarray(self.c1) != _C1):
                raise ValueError(f"c1 must be left out where a trigger is given, which replaces it, got {self.c1}")
        if self.second_answer is not None:
            checks.probability("second_answer", self.second_answer, ())
        if self.features is not None:
            checks.numbers("features", self.features, ("d", "P"))
        if self.num_samples is not None:
            checks.count("num_samples", self.num_samples)
        if self.solver is not None:
            checks.part("solver", self.solver, "fit", "Newton()")
        if self.sampler is not None:
            checks.part("sampler", self.sampler, "sample", "ByCholesky()")

    def check_spec(self, spec: QueueSpec) -> None:
        if self.second_answer is not None and not (spec.mixed and spec.num_offered > 1):
            got = f"mixed={spec.mixed} and num_offered={spec.num_offered}"
            raise ValueError(f"second_answer must be None unless mixed is True and num_offered above 1, got {got}")
        if self.features is not None and np.shape(self.features)[1] != spec.prompts:
            allowed = f"[d, {spec.prompts}], one column per prompt" if spec.prompts else "None without a pool of prompts"
            raise ValueError(f"features must be {allowed}, got shape {np.shape(self.features)}")
        parts = choose_parts(self, spec)
        if self.joint and (spec.pair_features or not parts.memory.has_hessian):
            what = "pair features: there is one parameter for all models" if spec.pair_features else "a pool of prompts"
            raise ValueError(f"joint must be False with {what}")
        if parts.solver.needs_hessian and not parts.memory.has_hessian:
            got = f"{type(parts.solver).__name__}(...)"
            raise ValueError(f"solver must be BFGS(...) or Online() for a pool with one or two answers, got {got}")
        if isinstance(parts.solver, mnl.Tracked) and (spec.num_offered > 1 or self.joint):
            what = "joint estimates" if self.joint else f"{spec.num_offered} answers"
            raise ValueError(f"solver must be Newton(...) or BFGS(...) with {what}, got Tracked(...)")

    def cost_hint(self, spec: QueueSpec) -> CostHint:
        """Returns the size of the design matrices, with which the engine decides how to simulate; see `CostHint`."""
        memory = choose_parts(self, spec).memory
        size = 4 * memory.num_parameters * memory.dim**2
        return CostHint(matrix_bytes=size, product_bytes=0 if isinstance(memory, PromptCounts) else size)


def shown_items(offered: Array, size: int) -> Array:
    """Converts a mask `offered` `[N]` of the models shown to their indices in rising order, `[size]`, filled up with -1."""
    place = numerics.prefix_sums(offered.astype(jnp.int32))
    models = jnp.arange(offered.shape[0], dtype=jnp.int32)
    return jnp.stack([jnp.sum(jnp.where(offered & (place == k + 1), models + 1, 0)) - 1 for k in range(size)])


def accepted_place(items: Array, chosen: Array) -> Array:
    """Returns the position in `items` `[K]` (models shown) of the accepted model, marked in the mask `chosen` `[N]`; `K` if none was accepted."""
    size = items.shape[0]
    models = jnp.arange(chosen.shape[0])
    hit = jnp.stack([jnp.any(chosen & (models == items[k])) for k in range(size)])
    return jnp.where(jnp.any(hit), jnp.sum(jnp.where(hit, jnp.arange(size), 0)), size)


def next_combination(items: Array, number: int) -> Array:
    """Returns the combination of `K` of `number` models that follows `items` `[K]` (rising) in lexicographic order; the first one follows the last.

    It replaces a table of all combinations and the index `c` of the next one (ACQB, Algorithm 1, line 4).
    """
    size = items.shape[0]
    places = jnp.arange(size, dtype=jnp.int32)
    can_rise = items < number - size + places
    last = jnp.max(jnp.where(can_rise, places, -1))
    from_value = numerics.pick(places == last, items)
    risen = jnp.where(places < last, items, from_value + 1 + places - last)
    return jnp.where(last >= 0, risen, places).astype(items.dtype)
