"""Log of served requests, each answered by one model that was chosen with a known probability: the events of a replay."""

from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import Rewards
from jaxroute.core.types import Leaf, Metric
from jaxroute.sources.rows import random_order

# Flows of a replay, zero in all rounds that do not count.
METRICS = (
    Metric("accepted", "number of counted requests", "requests", "total"),
    Metric("reward", "total score less weighted cost", "score", "total"),
    Metric("score", "total score", "score", "total"),
    Metric("cost", "total cost", "cost", "total"),
    Metric("pulls", "times each model was used", "requests", "total", ("model",), default=False),
)
# Standard deviations of a binomial number that cover it in almost every run.
_SURE = 5.0


@struct.dataclass
class ServedRequests:
    """Log of `Q` requests, each answered by one of `K` models, which was drawn with a known probability, the request's propensity.

    A run retains each event of the log with probability `floor / propensity` (rejection sampling), so that the retained events of a model are an
    unbiased sample of all requests, although the log chose the model by the request.

    Attributes:
      chosen: `[Q]` int32, model that answered.
      scores, costs: `[Q]` score, in [0, 1], and cost of the answer.
      retained: `[Q]` probability that a run retains the event.
      cost_weight: `[]` score per unit of cost.
      num_models: number of models, `K` (static).
      bootstrap: whether a run draws its `Q` events with replacement; otherwise it has each event once, in a random order (static).
      names, currency: names of the models, and unit of costs (static).
    """

    chosen: Leaf
    scores: Leaf
    costs: Leaf
    retained: Leaf
    cost_weight: Leaf
    num_models: int = struct.field(pytree_node=False)
    bootstrap: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())
    currency: str = struct.field(pytree_node=False, default="cost")

    @classmethod
    def of(cls, log: Any, *, floor: float | None, by_model: bool, cost_weight: float, bootstrap: bool) -> Self:
        """Builds the events of a `jaxroute.data.ServedLog` with propensities; the other arguments are those of the constructors of environments.

        Without a `floor` (None) it is the smallest propensity, `by_model` separately among the requests that each model answered.
        """
        given, chosen, number = log.propensity, log.model, log.num_models
        if given is None:
            raise ValueError("log must have propensities; offpolicy.estimate(log) estimates unknown ones")
        if absent := [name for k, name in enumerate(log.models) if k not in chosen]:
            raise ValueError(f"log must have answers of each model, got none of {absent[0]}")
        least = np.array([given[chosen == k].min() for k in range(number)]) if by_model else np.full(number, given.min())
        if floor is not None:
            least = np.full(number, float(checks.share("floor", floor, ())))
            checks.bounded("propensity", given, None, f"at least floor, {floor:g}", lambda p: p >= floor)
        return cls(
            chosen=chosen.astype(np.int32),
            scores=log.scores.astype(np.float32),
            costs=log.costs.astype(np.float32),
            retained=(least[chosen] / given).astype(np.float32),
            cost_weight=np.float32(checks.non_negative("cost_weight", cost_weight, ())),
            num_models=number,
            bootstrap=checks.boolean("bootstrap", bootstrap),
            names=log.models,
            currency=log.currency,
        )

    @property
    def num_requests(self) -> int:
        return self.chosen.shape[0]

    @property
    def num_rounds(self) -> int:
        """Number of rounds in which a run uses all events that it retains, except with a probability of about one in a million."""
        mean = float(np.mean(np.asarray(self.retained, np.float64)))
        return min(self.num_requests, int(np.ceil(self.num_requests * mean + self._spread(mean))))

    def sure_rounds(self, floor: float) -> int:
        """Returns the number of requests that almost every run counts if it counts each event with probability `floor`; it may be negative."""
        return int(np.floor(self.num_requests * floor - self._spread(floor)))

    def _spread(self, probability: float) -> float:
        # Both the log and a bootstrap sample of it vary.
        return _SURE * float(np.sqrt((1 + self.bootstrap) * self.num_requests * probability * (1.0 - probability)))

    def check(self) -> None:
        shape = np.shape(checks.probability("scores", self.scores))
        checks.non_negative("costs", self.costs, shape)
        checks.share("retained", self.retained, shape)
        checks.non_negative("cost_weight", self.cost_weight, ())

    def rewards(self) -> Rewards:
        """Returns range and noise of the answers' rewards, to check policies' assumptions; the noise is the largest standard deviation of a model."""
        values = np.asarray(self.scores, np.float64) - float(self.cost_weight) * np.asarray(self.costs, np.float64)
        by_model = [values[np.asarray(self.chosen) == k] for k in range(self.num_models)]
        low, high, noise = float(values.min()), float(values.max()), max(float(own.std()) for own in by_model)
        return Rewards("recorded", low, high, noise, high - low, max(float(own.mean()) for own in by_model))

    def draw(self, key: Array) -> tuple[Array, Array]:
        """Draws the events of a run. Returns their indices `[Q]`, int32, those that the run retains first, and the number of these."""
        k_order, k_retain = draws.split(key)
        number = self.num_requests
        order = draws.randint(k_order, number, (number,)) if self.bootstrap else random_order(k_order, number)
        retained = draws.uniform(k_retain, (number,)) < jnp.asarray(self.retained)[order]
        # Places by counting, because sorting by `retained` takes several times as long.
        before = jnp.cumsum(retained, dtype=jnp.int32)
        place = jnp.where(retained, before - 1, before[-1] + jnp.arange(number, dtype=jnp.int32) - before)
        return jnp.zeros_like(order).at[place].set(order, unique_indices=True), before[-1]

    def outcome(self, event: Array, action: Array, counts: Array) -> tuple[Array, dict[str, Array]]:
        """Returns the reward of an event, and the flows of a round in which a policy has chosen the model `action`, zero unless the round `counts`."""
        score, cost = (numerics.at(jnp.asarray(table), (event,)) for table in (self.scores, self.costs))
        reward = score - self.cost_weight * cost
        chosen = numerics.one_hot(action, self.num_models)
        flows = {name: jnp.where(counts, x, 0.0) for name, x in (("reward", reward), ("score", score), ("cost", cost))}
        return reward, {
            **flows,
            "accepted": counts.astype(jnp.float32),
            "pulls": (chosen & counts).astype(jnp.float32),
            "illegal": (~jnp.any(chosen)).astype(jnp.float32),  # There is no such model.
        }
