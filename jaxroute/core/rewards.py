"""Which rewards an environment gives, and which a policy assumes: `simulate` compares them, and warns where they do not fit.

Both are optional. An environment says it in `rewards()`, in numbers of its own leaves (which a static `Spec` cannot hold), a policy in the
attribute `assumes`. What neither says is not compared.
"""

from dataclasses import dataclass

SCALE_TO_UNIT = (
    "scale the rewards to [0, 1], or use a policy for others, for example KLUCB(family=families.Gaussian(scale)) or "
    "GaussianThompson(scale=..., prior_mean=...)"
)


class AssumptionWarning(UserWarning):
    """A policy assumes other rewards than the environment gives."""


@dataclass(frozen=True)
class Rewards:
    """Rewards that an environment gives.

    Attributes:
      distribution: in words, "normal" for example.
      low, high: the interval in which they lie; of normal rewards all but one in 700, three standard deviations around the means.
      noise: sub-Gaussian constant of a reward, infinite without one: the standard deviation of a normal reward (or of a
        recorded one, of which no more is known), half the range of a bounded one.
      width: length of the interval in which the rewards of one model lie.
      largest_mean: that of the best model.
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
    def bounded(cls, distribution: str, largest_mean: float, low: float = 0.0, high: float = 1.0) -> "Rewards":
        """Rewards in an interval."""
        return cls(distribution, low, high, (high - low) / 2, high - low, largest_mean)


@dataclass(frozen=True)
class Assumed:
    """Rewards that a policy assumes; what is infinite is not asked for.

    Attributes:
      low, high: they lie in this interval.
      noise: they are sub-Gaussian with at most this constant.
      width: the rewards of one model lie in an interval of at most this length.
      largest_mean: no mean is larger.
      distributions: theirs is one of these; empty for any.
      remedy: what to do where they do not.
    """

    low: float = -float("inf")
    high: float = float("inf")
    noise: float = float("inf")
    width: float = float("inf")
    largest_mean: float = float("inf")
    distributions: tuple[str, ...] = ()
    remedy: str = SCALE_TO_UNIT

    def missed(self, given: Rewards) -> str:
        """What these rewards do not meet, in words; empty if they are as assumed, up to a millionth."""
        slack = 1e-6 * max(1.0, given.width if given.width < float("inf") else 1.0)
        wrong = {
            f"rewards in [{self.low:g}, {self.high:g}]": given.low < self.low - slack or given.high > self.high + slack,
            f"sub-Gaussian rewards with a constant of at most {self.noise:.3g}": given.noise > self.noise + slack,
            f"rewards of a model in an interval of length {self.width:.3g}": given.width > self.width + slack,
            f"means of at most {self.largest_mean:.3g}": given.largest_mean > self.largest_mean + slack,
            f"{' or '.join(self.distributions)} rewards": self.distributions
            and given.distribution not in self.distributions,
        }
        missed = [text for text, is_wrong in wrong.items() if is_wrong]
        if not missed:
            return ""
        shown = (
            f"{given.distribution} rewards in [{given.low:.3g}, {given.high:.3g}] with means up to {given.largest_mean:.3g}"
        )
        return f"assumes {' and '.join(missed)}, the environment gives {shown}: {self.remedy}"


# Rewards in [0, 1].
UNIT = Assumed(low=0.0, high=1.0)
