"""Rewards that an environment gives and that a policy assumes: `simulate` compares them, and warns where they do not fit.

An environment may have a method `rewards()`, with numbers that a static `Spec` cannot hold, a policy or its `family` an attribute `assumes`.
"""

from dataclasses import dataclass
from typing import Any

inf = float("inf")


class AssumptionWarning(UserWarning):
    """A policy assumes other rewards than the environment gives."""


@dataclass(frozen=True)
class Rewards:
    """Rewards that an environment gives.

    Attributes:
      distribution: in words, "normal" for example.
      low, high: interval of the rewards; of normal ones three standard deviations around the means.
      noise: sub-Gaussian constant of a reward, infinite without one; standard deviation of a recorded reward.
      width: length of the interval of the rewards of one model.
      largest_mean: mean of the best model.
    """

    distribution: str
    low: float
    high: float
    noise: float
    width: float
    largest_mean: float

    @classmethod
    def normal(cls, least_mean: float, largest_mean: float, scale: float) -> "Rewards":
        """Normal rewards with means between two numbers and a standard deviation."""
        return cls("normal", least_mean - 3 * scale, largest_mean + 3 * scale, scale, 6 * scale, largest_mean)

    @classmethod
    def unit(cls, distribution: str, largest_mean: float) -> "Rewards":
        """Rewards in [0, 1]."""
        return cls(distribution, 0.0, 1.0, 0.5, 1.0, largest_mean)


@dataclass(frozen=True)
class Assumed:
    """Largest values of the attributes of `Rewards` that a policy is for, and what to do elsewhere, `remedy`; `distributions`: empty for any."""

    low: float = -inf
    high: float = inf
    noise: float = inf
    width: float = inf
    largest_mean: float = inf
    distributions: tuple[str, ...] = ()
    remedy: str = (
        "scale the rewards to [0, 1], or use a policy for others, such as GaussianThompson(scale=..., prior_mean=...)"
    )

    def missed(self, given: Rewards) -> str:
        """Sentence on all that rewards do not meet; empty if they are as assumed (noise up to a tenth)."""
        slack = 1e-6 * (given.width if 1.0 < given.width < inf else 1.0)
        wrong = {
            f"rewards in [{self.low:g}, {self.high:g}]": given.low < self.low - slack or given.high > self.high + slack,
            f"sub-Gaussian rewards with a constant of at most {self.noise:.3g}": given.noise > 1.1 * self.noise,
            f"rewards of a model in an interval of length {self.width:.3g}": given.width > self.width + slack,
            f"means of at most {self.largest_mean:.3g}": given.largest_mean > self.largest_mean + slack,
            f"{' or '.join(self.distributions)} rewards": self.distributions
            and given.distribution not in self.distributions,
        }
        missed = " and ".join(text for text, is_wrong in wrong.items() if is_wrong)
        shown = (
            f"{given.distribution} rewards in [{given.low:.3g}, {given.high:.3g}] with means up to {given.largest_mean:.3g}"
        )
        return f"assumes {missed}, the environment gives {shown}: {self.remedy}" if missed else ""


UNIT = Assumed(low=0.0, high=1.0)


def assumed_by(policy: Any) -> Assumed:
    """Rewards that a policy or else its family assumes; any, where neither says so."""
    return getattr(policy, "assumes", getattr(getattr(policy, "family", None), "assumes", Assumed()))
