"""Structure of `summary.json`: the content of the page as plain JSON, with null for NaN and infinity."""

from typing import TypedDict

# A mean and its standard error.
Pair = tuple[float | None, float | None]


class ModelSummary(TypedDict):
    """A single model for every query.

    Attributes:
      name: name of the model.
      quality: mean score over queries.
      cost: mean cost per query.
    """

    name: str
    quality: Pair
    cost: Pair


class DataSummary(TypedDict):
    """The data of the comparison.

    Attributes:
      file: name of the file, or "a table".
      queries: number of queries.
      unit: unit of costs, for example "USD per query".
      currency: for example "USD".
      latency: whether latencies are recorded.
      features: source of the features of queries, in words.
      read: notes of the reader of the log, one a line.
      models: models, from the cheapest to the most expensive.
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
    """Fields of `points.Learning`."""

    queries: list[int]
    quality: list[float | None]
    cost: list[float | None]


class PointSummary(TypedDict):
    """Fields of `points.Point` with the measures of `judged`, and two more.

    Attributes:
      without: rare need that prevents deployment, for example "a perfect judge", or null.
      meets: whether the quality meets the target within half a standard error, in both halves of the evidence.
      answer: whether this is the chosen setting of its strategy for the target.
      saving: relative saving against the cheapest single model that meets the target, or null; negative if the point costs more.
    """

    strategy: str
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

    Attributes:
      target: quality.
      strategy: cheapest deployable strategy that meets the target, or null.
      setting: its setting.
      quality: its quality.
      cost: its cost.
      single: cheapest single model that meets the target, or null.
      saving: relative saving against that model.
    """

    target: float
    strategy: str | None
    setting: str | None
    quality: Pair | None
    cost: Pair | None
    single: str | None
    saving: Pair | None


class Summary(TypedDict):
    """Content of the page.

    Attributes:
      jaxroute: version.
      target: requested quality, in [0, 1].
      sentence: headline.
      besides: further sentences.
      best: index of the point of the headline; null if no deployable strategy meets the target.
      answered: whether that point is clearly cheaper than the cheapest single model that meets the target.
      data: data of the comparison.
      points: all points, including bounds, in no particular order.
      sensitivity: answers for other targets, in increasing order.
      assumptions: assumptions in words.
      seconds: wall-clock time of each step.
      orders: number of random orders of the queries for online policies.
      command: command that reproduces the report.
      to_route: routing of a new query: a sentence, and Python code, which may be empty.
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
