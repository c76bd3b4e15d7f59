"""Computes quantities of the theory of ACQB as Python floats: numbers of samples, confidence radii, and the regret bounds of theorems 5 and 6."""

import math
from dataclasses import dataclass

from jaxroute.core import checks


def num_samples(num_offered: int) -> int:
    """Returns the number `M` of Thompson samples per round for `K = num_offered` answers: some sample is optimistic with constant probability.

    Source: ACQB, section 3: `ceil(1 - log K / log(1 - 1 / (4 sqrt(e pi))))`: 1, 9, 14, 17, 19 for one to five answers.
    """
    checks.count("num_offered", num_offered)
    return math.ceil(1.0 - math.log(num_offered) / math.log(1.0 - 1.0 / (4.0 * math.sqrt(math.e * math.pi))))


def explore_probability(t: float, c1: float) -> float:
    """Returns `eta(t) = min(1, c1 (t + 1)^(-1/2))`, the probability that the arrival of round `t`, from 0, is explored (ACQB, section 3)."""
    checks.non_negative("t", t, ())
    checks.non_negative("c1", c1, ())
    return min(1.0, c1 / math.sqrt(t + 1.0))


def expected_explorations(horizon: int, arrival_rate: float, c1: float) -> float:
    """Returns the expected number of explored rounds, `arrival_rate sum_{i < horizon} explore_probability(i, c1)` (ACQB, appendix G.1)."""
    checks.count("horizon", horizon)
    checks.probability("arrival_rate", arrival_rate, ())
    return arrival_rate * sum(explore_probability(i, c1) for i in range(1, horizon))


@dataclass(frozen=True)
class Theory:
    """Bounds of ACQB for features of query-model pairs, with one parameter vector for all. Source: ACQB, theorems 5 and 6, appendices D, E and G.

    Differs from the paper: some of its equations have `eps - 2 eta` where eq. (7) has `(eps - 2 eta)^2`; here it is always the square. `eps` is the
    field `slack`, `eta(u)` the exploration probability of round `u`.

    Attributes:
      dim, num_offered: number of features, `d`, and number of answers shown in a round, `K`.
      arrival_rate, slack: probability lambda of an arrival in a round, and epsilon, least difference between departure rate and arrival rate.
      curvature, ridge: factor kappa of the confidence radius, and lambda_0, the diagonal of the first design matrix.
      spread: `sigma_0^2`, least eigenvalue of the features' second moment.
      c0, c1, c2: constants; `c1` is that of the exploration probability, the others are in the bounds, and the paper gives no values of them.
    """

    dim: int
    num_offered: int
    arrival_rate: float
    slack: float
    curvature: float
    ridge: float = 1.0
    spread: float = 1.0 / 3.0
    c0: float = 1.0
    c1: float = 1.0
    c2: float = 1.0

    def __post_init__(self):
        for name in ("arrival_rate", "slack"):
            checks.share(name, getattr(self, name), ())
        for name in ("ridge", "spread", "c1"):
            checks.positive(name, getattr(self, name), ())
        for name in ("curvature", "c0", "c2"):
            checks.non_negative(name, getattr(self, name), ())
        for name in ("dim", "num_offered"):
            checks.count(name, getattr(self, name))

    def radius(self, count: float) -> float:
        """Returns the confidence radius `alpha_l` of the estimate after `l = count` rounds, in the norm of the design matrix (section 3)."""
        checks.non_negative("count", count, ())
        grown = self.dim * math.log1p(count * self.num_offered / (self.dim * self.ridge)) + 4.0 * math.log(max(count, 1.0))
        return 0.5 * self.curvature * math.sqrt(grown) + self.curvature * math.sqrt(self.ridge)

    def sample_radius(self, count: float, t: float) -> float:
        """Returns `beta_l`, a bound on the deviation of samples from the estimate after `l = count` rounds (appendix D.3).

        The norm is that of the design matrix. With high probability the bound holds in all rounds up to `t`.
        """
        number = num_samples(self.num_offered)
        wide = math.sqrt(6.0 * self.dim * math.log(max(number * t, 1.0)))
        shown = max(self.num_offered * max(count, 1.0) * t, 1.0)
        narrow = math.sqrt(2.0 * math.log(2.0 * number)) + math.sqrt(6.0 * math.log(shown))
        return self.radius(count) * min(wide, narrow)

    def reach(self, t: float) -> float:
        """Returns the sum `radius + 48 sample_radius` for `t - 1` rounds, a factor in the formulas of `warm_up` and `gap` (appendix D)."""
        return self.radius(t - 1.0) + 48.0 * self.sample_radius(t - 1.0, t)

    def warm_up(self, t: float, u: float) -> float:
        """Returns `M(t)`, the number of explored rounds after which departure rates stay close to the best one up to round `t`, eq. (7).

        The formula has the exploration probability of round `u`. The result is infinite if `slack` is at most twice this probability.
        """
        gap = self.slack - 2.0 * explore_probability(u, self.c1)
        if gap <= 0:
            return math.inf
        ratio = 8.0 * (self.reach(t) / gap) ** 2 / self.spread
        return self.c2 * ((self.dim + math.log(t)) / self.spread**2 + ratio)

    def bad_rounds(self, t: float) -> float:
        """Returns `tau(t)`, the number of rounds after which the queue shrinks on average, up to round `t` (condition 20). It may exceed `t`."""
        checks.positive("t", t, ())
        rate, logarithm = self.arrival_rate, math.log(t)

        def enough(u: float) -> bool:
            number = self.warm_up(t, u)
            return u >= max(
                2.0 * number / rate,
                16.0 * logarithm / rate,
                4.0 * (number / (self.c1 * rate)) ** 2,
                256.0 * (logarithm / (self.c1 * rate)) ** 2,
            )

        low = math.log(max(1.0, (2.0 * self.c1 / self.slack) ** 2))
        high = low + 1.0
        while not enough(math.exp(high)):
            high += 5.0
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if enough(math.exp(middle)) else (middle, high)
        return math.exp(high)

    def burn_in(self, t: float) -> float:
        """Returns `4 bad_rounds(t) / slack`, the default of the argument `burn_in` of `survival` (condition 20)."""
        return 4.0 * self.bad_rounds(t) / self.slack

    def holds(self, t: float) -> bool:
        """Returns whether round `t` is late enough for the bound of theorem 5 to apply (condition 20)."""
        tau = self.bad_rounds(t)
        return t >= tau and t >= 4.0 * tau / self.slack and self.slack > 2.0 * explore_probability(tau, self.c1)

    def inverse_eigenvalue(self, count: float) -> float:
        """Returns `nu(l)`, a bound on the expectation of 1 / least eigenvalue of the design matrix before round `l = count` (lemma 11)."""
        before = max(count - 1.0, 0.0)
        explored = self.arrival_rate * min(before, self.c1 * math.sqrt(before))
        tails = math.exp(-explored / 8.0) + self.dim * math.exp(-self.spread * explored / 16.0)
        return 1.0 / (self.ridge + self.spread * explored / 4.0) + tails / self.ridge

    def least_eigenvalue(self, count: float) -> tuple[float, float]:
        """Returns a lower bound of the design matrix's least eigenvalue after `count` rounds, and the probability that it holds (lemma 25)."""
        explored = self.arrival_rate * min(count, self.c1 * math.sqrt(count))
        probability = 1.0 - math.exp(-explored / 8.0) - self.dim * math.exp(-self.spread * explored / 16.0)
        return self.ridge + self.spread * explored / 4.0, max(0.0, probability)

    def elliptic_bound(self, t: float) -> float:
        """Returns an upper bound of the sum, over `t` rounds, of the largest `sqrt(x' V^-1 x)` of a model shown (lemma 34).

        `V` is the design matrix before the round. Features `x` have norms of at most 1, and `ridge` is at least 1.
        """
        grown = math.log1p(t * self.num_offered / (self.dim * self.ridge))
        return math.sqrt(2.0 * self.dim * t * grown)

    def routing_regret(self, t: float) -> float:
        """Returns theorem 6's explicit bound on the routing regret (sum of shortfalls from the query's best departure rate) after `t` rounds."""
        checks.positive("t", t, ())
        before, total = t - 1.0, self.elliptic_bound(t)
        beta, alpha = self.sample_radius(before, t), self.radius(before)
        optimistic = total + math.sqrt(8.0 * t / self.ridge * math.log(2.0 * t)) + 2.0 / math.sqrt(self.ridge)
        explored = self.c0 / t + 2.0 * self.c1 * math.sqrt(t)
        return explored + 16.0 * math.sqrt(math.e * math.pi) * beta * optimistic + (alpha + beta) * total

    def gap(self, i: float, t: float) -> float:
        """Returns `E_i`, a bound on the shortfall (root mean square) from the best departure rate in round `i` of `t` (lemma 11, appendix D.7)."""
        square = (
            self.c0 / t**2
            + 2.0 * self.arrival_rate * explore_probability(i - 1.0, self.c1)
            + self.reach(t) ** 2 * self.inverse_eigenvalue(i)
        )
        return min(1.0, math.sqrt(square))

    def survival(self, i: float, t: float, burn_in: float | None = None) -> float:
        """Returns `P_i`, a bound on the probability that two queues which first differ in round `i` still have different lengths at `t` (lemma 19).

        Their policies differ only in round `i`. For `burn_in` rounds after it (None: `self.burn_in(t)`) the bound is 1.
        """
        omega = self.burn_in(t) if burn_in is None else burn_in
        if i > t - omega - 1.0:
            return 1.0
        square = self.c0 / t**2 + 19.0 / self.slack**2 * math.exp(-(self.slack**2) / 32.0 * (t - i - 1.0 - omega))
        return min(1.0, math.sqrt(square))

    def queue_regret(self, t: int, burn_in: float | None = None) -> float:
        """Returns a bound of the queue length regret at `t`, which proves theorem 5: sum of `gap` times mean of `survival`, over earlier rounds."""
        checks.count("t", t, minimum=2)
        omega = self.burn_in(t) if burn_in is None else burn_in
        gaps = sum(self.gap(i, t) for i in range(1, t))
        return gaps * sum(self.survival(i, t, omega) for i in range(1, t)) / (t - 1.0)
