"""The form of `summary.json`: all that the page shows, in plain JSON. What is not a number in JSON (NaN, infinity) is null."""

from typing import TypedDict

# A mean and its standard error.
Pair = tuple[float | None, float | None]


class ModelSummary(TypedDict):
    """A model of the table, answering every query.

    name: of the model.
    quality: mean score and its standard error over queries.
    cost: mean cost per query and its standard error.
    """

    name: str
    quality: Pair
    cost: Pair


class DataSummary(TypedDict):
    """What was compared on.

    file: name of the file, or "a table".
    queries: how many.
    unit: of costs, for example "USD per query".
    currency: "USD".
    latency: whether there are latencies.
    features: where features of queries come from, in words.
    read: lines that say what was taken for what, and what was left out.
    models: from the cheapest on.
    """

    file: str
    queries: int
    unit: str
    currency: str
    latency: bool
    features: str
    read: list[str]
    models: list[ModelSummary]


class LearningSummary(TypedDict):
    """As `points.Learning`."""

    queries: list[int]
    quality: list[float | None]
    cost: list[float | None]


class PointSummary(TypedDict):
    """As `points.Point`, judged.

    without: the rare thing without which it is out of reach, for example "a perfect judge"; null if it needs none. Such a point is no answer.
    meets: whether the quality reaches the target where it is chosen and where it is judged, up to half a standard error.
    answer: whether this is the setting of its approach that was chosen for the target; one point at most of each approach.
    saving: part of the cost of the cheapest single model that meets the target which is saved (negative: it costs more), and its error;
      null without such a model, and for points that are no answer.
    """

    approach: str
    kind: str
    setting: str
    quality: Pair
    cost: Pair
    calls: Pair
    latency: Pair | None
    late_quality: Pair | None
    late_cost: Pair | None
    without: str | None
    meets: bool
    answer: bool
    saving: Pair | None
    needs: list[str]
    shares: dict[str, float]
    further: str
    learning: LearningSummary | None


class SensitivitySummary(TypedDict):
    """The answer for another target.

    target: quality.
    approach: the cheapest available way that meets it; null if none does.
    setting: of it.
    quality: judged.
    cost: judged.
    single: the cheapest single model that reaches it, null if none does.
    saving: against that model.
    """

    target: float
    approach: str | None
    setting: str | None
    quality: Pair | None
    cost: Pair | None
    single: str | None
    saving: Pair | None


class Summary(TypedDict):
    """All that the page shows.

    jaxroute: version.
    target: the quality asked for, in [0, 1].
    sentence: the answer.
    besides: more sentences.
    best: number of the point that the sentence is about; null if nothing available meets the target.
    answered: whether it clearly costs less than the cheapest single model that reaches the target.
    data: what was compared on.
    points: all of them, bounds too, in no special order.
    sensitivity: from the lowest target on.
    assumptions: sentences.
    seconds: how long each part took.
    orders: random orders of the queries, of policies that learn.
    command: the command that makes this report again.
    to_route: how to route a new query: a sentence, and Python that does it, which may be empty.
    """

    jaxroute: str
    target: float
    sentence: str
    besides: list[str]
    best: int | None
    answered: bool
    data: DataSummary
    points: list[PointSummary]
    sensitivity: list[SensitivitySummary]
    assumptions: list[str]
    seconds: dict[str, float]
    orders: int
    command: str
    to_route: tuple[str, str]
