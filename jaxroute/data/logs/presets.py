"""Formats of tools and of public data sets, as columns that the reader knows; those that are a matter of names are in `presets.json`."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import option
from jaxroute.data.logs.cells import empty
from jaxroute.data.logs.names import level
from jaxroute.data.papers import SPROUT_PRICES

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Preset:
    """A known format.

    Attributes:
      name: name of the format, in words; empty for none.
      fields: names that all its records have; one that ends in `*` stands for any name that begins so.
      reader: what the file beside the records, or a rule, adds to them: a name in `READERS`, or None.
      columns: path to the cell of each column: keys joined by dots, alternatives by `|`, the seconds between two moments by `..`.
      explode: list of objects that become records of their own, or None.
      keep: allowed values by field; other records are no answers.
      unique: fields that are the same in an answer that is logged twice.
      sort: field by which the first of these is chosen, or None.
      first: column of which the first value in each category counts if the caller chooses none, or None.
      given: columns by role.
      how: how several answers of a pair are joined.
      refused: says why nothing can be compared; None where it can.
      prices: USD per million tokens by model.
    """

    name: str
    fields: Sequence[str] = ()
    reader: str | None = None
    columns: Mapping[str, str] | None = None
    explode: str | None = None
    keep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unique: Sequence[str] = ()
    sort: str | None = None
    first: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    how: str = "mean"
    refused: str | None = None
    prices: Mapping[str, tuple[float, float]] | None = None

    def matches(self, names: set[str]) -> bool:
        """Whether a file with these names has this format."""
        return all(
            any(name.startswith(of[:-1]) for name in names) if of.endswith("*") else of in names for of in self.fields
        )

    def rows(self, path: Path, records: Records) -> Records:
        """The answers, in columns that the reader knows; what the user added to the format is kept."""
        if self.reader is None and self.columns is None:
            return records
        more = READERS[self.reader](path, records) if self.reader else [{} for _ in records]
        if self.explode:
            records = [{**record, **item} for record in records for item in record[self.explode]]
        found, seen = [], set()
        pairs = list(zip(records, more, strict=True)) if len(more) == len(records) else [(row, row) for row in more]
        if self.sort is not None:
            sort = self.sort
            pairs.sort(key=lambda pair: str(pair[0].get(sort)).startswith("resp_"))
        for record, known in pairs:
            key = tuple(str(record.get(name)) for name in self.unique)
            if any(record.get(name) not in allowed for name, allowed in self.keep.items() if name in record) or (
                self.unique and key in seen
            ):
                continue
            seen.add(key)
            row = {**{name: cell(record, way) for name, way in (self.columns or {}).items()}, **known}
            if self.columns:  # What the user added counts.
                row["query_id"] = next((of for name, of in record.items() if level("query", name) == 3), row["query_id"])
                row |= {
                    name: of
                    for name, of in record.items()
                    if level("score", name) and not any(level("score", known) for known in row)
                }
            found.append(row)
        return found

    def completed(
        self, name: str, prices: Mapping[str, tuple[float, ...]] | None, models: Sequence[str]
    ) -> dict[str, tuple[float, ...]] | None:
        """The caller's prices, completed by those of the format where it has a price list.

        Raises:
          ValueError: a model has neither.
        """
        if not self.prices:
            return None if prices is None else dict(prices)
        known = {**self.prices, **(prices or {})}
        lacking = [model for model in models if model not in known]
        if lacking:
            raise ValueError(
                f"{name} has models without a price, {', '.join(lacking)}: give it in USD per million tokens (prices={{{lacking[0]!r}: (IN, OUT)}}, on the "
                f"command line {option('--price', f'{lacking[0]}=IN:OUT')})"
            )
        return {model: known[model] for model in models}


def value_of(value: Any) -> Any:
    """The object that a text is the JSON, or the Python, of; other cells as they are."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "[", '"'):
        for read in (json.loads, ast.literal_eval):
            try:
                return read(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                pass
    return value


def inner(value: Any, *keys: Any) -> Any:
    """A value inside objects and lists, None if it is not there."""
    for key in keys:
        value = value_of(value)
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def cell(record: Mapping[str, Any], path: str) -> Any:
    """The cell that a path of `presets.json` names."""
    if ".." in path:
        moments = [pd.to_datetime(value_of(record.get(name)), errors="coerce", utc=True) for name in path.split("..")]
        return float((moments[1] - moments[0]).total_seconds()) if not any(map(pd.isna, moments)) else np.nan
    for way in path.split("|"):
        value = value_of(record[way] if way in record else inner(record, *way.split(".")))
        if not (value is None or (np.isscalar(value) and empty(value)) or value == {}):
            return value
    return None


def _beside(path: Path, name: str) -> Any:
    """The JSON of a file in the same folder, None if it is not there."""
    try:
        return json.loads((path.parent / name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


# What files beside the records, or rules, add to them: a row for each record, or, of another number, all rows.


def _lm_eval(path: Path, records: Records) -> Records:
    task = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    beside = (_beside(path, file.name) for file in sorted(path.parent.glob("*.json")))
    results = next((found for found in beside if isinstance(found, dict) and "config" in found), {})
    arguments = inner(results, "config", "model_args")
    if isinstance(arguments, str):
        arguments = {part.partition("=")[0]: part.partition("=")[2] for part in arguments.split(",")}
    model = (
        results.get("model_name")
        or inner(arguments, "pretrained")
        or inner(arguments, "model")
        or path.parent.name.replace("__", "/")
    )
    found = []
    for record in records:
        metric = next((name for name in record.get("metrics") or () if isinstance(record.get(name), (int, float))), None)
        answer = inner(record, "resps", 0, 0)
        row = {"query_id": record["doc_id"], "model": record.get("model", model), "category": record.get("task", task)}
        row |= {"score": None if metric is None else record[metric], "filter": record.get("filter")}
        row["prompt"] = inner(record, "arguments", "gen_args_0", "arg_0") or json.dumps(record.get("doc"))
        found.append({**row, "response": answer if isinstance(answer, str) else None})
    return found


_HELM_METRICS = (
    "exact_match",
    "quasi_exact_match",
    "prefix_exact_match",
    "quasi_prefix_exact_match",
    "f1_score",
    "rouge_l",
    "bleu_4",
)
_HELM_COUNTS = re.compile(
    r"^(num_|training_|inference_|finish_reason|batch_size|prompt_truncated|logprob|predicted_index|max_prob)|_tokens$|_cost$"
)


def _helm(path: Path, records: Records) -> Records:
    spec = _beside(path, "run_spec.json") or {}
    texts = {str(one.get("id")): inner(one, "input", "text") for one in _beside(path, "instances.json") or ()}
    shown = [
        one
        for name in ("display_requests.json", "display_predictions.json")
        for one in _beside(path, name) or ()
        if "perturbation" not in one
    ]
    texts |= {str(one.get("instance_id")): inner(one, "request", "prompt") for one in shown if "request" in one}
    answers = {str(one.get("instance_id")): one["predicted_text"] for one in shown if "predicted_text" in one}
    merged: dict[tuple, dict[str, Any]] = {}
    for record in records:
        if record.get("perturbation") is None:
            stats = {str(inner(stat, "name", "name")): stat.get("mean") for stat in record["stats"]}
            merged.setdefault((record["instance_id"], record.get("train_trial_index", 0)), {}).update(stats)
    names = dict.fromkeys(name for stats in merged.values() for name in stats if not _HELM_COUNTS.search(name))
    metric = next((name for name in (*_HELM_METRICS, *names) if name in names), "")
    model = inner(spec, "adapter_spec", "model") or path.parent.name.rpartition("model=")[2]
    same = {"model": model, "category": inner(spec, "groups", 0) or path.parent.name.partition(":")[0]}
    return [
        {
            **same,
            "query_id": instance,
            "run": trial,
            f"score ({metric})": stats.get(metric),
            "input_tokens": stats.get("num_prompt_tokens"),
            "output_tokens": stats.get("num_output_tokens", stats.get("num_completion_tokens")),
            "latency_s": stats.get("inference_runtime"),
            "prompt": texts.get(str(instance)),
            "response": answers.get(str(instance)),
        }
        for (instance, trial), stats in merged.items()
    ]


def _inspect(path: Path, records: Records) -> Records:
    """Samples of logs, each with the head of its log under `log`, or of the data frame of samples."""
    del path
    found = []
    for record in records:
        usage = value_of(record.get("model_usage")) or {}
        model = inner(record, "log", "eval", "model") or record.get("model") or next(iter(usage), None)
        usage, scores = usage.get(model, {}), record.get("scores") or {}
        named = {name: value for name, value in record.items() if name.startswith("score_")}
        if scores:
            value = inner(
                scores.get(inner(record, "log", "results", "scores", 0, "name")) or next(iter(scores.values())), "value"
            )
            named = {"score": next(iter(value.values()), None) if isinstance(value, dict) else value}
        row = {
            "query_id": record["id"],
            "epoch": record.get("epoch"),
            "model": model,
            "category": inner(record, "log", "eval", "task"),
        }
        row |= {"score": next(iter(named.values()))} if len(named) == 1 else named
        row |= {
            "input_tokens": usage.get("input_tokens"),
            "output_tokens": usage.get("output_tokens"),
            "cost_usd": usage.get("total_cost"),
        }
        row |= {
            "cache_read_input_tokens": usage.get("input_tokens_cache_read"),
            "latency_s": record.get("total_time"),
            "prompt": record.get("input"),
        }
        answer = inner(record, "output", "choices", 0, "message", "content")
        found.append(row | ({"response": answer} if answer is not None else {}))
    done = [inner(record, "log", "status") in (None, "success") for record in records]
    return [row if of else {} for row, of in zip(found, done, strict=True)]


def _mmlu_pro(path: Path, records: Records) -> Records:
    """Answers of one model: its name is that of the file, or of the folder where each subject has a file."""
    model = path.parent.name if path.stem.endswith("_result") else re.sub(r"^model_outputs_|_\d+shots?$", "", path.stem)
    return [
        {
            "model": record.get("model", model),
            "score": float(record["pred"] == record["answer"]),
            "prompt": "\n".join([str(record["question"]), *map(str, record.get("options") or ())]),
        }
        for record in records
    ]


def _mix_instruct(path: Path, records: Records) -> Records:
    del path
    prompts = [
        (str(record["id"]), " ".join(part for part in (record.get("instruction"), record.get("input")) if part))
        for record in records
    ]
    return [
        {"category": name.partition("/")[0], "prompt": text}
        for (name, text), of in zip(prompts, records, strict=True)
        for _ in of["candidates"]
    ]


_LANGFUSE = frozenset(
    name
    for part in (
        "id traceId startTime endTime projectId parentObservationId type name level statusMessage version environment completionStartTime createdAt updatedAt",
        "input output metadata model internalModelId modelParameters usage usageDetails inputUsage outputUsage totalUsage costDetails inputCost outputCost unit",
        "totalCost providedUsageDetails providedCostDetails promptId promptName promptVersion latency timeToFirstToken traceName traceTags traceTimestamp",
        "userId toolDefinitionsCount toolCallsCount modelId inputPrice outputPrice totalPrice comments calculatedInputCost calculatedOutputCost bookmarked",
        "calculatedTotalCost public sessionId release tags",
    )
    for name in part.split()
)


def _langfuse(path: Path, records: Records) -> Records:
    """Scores: a column for each name, with a list in each cell, or a list of named values."""
    del path
    found = []
    for record in records:
        scores = {
            name: inner(value, 0)
            for name, value in record.items()
            if name not in _LANGFUSE and "." not in name and name != "scores"
        }
        scores = {name: record[name] if value is None else value for name, value in scores.items()}
        listed = value_of(record.get("scores"))
        scores |= (
            {one["name"]: one.get("value") for one in listed if isinstance(one, dict) and "name" in one}
            if isinstance(listed, list)
            else {}
        )
        numeric = {
            name: value
            for name, value in scores.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool) and level("query", name) < 3
        }
        found.append({("score" if len(numeric) == 1 else name): value for name, value in numeric.items()})
    return found


def _langsmith(path: Path, records: Records) -> Records:
    """Feedback of the call, or of the run that it is part of."""
    del path
    feedback: dict[str, Any] = {}
    for record in records:
        stats = value_of(record.get("feedback_stats"))
        for of in stats.values() if isinstance(stats, dict) else ():
            feedback.setdefault(str(record["trace_id"]), inner(of, "avg"))
    return [
        {"score": feedback[str(record["trace_id"])]} if str(record["trace_id"]) in feedback else {} for record in records
    ]


def _experiment(path: Path, records: Records) -> Records:
    """Experiments of LangSmith, each of a model, whose name is that of the file."""
    found = []
    for record in records:
        parts = {
            head: [str(value) for name, value in record.items() if name.startswith((f"{head}s.", f"{head}."))]
            for head in ("input", "output")
        }
        scores = {name: value for name, value in record.items() if name.startswith("feedback.")}
        row = {
            "model": record.get("model", path.stem),
            "prompt": " ".join(parts["input"]),
            "response": " ".join(parts["output"]),
        }
        row |= {("score" if len(scores) == 1 else name): value for name, value in scores.items()}
        found.append(row | ({} if record.get("example_id") else {"query_id": row["prompt"]}))
    return found


READERS: dict[str, Callable[[Path, Records], Records]] = {
    "lm_eval": _lm_eval,
    "helm": _helm,
    "inspect": _inspect,
    "mmlu_pro": _mmlu_pro,
    "mix_instruct": _mix_instruct,
    "langfuse": _langfuse,
    "langsmith": _langsmith,
    "experiment": _experiment,
}
PRESETS = tuple(Preset(**preset) for preset in json.loads((Path(__file__).parent / "presets.json").read_text("utf-8")))


# "7b", "1.5B", "350m", "8x7b"; also "7b1" for 7.1 and "13bv2". Not "4bit", "8k" or the "11b" of "11bx2".
_SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(\d)?(?=v\d|[^a-z0-9]|$)")


# 1e9 parameters, where a name does not say.
_TYPICAL_SIZE = 7.0


def costs_by_size(models: Iterable[str], default: float = _TYPICAL_SIZE) -> dict[str, float]:
    """Costs in 1e9 parameters, read from the models' names; for EmbedLLM, whose files have no costs.

    The first size in a name counts: 13 for "vicuna-13b-v1.5", 56 for "Mixtral-8x7B", 0.35 for "opt-350m", 7.1 for
    "bloom-7b1". Experts are multiplied out, although they share parameters (a Mixtral-8x7B has 47, not 56).

    Source: stands in for the cost map of ACQB's EmbedLLM experiment, which is taken from another paper and not printed.

    Args:
      models: the names.
      default: the size of a model whose name has none.

    Returns:
      Cost of each model, in the order given.
    """
    if not isinstance(models, Iterable):
        raise ValueError(f"models must be names, got {checks.show(models)}")
    models = [models] if isinstance(models, str) else [str(model) for model in models]
    default = float(checks.positive("default", default, ()))
    costs = {}
    for model in models:
        size = _SIZE.search(model.lower())
        costs[model] = default
        if size:
            experts, number, unit, decimal = size.groups()
            number = f"{number}.{decimal}" if decimal and "." not in number else number
            costs[model] = int(experts or 1) * float(number) / (1.0 if unit == "b" else 1000.0) or default
    return costs


_SUMMARIES = re.compile(
    r"^(results?_.*|.*_summary|run_spec|stats|instances|display_.*|scenario.*|summary|metadata|config|leaderboard)$",
    re.IGNORECASE,
)


def of_names(names: Iterable[str]) -> Preset | None:
    """The preset of a file with these fields or columns."""
    there = set(names)
    found = next((preset for preset in PRESETS if preset.matches(there)), None)
    if found is None and any(name.startswith("energy_consumption_") for name in there):
        score = "label_*" if any(name.startswith("label_") for name in there) else "acc_*"
        given = {"score": score, "cost": "energy_consumption_*", "latency": "inference_time_*"}
        found = Preset(
            "MESS+", given={role: of for role, of in given.items() if any(name.startswith(of[:-1]) for name in there)}
        )
    models = [name.removesuffix(".num_input_tokens") for name in names if name.endswith(".num_input_tokens")]
    if (
        found is None
        and models
        and all(f"{model}.{part}" in there for model in models for part in ("score", "num_output_tokens"))
    ):
        given = {"score": "*.score", "tokens_in": "*.num_input_tokens", "tokens_out": "*.num_output_tokens"}
        found = Preset("SPROUT", given=given, prices=SPROUT_PRICES)
    return found


def of_records(path: Path, records: Records) -> tuple[Records, Preset | None]:
    """Records as the reader knows them, and the preset of their format.

    Raises:
      ValueError: the format holds nothing that can be compared.
    """
    preset = of_names(dict.fromkeys(str(key) for record in records[:50] for key in record)) if records else None
    if preset is None:
        return records, None
    if preset.refused:
        raise ValueError(f"{path} {preset.refused}")
    try:
        rows = [row for row in preset.rows(path, records) if row]
    except (TypeError, KeyError, AttributeError, IndexError, ValueError) as error:
        raise ValueError(
            f"{path} looks like {preset.name}, but its records are others ({type(error).__name__}: {error})"
        ) from None
    if not rows:
        raise ValueError(f"{path} has the form of {preset.name}, but no answers of models")
    return rows, preset


def of_dict(path: Path, value: Mapping[Any, Any]) -> tuple[dict[str, np.ndarray], Preset]:
    """Columns of a pickled data set of RouterEval: its groups of models overlap, with equal scores.

    Raises:
      ValueError: it is something else.
    """
    if not all(isinstance(value.get(part), dict) and value[part] for part in ("easy", "hard", "split_index", "prompt")):
        raise ValueError(
            f"{path} is a pickled dict of {', '.join(map(str, value))}, and no data frame: save it as csv or parquet"
        )
    columns: dict[str, list[np.ndarray]] = {"query_id": [], "model": [], "score": [], "prompt": []}
    seen: set[str] = set()
    for group in [
        of for part in ("easy", "hard") for kinds in value[part].values() for of in kinds.values() if of["model"] is not None
    ]:
        models = [str(model) for model in group["model"]]
        new = [place for place, model in enumerate(models) if model not in seen]
        seen |= set(models)
        for part in ("train", "val", "test") if new else ():
            queries, scores = value["split_index"][f"{part}_indices"], group["data"][f"{part}_score"][:, new]
            columns["query_id"].append(np.repeat(queries, len(new)))
            columns["model"].append(np.tile(np.array(models, object)[new], len(queries)))
            columns["score"].append(scores.ravel())
            columns["prompt"].append(np.repeat(value["prompt"][f"{part}_prompt"].astype(object), len(new)))
    return {name: np.concatenate(arrays) for name, arrays in columns.items()}, Preset("RouterEval")


def is_summary(path: Path) -> bool:
    """Whether a file beside others is a summary of them by its name."""
    return path.suffix == ".json" and bool(_SUMMARIES.match(path.stem)) and not path.stem.endswith("_result")
