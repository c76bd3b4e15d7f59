"""Properties of an environment's rewards and a policy's assumptions about them. `simulate` compares both and warns of violations.

An environment may have a method `rewards()`. A policy, or its `family` of reward distributions, may have an attribute `assumes`.
"""

from dataclasses import dataclass
from typing import Any

inf = float("inf")


class AssumptionWarning(UserWarning):
    """Warning that the environment's rewards violate an assumption of the policy."""


@dataclass(frozen=True)
class Rewards:
    """Properties of the rewards that an environment gives.

    Attributes:
      distribution: name of the distribution, for example "normal".
      low: smallest reward; for normal rewards three standard deviations below the smallest mean.
      high: largest reward; for normal rewards three standard deviations above the largest mean.
      noise: sub-Gaussian constant, infinite for rewards without one; the standard deviation if rewards are recorded data.
      width: length of the interval that contains a model's rewards, for the model with the longest interval.
      largest_mean: mean reward of the best model.
    """

    distribution: str
    low: float
    high: float
    noise: float
    width: float
    largest_mean: float

    @classmethod
    def normal(cls, least_mean: float, largest_mean: float, scale: float) -> "Rewards":
        """Returns the properties of normal rewards of standard deviation `scale`, whose means lie between `least_mean` and `largest_mean`."""
        return cls("normal", least_mean - 3 * scale, largest_mean + 3 * scale, scale, 6 * scale, largest_mean)

    @classmethod
    def unit(cls, distribution: str, largest_mean: float) -> "Rewards":
        """Returns the properties of rewards in [0, 1] with this distribution, where the best model has the mean reward `largest_mean`."""
        return cls(distribution, 0.0, 1.0, 0.5, 1.0, largest_mean)


@dataclass(frozen=True)
class Assumptions:
    """Rewards for which a policy is made, as inclusive limits for the properties in `Rewards`.

    Attributes:
      low: lower limit of all rewards.
      high: upper limit of all rewards.
      noise: largest sub-Gaussian constant.
      width: largest length of the interval of one model's rewards.
      largest_mean: largest mean reward of the best model.
      distributions: names of the allowed distributions, empty for any.
      remedy: advice in the warning for other rewards.
    """

    low: float = -inf
    high: float = inf
    noise: float = inf
    width: float = inf
    largest_mean: float = inf
    distributions: tuple[str, ...] = ()
    remedy: str = "scale the rewards to [0, 1], or use another policy, such as GaussianThompson(scale=..., prior_mean=...)"

    def violations(self, given: Rewards) -> str:
        """Describes the assumptions that the rewards `given` violate, and the remedy; empty if none. The noise may exceed its limit by a tenth."""
        slack = 1e-6 * (given.width if 1.0 < given.width < inf else 1.0)
        wrong = {
            f"rewards in [{self.low:g}, {self.high:g}]": given.low < self.low - slack or given.high > self.high + slack,
            f"sub-Gaussian rewards with a constant of at most {self.noise:.3g}": given.noise > 1.1 * self.noise,
            f"rewards of a model in an interval of length {self.width:.3g}": given.width > self.width + slack,
            f"means of at most {self.largest_mean:.3g}": given.largest_mean > self.largest_mean + slack,
            f"{' or '.join(self.distributions)} rewards": self.distributions
            and given.distribution not in self.distributions,
        }
        broken = " and ".join(text for text, is_wrong in wrong.items() if is_wrong)
        shown = f"{given.distribution} rewards in [{given.low:.3g}, {given.high:.3g}]"
        means = f"with means up to {given.largest_mean:.3g}"
        return f"assumes {broken}, the environment gives {shown} {means}: {self.remedy}" if broken else ""


UNIT = Assumptions(low=0.0, high=1.0)


def assumptions_of(policy: Any) -> Assumptions:
    """Returns the attribute `assumes` of a policy, else of its `family` of reward distributions, else assumptions that any rewards meet."""
    return getattr(policy, "assumes", getattr(getattr(policy, "family", None), "assumes", Assumptions()))
