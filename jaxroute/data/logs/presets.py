"""Formats of tools and of public data sets, as columns that the reader knows; those that are a matter of names are in `presets.json`."""

import ast
import fnmatch
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
Prices = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Preset:
    """A known format.

    Attributes:
      name: name of the format, in words; empty for none.
      fields: names that all its records have, with `*` for any text.
      reader: what the file beside the records, or a rule, adds to them: a name in `READERS`, or None.
      columns: path to the cell of each column: keys joined by dots, alternatives by `|`, the seconds between two moments by `..`.
      explode: list of objects that become separate records, or None.
      keep: allowed values by field; other records are no answers.
      unique: fields that are the same in an answer that is logged twice.
      sort: field by which the first of these is chosen, or None.
      first: column of which the first value in each category counts if the caller chooses none, or None.
      given: columns by role.
      how: how several answers of a pair are joined.
      refused: says why nothing can be compared; None where it can.
    """

    name: str
    fields: Sequence[str] = ()
    reader: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    explode: str | None = None
    keep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unique: Sequence[str] = ()
    sort: str | None = None
    first: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    how: str = "mean"
    refused: str | None = None

    @property
    def prices(self) -> Mapping[str, tuple[float, ...]]:
        """USD per million tokens by model, where the format has a price list."""
        return SPROUT_PRICES if self.name == "SPROUT" else {}

    def rows(self, path: Path, records: Records) -> Records:
        """The answers, in columns that the reader knows; what the user added to the format stays."""
        if self.reader is None and not self.columns:
            return records
        if self.explode:
            records = [{**record, **item} for record in records for item in record[self.explode]]
        more = READERS[self.reader](path, records) if self.reader else [{} for _ in records]
        pairs = list(zip(records if len(records) == len(more) else more, more, strict=True))
        if self.sort:
            pairs.sort(key=lambda pair: str(pair[0].get(self.sort or "")).startswith("resp_"))
        found, seen = [], set()
        for record, known in pairs:
            key = tuple(str(record.get(name)) for name in self.unique)
            other = any(name in record and record[name] not in allowed for name, allowed in self.keep.items())
            if other or (key and key in seen):
                continue
            seen.add(key)
            row = {**{name: cell(record, way) for name, way in self.columns.items()}, **known}
            if self.columns:  # What the user added counts.
                row["query_id"] = next((of for name, of in record.items() if level("query", name) == 3), row["query_id"])
                if not any(level("score", name) for name in row):
                    row |= {name: of for name, of in record.items() if level("score", name)}
            found.append(row)
        return found

    def completed(self, name: str, prices: Prices | None, models: Sequence[str]) -> Prices | None:
        """The caller's prices, completed by those of the format where it has a price list; a model in neither is refused."""
        if not self.prices:
            return prices
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
        try:
            value = value_of(value)[key]
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


def _lm_eval(path: Path, records: Records) -> Records:
    task = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    beside = (_beside(path, file.name) for file in sorted(path.parent.glob("*.json")))
    results = next((found for found in beside if isinstance(found, dict) and "config" in found), {})
    arguments = inner(results, "config", "model_args")
    if isinstance(arguments, str):
        arguments = {part.partition("=")[0]: part.partition("=")[2] for part in arguments.split(",")}
    named = results.get("model_name") or inner(arguments, "pretrained") or inner(arguments, "model")
    model = named or path.parent.name.replace("__", "/")
    found = []
    for record in records:
        metric = next((name for name in record.get("metrics") or () if isinstance(record.get(name), (int, float))), "")
        answer = inner(record, "resps", 0, 0)
        row = {"query_id": record["doc_id"], "model": record.get("model", model), "category": record.get("task", task)}
        row |= {"score": record.get(metric), "filter": record.get("filter")}
        row["prompt"] = inner(record, "arguments", "gen_args_0", "arg_0") or json.dumps(record.get("doc"))
        found.append({**row, "response": answer if isinstance(answer, str) else None})
    return found


def _helm(path: Path, records: Records) -> Records:
    spec = _beside(path, "run_spec.json") or {}
    texts = {str(one.get("id")): inner(one, "input", "text") for one in _beside(path, "instances.json") or ()}
    shown = [*(_beside(path, "display_requests.json") or ()), *(_beside(path, "display_predictions.json") or ())]
    shown = [(str(one.get("instance_id")), one) for one in shown if "perturbation" not in one]
    texts |= {instance: inner(one, "request", "prompt") for instance, one in shown if "request" in one}
    answers = {instance: one["predicted_text"] for instance, one in shown if "predicted_text" in one}
    merged: dict[tuple, dict[str, Any]] = {}
    for record in records:
        if record.get("perturbation") is None:
            stats = {str(inner(stat, "name", "name")): stat.get("mean") for stat in record["stats"]}
            merged.setdefault((record["instance_id"], record.get("train_trial_index", 0)), {}).update(stats)
    counts = re.compile(_FILE["counts of HELM"])
    names = dict.fromkeys(name for stats in merged.values() for name in stats if not counts.search(name))
    metric = next((name for name in (*_FILE["metrics of HELM"].split(), *names) if name in names), "")
    model = inner(spec, "adapter_spec", "model") or path.parent.name.rpartition("model=")[2]
    category = inner(spec, "groups", 0) or path.parent.name.partition(":")[0]
    found = []
    for (instance, trial), stats in merged.items():
        row = {"model": model, "category": category, "query_id": instance, "run": trial}
        row |= {f"score ({metric})": stats.get(metric), "input_tokens": stats.get("num_prompt_tokens")}
        row["output_tokens"] = stats.get("num_output_tokens", stats.get("num_completion_tokens"))
        row |= {"latency_s": stats.get("inference_runtime"), "prompt": texts.get(str(instance))}
        found.append({**row, "response": answers.get(str(instance))})
    return found


def _inspect(path: Path, records: Records) -> Records:
    """Samples of logs, each with the head of its log under `log`, or of the data frame of samples."""
    found = []
    for record in records:
        if inner(record, "log", "status") not in (None, "success"):
            found.append({})
            continue
        usage, scores = value_of(record.get("model_usage")) or {}, record.get("scores") or {}
        model = inner(record, "log", "eval", "model") or record.get("model") or next(iter(usage), None)
        usage = usage.get(model, {})
        named = {name: value for name, value in record.items() if name.startswith("score_")}
        if scores:
            first = scores.get(inner(record, "log", "results", "scores", 0, "name")) or next(iter(scores.values()))
            value = inner(first, "value")
            named = {"score": next(iter(value.values()), None) if isinstance(value, dict) else value}
        row = {"query_id": record["id"], "epoch": record.get("epoch"), "model": model}
        row["category"] = inner(record, "log", "eval", "task")
        row |= {"score": next(iter(named.values()))} if len(named) == 1 else named
        row |= {f"{name}_tokens": usage.get(f"{name}_tokens") for name in ("input", "output")}
        row |= {"cost_usd": usage.get("total_cost"), "cache_read_input_tokens": usage.get("input_tokens_cache_read")}
        row |= {"latency_s": record.get("total_time"), "prompt": record.get("input")}
        answer = inner(record, "output", "choices", 0, "message", "content")
        found.append(row | ({"response": answer} if answer is not None else {}))
    return found


def _mmlu_pro(path: Path, records: Records) -> Records:
    """Answers of one model: its name is that of the file, or of the folder where each subject has a file."""
    model = path.parent.name if path.stem.endswith("_result") else re.sub(r"^model_outputs_|_\d+shots?$", "", path.stem)
    found = []
    for record in records:
        prompt = "\n".join([str(record["question"]), *map(str, record.get("options") or ())])
        right = float(record["pred"] == record["answer"])
        found.append({"model": record.get("model", model), "score": right, "prompt": prompt})
    return found


def _mix_instruct(path: Path, records: Records) -> Records:
    found = []
    for record in records:
        prompt = " ".join(filter(None, (record.get("instruction"), record.get("input"))))
        found.append({"category": str(record["id"]).partition("/")[0], "prompt": prompt})
    return found


def _langfuse(path: Path, records: Records) -> Records:
    """Scores: a column for each name, with a list in each cell, or a list of named values."""
    own, found = set(" ".join(_FILE["columns of Langfuse"]).split()), []
    for record in records:
        firsts = {name: inner(value, 0) for name, value in record.items() if name not in own and "." not in name}
        scores = {name: record[name] if value is None else value for name, value in firsts.items()}
        listed = value_of(record.get("scores"))
        for one in listed if isinstance(listed, list) else ():
            scores |= {one["name"]: one.get("value")} if isinstance(one, dict) and "name" in one else {}
        scores = {name: value for name, value in scores.items() if level("query", name) < 3 and not isinstance(value, bool)}
        found.append(_of_one({name: value for name, value in scores.items() if isinstance(value, (int, float))}))
    return found


def _of_one(scores: dict[str, Any]) -> dict[str, Any]:
    """Scores by name: a single one is the score."""
    return dict(zip(["score"], scores.values())) if len(scores) == 1 else scores


def _langsmith(path: Path, records: Records) -> Records:
    """Feedback of the call, or of the run that it is part of."""
    feedback: dict[str, Any] = {}
    for record in records:
        stats = value_of(record.get("feedback_stats"))
        for of in stats.values() if isinstance(stats, dict) else ():
            feedback.setdefault(str(record["trace_id"]), {"score": inner(of, "avg")})
    return [feedback.get(str(record["trace_id"]), {}) for record in records]


def _experiment(path: Path, records: Records) -> Records:
    """Experiments of LangSmith, each of a model, whose name is that of the file."""
    found = []
    for record in records:
        row = {"model": record.get("model", path.stem)}
        for column, heads in (("prompt", ("inputs.", "input.")), ("response", ("outputs.", "output."))):
            row[column] = " ".join(str(value) for name, value in record.items() if name.startswith(heads))
        row |= _of_one({name: value for name, value in record.items() if name.startswith("feedback.")})
        found.append(row | ({} if record.get("example_id") else {"query_id": row["prompt"]}))
    return found


# What files beside the records, or rules, add to them: a row for each record, or, of another number, all rows.
READERS = {
    reader.__name__.removeprefix("_"): reader
    for reader in (_lm_eval, _helm, _inspect, _mmlu_pro, _mix_instruct, _langfuse, _langsmith, _experiment)
}
_FILE = json.loads((Path(__file__).parent / "presets.json").read_text("utf-8"))
PRESETS = tuple(Preset(**preset) for preset in _FILE["presets"])


# "7b", "1.5B", "350m", "8x7b"; also "7b1" for 7.1 and "13bv2". Not "4bit", "8k" or the "11b" of "11bx2".
_SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(\d)?(?=v\d|[^a-z0-9]|$)")


def costs_by_size(models: Iterable[str], default: float = 7.0) -> dict[str, float]:
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
    default = float(checks.positive("default", default, ()))
    costs = {}
    for model in [models] if isinstance(models, str) else map(str, models):
        costs[model] = default
        if size := _SIZE.search(model.lower()):
            experts, number, unit, decimal = size.groups()
            number = f"{number}.{decimal}" if decimal and "." not in number else number
            costs[model] = int(experts or 1) * float(number) / (1.0 if unit == "b" else 1000.0) or default
    return costs


def of_names(names: Iterable[str]) -> Preset | None:
    """The preset of a file with these fields or columns."""
    there = set(names)
    found = next((preset for preset in PRESETS if all(_fits(of, there) for of in preset.fields)), None)
    return found and replace(found, given={role: of for role, of in found.given.items() if _fits(of, there)})


def _fits(pattern: str, names: Collection[str]) -> bool:
    """Whether a pattern of `presets.json` fits one of these names."""
    return pattern in names or ("*" in pattern and any(fnmatch.fnmatchcase(name, pattern) for name in names))


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
    groups = [of for part in ("easy", "hard") for kinds in value[part].values() for of in kinds.values()]
    found, seen = [], set[str]()
    for group in [group for group in groups if group["model"] is not None]:
        models = np.array([str(model) for model in group["model"]], object)
        new = [place for place, model in enumerate(models) if model not in seen]
        seen |= set(models)
        for part in ("train", "val", "test") if new else ():
            queries, prompts = value["split_index"][f"{part}_indices"], value["prompt"][f"{part}_prompt"].astype(object)
            scores = group["data"][f"{part}_score"][:, new].ravel()
            queries, prompts = np.repeat(queries, len(new)), np.repeat(prompts, len(new))
            found.append((queries, np.tile(models[new], len(scores) // len(new)), scores, prompts))
    columns = map(np.concatenate, zip(*found, strict=True))
    return dict(zip(("query_id", "model", "score", "prompt"), columns, strict=True)), Preset("RouterEval")


def is_summary(path: Path) -> bool:
    """Whether a file beside others is a summary of them by its name."""
    named = re.fullmatch(_FILE["summaries"], path.stem, re.IGNORECASE)
    return path.suffix == ".json" and named is not None and not path.stem.endswith("_result")
