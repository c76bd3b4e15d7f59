"""ACQB: explores now and then on arrivals, and otherwise serves the query and the assortment that look best under posterior samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators import mnl
from jaxroute.estimators.confidence import mnl_radius
from jaxroute.estimators.gaussian import ByCholesky, ByRoot
from jaxroute.problems.queueing.backlog import best_place
from jaxroute.problems.queueing.theory import num_samples
from jaxroute.problems.queueing.triggers import Decaying, PhaseThenCoin
from jaxroute.problems.queueing.types import Action
from jaxroute.solvers.assortment import best_models, log_weight_of_best

# From this dimension on the estimator takes first-order steps, and the sampler a square root that is kept up to date.
_LARGE = 9

LEARNER_METRICS = (
    Metric("score", "logarithm of the largest weight in the samples", "", "average", default=False),
    Metric("radius", "mean confidence radius", "", "average", ("model",), default=False),
    Metric("min_eigenvalue", "least eigenvalue of the design matrix", "", "gauge", ("model",), default=False),
    Metric("unfinite", "parameters that are not finite", "", "gauge", default=False),
)


@struct.dataclass
class LearnerState:
    """State of a policy that learns the choice model.

    With pair features there is one parameter: then `N` is 1 below.

    theta: `[N, d]`. spread: of the sampler, the design matrices `[N, d, d]` or square roots of their inverses. fit: of the estimator.
    data: observations. pulls: `[N]` int32, rounds served with each model. next_offer: `[K]` int32, assortment that is explored next.
    spec: sizes (static).
    """

    theta: jax.Array
    spread: jax.Array
    fit: Any
    data: Any
    pulls: jax.Array
    next_offer: jax.Array
    spec: Any = struct.field(pytree_node=False)


@struct.dataclass
class ACQB:
    """Anytime contextual queueing bandit: Thompson sampling of the query and the assortment, with exploration forced on arrivals.

    A query that has just come is explored now and then with the next assortment in turn. In other rounds `M` parameters are sampled
    from `N(theta_j, radius_j^2 V_j^-1)` for each model; a utility is the largest over the samples, and the query and assortment with
    the largest departure rate are served. The estimate is the regularised maximum-likelihood one, solved again after every round.

    Whether features belong to queries (one parameter per model) or to pairs (one for all) is the environment's choice.

    Source: ACQB, Algorithm 1 (pair features) and Algorithm 2.

    Differs from the paper: kappa, lambda_0 and c1 are not given there. With a kappa that the theory asks for the policy is hardly
    better than a random one; the default is a scale that was tuned. `log 0` in the radius is 0. Eq. (4) lacks a factor `x_i`.
    Ties go to the query that came first, in a pool to the lowest prompt, then to the lower models.

    curvature: `[]`, the paper's kappa. ridge: `[]`, its lambda_0. trigger: `Decaying` or `PhaseThenCoin`.
    second_answer: `[]` chance that a Thompson round shows `K` answers and not one, None if always `K`; explored rounds show `K`.
    features: `[d', P]` in place of the features of a pool's prompts, None for those.
    num_samples: `M`, None for the paper's. solver: `Newton`, `Majorise` or `Online`, None to choose by dimension. sampler: `ByCholesky`
    or `ByRoot`, None likewise. joint: the estimates of all models are solved together, not only those shown; fifo: Thompson rounds
    serve the query that has waited longest (all static).
    """

    curvature: Leaf = 0.3
    ridge: Leaf = 1.0
    trigger: Any = struct.field(default_factory=Decaying)
    second_answer: Leaf | None = None
    features: Leaf | None = None
    num_samples: int | None = struct.field(pytree_node=False, default=None)
    solver: Any = struct.field(pytree_node=False, default=None)
    sampler: Any = struct.field(pytree_node=False, default=None)
    joint: bool = struct.field(pytree_node=False, default=False)
    fifo: bool = struct.field(pytree_node=False, default=False)

    metrics = LEARNER_METRICS

    def check(self) -> None:
        checks.non_negative("curvature", self.curvature, ())
        checks.positive("ridge", self.ridge, ())
        if isinstance(self.trigger, type) or not hasattr(self.trigger, "fires"):
            raise ValueError(f"trigger must be Decaying(...) or PhaseThenCoin(...), got {checks.show(self.trigger)}")
        self.trigger.check()
        if self.second_answer is not None:
            checks.probability("second_answer", self.second_answer, ())
        if self.features is not None:
            shape = np.shape(checks.numbers("features", self.features))
            if len(shape) != 2 or 0 in shape:
                raise ValueError(f"features must have shape [d, P], got {shape}")
        if self.num_samples is not None:
            checks.count("num_samples", self.num_samples)
        if self.solver is not None:
            if isinstance(self.solver, type) or not hasattr(self.solver, "fit"):
                raise ValueError(f"solver must be Newton(...), Majorise(...) or Online(), got {checks.show(self.solver)}")
            self.solver.check()
        if self.sampler is not None and (isinstance(self.sampler, type) or not hasattr(self.sampler, "sample")):
            raise ValueError(f"sampler must be ByCholesky() or ByRoot(), got {checks.show(self.sampler)}")

    def check_for(self, spec) -> None:
        if self.second_answer is not None and not (spec.mixed and spec.num_offered > 1):
            raise ValueError(
                "second_answer must be None where the number of answers is not free: it needs a queue with mixed=True and "
                f"num_offered above 1, got mixed={spec.mixed} and num_offered={spec.num_offered}"
            )
        if self.features is not None and (not spec.pool or np.shape(self.features)[1] != spec.capacity):
            allowed = (
                f"[d, {spec.capacity}], one column per prompt" if spec.pool else "None where there is no pool of prompts"
            )
            raise ValueError(f"features must be {allowed}, got shape {np.shape(self.features)}")
        if self.joint and (spec.pair_features or self._counts(spec)):
            what = "pair features: there is one parameter for all models" if spec.pair_features else "a pool of prompts"
            raise ValueError(f"joint must be False with {what}")
        solver, _, _ = self.parts(spec)
        if isinstance(solver, mnl.Newton) and self._counts(spec):
            raise ValueError(
                "solver must be Majorise(...) or Online() for a pool of prompts with one or two answers, got Newton(...)"
            )

    # What is chosen by size.

    def _dim(self, spec) -> int:
        return spec.dim if self.features is None else np.shape(self.features)[0]

    def parts(self, spec):
        """Solver, sampler and number of samples for an environment."""
        large = self._dim(spec) >= _LARGE
        counts = self._counts(spec)
        solver = self.solver or (mnl.Majorise() if large or counts else mnl.Newton())
        sampler = self.sampler or (ByRoot() if large else ByCholesky())
        return solver, sampler, self.num_samples or num_samples(spec.num_offered)

    def _counts(self, spec) -> bool:
        """Whether counts of prompts are all there is to remember."""
        return spec.pool and spec.num_offered <= 2

    def _parameters(self, spec) -> int:
        return 1 if spec.pair_features else spec.num_models

    def init(self, key, spec) -> LearnerState:
        del key
        dim, num = self._dim(spec), self._parameters(spec)
        solver, sampler, _ = self.parts(spec)
        ridge = jnp.asarray(self.ridge, jnp.float32)
        if self._counts(spec):
            kind = mnl.Counts if spec.num_offered == 1 else mnl.PairCounts
            data: Any = kind.empty(spec.num_models, spec.capacity, spec.rounds)
        elif spec.pair_features:
            data = mnl.PairRows.empty(spec.rounds, spec.num_offered, dim)
        else:
            data = mnl.Rows.empty(spec.rounds, spec.num_models, spec.num_offered, dim)
        return LearnerState(
            theta=jnp.zeros((num, dim), jnp.float32),
            spread=sampler.init(num, dim, ridge),
            fit=solver.init(num, dim, ridge),
            data=data,
            pulls=jnp.zeros((spec.num_models,), jnp.int32),
            next_offer=jnp.arange(spec.num_offered, dtype=jnp.int32),
            spec=spec,
        )

    # Decisions.

    def _table(self, obs):
        return obs.features if self.features is None else jnp.asarray(self.features, obs.features.dtype)

    def _radius(self, state, t) -> jax.Array:
        """Confidence radius of each parameter."""
        spec = state.spec
        count = t[None] if spec.pair_features else state.pulls
        return mnl_radius(count, state.theta.shape[1], spec.num_offered, self.curvature, self.ridge)

    def act(self, key, state: LearnerState, obs, t):
        k_coin, k_sample, k_size = draws.split(key, 3)
        spec, table = state.spec, self._table(obs)
        _, sampler, number = self.parts(spec)
        radius = self._radius(state, t)
        noise = draws.normal(k_sample, (*state.theta.shape, number))
        sample = state.theta[..., None] + radius[:, None, None] * sampler.sample(state.spread, noise)
        sample = numerics.kept(sample)
        size = jnp.int32(spec.num_offered)
        if self.second_answer is not None:
            size = jnp.where(draws.uniform(k_size) < self.second_answer, size, 1)

        def weight(utilities):
            full = log_weight_of_best(utilities, spec.num_offered)
            return full if self.second_answer is None else jnp.where(size == 1, log_weight_of_best(utilities, 1), full)

        if spec.pool:
            utility = optimistic_on_table(sample, table)
            place, score = best_place(lambda value: value, weight(list(utility)), obs.waiting, obs.arrival, obs.in_use)
        else:

            def score_of(x):
                return weight(optimistic(sample, x))

            place, score = best_place(score_of, table, obs.waiting, obs.arrival, obs.in_use)
        if self.fifo:
            place = obs.oldest
        served = numerics.take(table, place)[..., None]
        best = best_models(jnp.stack(optimistic(sample, served))[:, 0], size)
        explore = obs.arrived & self.trigger.fires(t, draws.uniform(k_coin))
        models = jnp.arange(spec.num_models)
        in_turn = jnp.any(state.next_offer[:, None] == models, axis=0)
        action = Action(
            query=jnp.where(explore, obs.newest, place).astype(jnp.int32),
            offered=jnp.where(explore, in_turn, best),
            explored=explore,
        )
        return action, {
            "radius": jnp.broadcast_to(radius, (spec.num_models,)),
            "score": jnp.where(score > -jnp.inf, score, 0.0),
        }

    # Learning.

    def update(self, key, state: LearnerState, obs, action, feedback, t) -> LearnerState:
        del key
        spec = state.spec
        solver, sampler, _ = self.parts(spec)
        ridge = jnp.asarray(self.ridge, jnp.float32)
        busy = (obs.queue_length > 0) & (t < spec.rounds)
        items = shown_items(action.offered & busy, spec.num_offered)
        x = feedback.features if self.features is None else numerics.take(self._table(obs), action.query)
        place = accepted_place(items, feedback.chosen)
        if spec.pair_features:
            present = items >= 0
            x = jnp.stack([numerics.pick(numerics.one_hot(items[k], spec.num_models), x.T) for k in range(spec.num_offered)])
            data = state.data.write(t, x, present, place, busy)
            chosen = jnp.where(present, 0, -1)
            block = jnp.zeros((1,), jnp.int32)
            new = mnl.new_pair(state.theta[0], x, present, place)
        else:
            chosen = items
            block = jnp.arange(spec.num_models, dtype=jnp.int32) if self.joint else items
            logits = jnp.stack([numerics.combine(state.theta[j], x[:, None])[0] for j in range(spec.num_models)])
            new = mnl.new_row(logits, x, items, place, block)
            x = jnp.broadcast_to(x, (spec.num_offered, *x.shape))
            if self._counts(spec):
                data = state.data.add(action.query, items, place, busy)
            else:
                data = state.data.write(t, x[0], items, place, busy)
        data = numerics.materialised(data)
        if self._counts(spec):
            sums = data.sums(self._table(obs), block)
        else:

            def sums(theta, **wanted):
                return data.sums(theta, block, t + 1, **wanted)

        theta, fit = solver.fit(state.fit, sums, state.theta, block, ridge, new)
        explored = action.explored & busy
        return state.replace(
            theta=numerics.kept(theta),
            spread=sampler.add(state.spread, chosen, x),
            fit=fit,
            data=data,
            pulls=state.pulls + (action.offered & busy).astype(jnp.int32),
            next_offer=jnp.where(explored, next_combination(state.next_offer, spec.num_models), state.next_offer),
        )

    def gauges(self, state: LearnerState):
        _, sampler, _ = self.parts(state.spec)
        least = sampler.min_eigenvalue(state.spread)
        return {
            "min_eigenvalue": jnp.broadcast_to(least, (state.spec.num_models,)),
            "unfinite": jnp.sum(~jnp.isfinite(state.theta)).astype(jnp.float32),
        }


@struct.dataclass
class CQBEpsilon(ACQB):
    """CQB-eps: the estimator and Thompson rounds of `ACQB`, but it explores in a first phase and then by a constant coin.

    Build it with `CQBEpsilon.of(env)`: it has to know the horizon.

    Source: CQB-eps (Bae et al., 2026), Algorithm 1, as adapted in ACQB, appendix B.3.
    """

    @classmethod
    def of(cls, env: Any, **settings: Any) -> "CQBEpsilon":
        """For an environment's horizon: a tenth of it explores, then a coin of `1 / sqrt(horizon)`. settings: of `ACQB`."""
        if not hasattr(env, "spec"):
            raise ValueError(
                f"env must be a queue, got {checks.show(env)}; for a sampler give `CQBEpsilon.of` itself as the policy"
            )
        return cls(**{"trigger": PhaseThenCoin.for_horizon(env.spec.rounds), **settings})

    def check(self) -> None:
        ACQB.check(self)
        if not isinstance(self.trigger, PhaseThenCoin):
            raise ValueError(
                f"trigger must be PhaseThenCoin(...), got {checks.show(self.trigger)}; use CQBEpsilon.of(environment)"
            )


def acqb(*, c1: Leaf = 1.0, **settings: Any) -> ACQB:
    """`ACQB` with the exploration constant as an argument, for grids. settings: others of `ACQB`."""
    return ACQB(trigger=Decaying(c1), **settings)


def optimistic(sample, x) -> list[jax.Array]:
    """Largest utility over the samples, one array `[C]` per model.

    sample: `[N, d, M]`, or `[1, d, M]` with pair features. x: `[d, C]`, with pair features `[N, d, C]`.
    """
    dim, number = sample.shape[1:]

    def largest(parameter, x):
        """Of one model: `[d, M]` and `[d, C]`."""
        if number == 1:
            return numerics.combine(parameter[:, 0], x)
        terms = [parameter[i][:, None] * x[i][None, :] for i in range(dim)]
        return jnp.max(sum(terms[1:], terms[0]), axis=0)

    if x.ndim == 3:
        return [numerics.kept(largest(sample[0], x[j])) for j in range(x.shape[0])]
    return [numerics.kept(largest(sample[j], x)) for j in range(sample.shape[0])]


def optimistic_on_table(sample, table) -> jax.Array:
    """Largest utility `[N, P]` over the samples `[N, d, M]`, of all columns of a table `[d, P]` that runs share."""
    num, dim, number = sample.shape
    flat = jnp.moveaxis(sample, 1, 2).reshape(num * number, dim)
    return jnp.max(numerics.project(flat, table).reshape(num, number, -1), axis=1)


def shown_items(offered, size: int) -> jax.Array:
    """Numbers `[K]` of the models in a mask `[N]`, rising; -1 beyond the last."""
    place = numerics.prefix_sums(offered.astype(jnp.int32))
    models = jnp.arange(offered.shape[0], dtype=jnp.int32)
    return jnp.stack([jnp.sum(jnp.where(offered & (place == k + 1), models + 1, 0)) - 1 for k in range(size)])


def accepted_place(items, chosen) -> jax.Array:
    """Place `[]` among the `items` `[K]` of the accepted model (mask `[N]`); `K` if there is none."""
    size = items.shape[0]
    models = jnp.arange(chosen.shape[0])
    hit = jnp.stack([jnp.any(chosen & (models == items[k])) for k in range(size)])
    return jnp.where(jnp.any(hit), jnp.sum(jnp.where(hit, jnp.arange(size), 0)), size)


def next_combination(items, number: int) -> jax.Array:
    """The next of all combinations of `K` of `number` models in lexicographic order, after the last one the first; `[K]`."""
    size = items.shape[0]
    places = jnp.arange(size, dtype=jnp.int32)
    can_rise = items < number - size + places
    last = jnp.max(jnp.where(can_rise, places, -1))
    from_value = numerics.pick(places == last, items)
    risen = jnp.where(places < last, items, from_value + 1 + places - last)
    return jnp.where(last >= 0, risen, places).astype(items.dtype)
