"""Converts files of known formats (presets), of tools and public data sets, to columns with known names; `presets.json` lists the formats."""

import ast
import fnmatch
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import join_names, option
from ..papers import SPROUT_PRICES
from .cells import is_empty
from .names import match_level

RECORD = "\0record"  # Field of a converted row with the record that it was made from.
Record = dict[str, Any]
Records = list[Record]
Prices = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Preset:
    """Describes a file format of a tool or data set, and converts its records to columns of a log. The default, without a name, converts nothing."""

    name: str = ""  #: Name of the format.
    fields: Sequence[str] = ()  #: Names that all its records have, with `*` for any text.
    reader: str | None = None  #: Name of the function that computes columns, also from files beside the records.
    # Path to the cell of each column: keys joined by dots, alternatives by `|`; `a..b` gives the seconds from a to b.
    columns: Mapping[str, str] = field(default_factory=dict)
    explode: str | None = None  #: Field with a list of objects that become separate records.
    # Allowed values by field; other records are not answers.
    keep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unique: Sequence[str] = ()  #: Fields, if present, that identify an answer; if one is logged twice, the first counts.
    first: str | None = None  #: Column; only rows with its first value in each category count, unless the caller chooses.
    given: Mapping[str, str] = field(default_factory=dict)  #: Columns by role.
    how: str = "mean"  #: Aggregation of several answers of one model to one query.
    refused: str | None = None  #: Reason why nothing can be compared.

    @property
    def converts(self) -> bool:
        """Whether `rows` changes records."""
        return bool(self.reader or self.columns)

    @property
    def prices(self) -> Mapping[str, tuple[float, ...]]:
        """Price list of the format: USD per million input and output tokens by model; empty without one."""
        return SPROUT_PRICES if self.name == "SPROUT" else {}

    def rows(self, path: Path, records: Records) -> Records:
        """Converts records of the file `path` to rows with a log's columns. Query ids, scores, categories, users and propensities in the records are used, too."""
        if not self.converts:
            return records
        if self.explode:
            records = [{**record, **item} for record in records for item in record[self.explode]]
        read = RECORD_READERS.get(self.reader or "", lambda path, record: {})
        added = FILE_READERS[self.reader](path, records) if self.reader in FILE_READERS else [read(path, r) for r in records]
        pairs = list(zip(records if len(records) == len(added) else added, added, strict=True))
        if self.name == "spend logs of LiteLLM":  # If it logged an answer twice, the record "resp_..." counts last.
            pairs.sort(key=lambda pair: str(pair[0].get("request_id")).startswith("resp_"))
        rows, seen = [], set()
        for record, more in pairs:
            key = tuple(str(record[name]) for name in self.unique if record.get(name) is not None)
            other = any(name in record and record[name] not in allowed for name, allowed in self.keep.items())
            if other or (key and key in seen):
                continue
            seen.add(key)
            row = {**{name: cell_at(record, keys) for name, keys in self.columns.items()}, **more}
            if self.columns:  # Columns that the user added are used, too.
                ids = (cell for name, cell in record.items() if match_level("query", name) == 3)
                row["query_id"] = next(ids, row["query_id"])
                for role in ("score", "propensity", "user", "category"):
                    if not any(match_level(role, name) for name in row):
                        row |= {name: cell for name, cell in record.items() if match_level(role, name)}
            rows.append({**row, RECORD: record})
        return rows

    def complete_prices(self, file: str, prices: Prices | None, models: Sequence[str]) -> Prices | None:
        """Returns prices of all `models` from `prices` or else the format's list; without a list, just `prices`. Errors about a price name `file`."""
        if not self.prices:
            return prices
        known = {**self.prices, **(prices or {})}
        if lacking := [model for model in models if model not in known]:
            give = f"prices={{{lacking[0]!r}: (IN, OUT)}}, on the command line {option('--price', lacking[0])}=IN:OUT"
            problem = f"{file} has models without a price, {join_names(lacking, 1000)}"
            raise ValueError(f"{problem}: give it in USD per million ({give})")
        return {model: known[model] for model in models}


def parse_nested(value: Any) -> Any:
    """Parses a text that is a JSON or Python object; returns other values unchanged."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "[", '"'):
        for parse in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return parse(value)
    return value


def nested(value: Any, *keys: Any) -> Any:
    """Returns the value at successive `keys` in nested objects and lists; None if it is absent."""
    with suppress(KeyError, IndexError, TypeError):
        for key in keys:
            value = parse_nested(value)[key]
        return value


def cell_at(record: Mapping[str, Any], path: str) -> Any:
    """Returns a record's value at a path: "a.b|c" is `b` in `a` or else `c`, or None; "start..end" is the seconds between two dates, or NaN."""
    if ".." in path:
        moments = [pd.to_datetime(parse_nested(record.get(name)), errors="coerce", utc=True) for name in path.split("..")]
        return float((moments[1] - moments[0]).total_seconds()) if not any(map(pd.isna, moments)) else np.nan
    for keys in path.split("|"):
        value = parse_nested(record[keys] if keys in record else nested(record, *keys.split(".")))
        if not (value is None or (np.isscalar(value) and is_empty(value)) or value == {}):
            return value
    return None


def _json_beside(path: Path, name: str) -> Any:
    with suppress(OSError, ValueError, RecursionError):
        return json.loads((path.parent / name).read_text("utf-8"))


def _lm_eval(path: Path, records: Records) -> Records:
    task = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.stem)
    others = (_json_beside(path, file.name) for file in sorted(path.parent.glob("*.json")))
    results = next((value for value in others if isinstance(value, dict) and "config" in value), {})
    arguments = nested(results, "config", "model_args")
    if isinstance(arguments, str):
        arguments = {part.partition("=")[0]: part.partition("=")[2] for part in arguments.split(",")}
    named = results.get("model_name") or nested(arguments, "pretrained") or nested(arguments, "model")
    model = named or path.parent.name.replace("__", "/")
    rows = []
    for record in records:
        metric = next((name for name in record.get("metrics") or () if isinstance(record.get(name), (int, float))), "")
        answer = nested(record, "resps", 0, 0)
        row = {"query_id": record["doc_id"], "model": record.get("model", model), "category": record.get("task", task)}
        row |= {"score": record.get(metric), "filter": record.get("filter")}
        row["prompt"] = nested(record, "arguments", "gen_args_0", "arg_0") or json.dumps(record.get("doc"))
        rows.append({**row, "response": answer if isinstance(answer, str) else None})
    return rows


def _helm(path: Path, records: Records) -> Records:
    spec = _json_beside(path, "run_spec.json") or {}
    texts = {str(one.get("id")): nested(one, "input", "text") for one in _json_beside(path, "instances.json") or ()}
    shown = [*(_json_beside(path, "display_requests.json") or ()), *(_json_beside(path, "display_predictions.json") or ())]
    shown = [(str(one.get("instance_id")), one) for one in shown if "perturbation" not in one]
    texts |= {instance: nested(one, "request", "prompt") for instance, one in shown if "request" in one}
    answers = {instance: one["predicted_text"] for instance, one in shown if "predicted_text" in one}
    merged: dict[tuple, dict[str, Any]] = {}
    for record in records:
        if record.get("perturbation") is None:
            stats = {str(nested(stat, "name", "name")): stat.get("mean") for stat in record["stats"]}
            merged.setdefault((record["instance_id"], record.get("train_trial_index", 0)), {}).update(stats)
    counts = re.compile(_FILE["counts of HELM"])
    names = dict.fromkeys(name for stats in merged.values() for name in stats if not counts.search(name))
    metric = next((name for name in (*_FILE["metrics of HELM"].split(), *names) if name in names), "")
    model = nested(spec, "adapter_spec", "model") or path.parent.name.rpartition("model=")[2]
    category = nested(spec, "groups", 0) or path.parent.name.partition(":")[0]
    rows = []
    for (instance, trial), stats in merged.items():
        row = {"model": model, "category": category, "query_id": instance, "run": trial}
        row |= {f"score ({metric})": stats.get(metric), "input_tokens": stats.get("num_prompt_tokens")}
        row["output_tokens"] = stats.get("num_output_tokens", stats.get("num_completion_tokens"))
        row |= {"latency_s": stats.get("inference_runtime"), "prompt": texts.get(str(instance))}
        rows.append({**row, "response": answers.get(str(instance))})
    return rows


def _langsmith(path: Path, records: Records) -> Records:
    feedback: dict[str, Any] = {}
    for record in records:
        stats = parse_nested(record.get("feedback_stats"))
        for statistic in stats.values() if isinstance(stats, dict) else ():
            feedback.setdefault(str(record["trace_id"]), {"score": nested(statistic, "avg")})
    return [feedback.get(str(record["trace_id"]), {}) for record in records]


def _inspect(path: Path, record: Record) -> Record:
    """Reads an answer of the tool Inspect: a sample with its whole log under `log`, or a row of its data frame of samples. Failed logs give {}."""
    if nested(record, "log", "status") not in (None, "success"):
        return {}
    usage, scores = parse_nested(record.get("model_usage")) or {}, record.get("scores") or {}
    model = nested(record, "log", "eval", "model") or record.get("model") or next(iter(usage), None)
    usage = usage.get(model, {})
    named = {name: value for name, value in record.items() if name.startswith("score_")}
    if scores:
        first = scores.get(nested(record, "log", "results", "scores", 0, "name")) or next(iter(scores.values()))
        value = nested(first, "value")
        named = {"score": next(iter(value.values()), None) if isinstance(value, dict) else value}
    row = {"query_id": record["id"], "epoch": record.get("epoch"), "model": model}
    row |= {"category": nested(record, "log", "eval", "task"), **_single_score(named)}
    row |= {f"{name}_tokens": usage.get(f"{name}_tokens") for name in ("input", "output")}
    row |= {"cost_usd": usage.get("total_cost"), "cache_read_input_tokens": usage.get("input_tokens_cache_read")}
    row |= {"latency_s": record.get("total_time"), "prompt": record.get("input")}
    answer = nested(record, "output", "choices", 0, "message", "content")
    return row | ({"response": answer} if answer is not None else {})


def _mmlu_pro(path: Path, record: Record) -> Record:
    """Reads an answer of the benchmark MMLU-Pro. The model is the file's name or, if each subject has a file, the folder's name."""
    model = path.parent.name if path.stem.endswith("_result") else re.sub(r"^model_outputs_|_\d+shots?$", "", path.stem)
    prompt = "\n".join([str(record["question"]), *map(str, record.get("options") or ())])
    return {"model": record.get("model", model), "score": float(record["pred"] == record["answer"]), "prompt": prompt}


def _mix_instruct(path: Path, record: Record) -> Record:
    prompt = " ".join(filter(None, (record.get("instruction"), record.get("input"))))
    return {"category": str(record["id"]).partition("/")[0], "prompt": prompt}


def _langfuse(path: Path, record: Record) -> Record:
    """Returns the numeric scores of a call by name, or as "score" if there is only one. They are in columns, or in a list of {"name", "value"}."""
    own = set(" ".join(_FILE["columns of Langfuse"]).split())
    firsts = {name: nested(value, 0) for name, value in record.items() if name not in own and "." not in name}
    scores = {name: record[name] if value is None else value for name, value in firsts.items()}
    listed = parse_nested(record.get("scores"))
    for one in listed if isinstance(listed, list) else ():
        scores |= {one["name"]: one.get("value")} if isinstance(one, dict) and "name" in one else {}
    scores = {name: score for name, score in scores.items() if match_level("query", name) < 3}
    return _single_score({k: v for k, v in scores.items() if isinstance(v, (int, float)) and not isinstance(v, bool)})


def _single_score(scores: Record) -> Record:
    return dict(zip(["score"], scores.values())) if len(scores) == 1 else scores


def _experiment(path: Path, record: Record) -> Record:
    """Reads a record of a LangSmith experiment, which has one model; the file's name is the model."""
    row = {"model": record.get("model", path.stem)}
    for column, heads in (("prompt", ("inputs.", "input.")), ("response", ("outputs.", "output."))):
        row[column] = " ".join(str(value) for name, value in record.items() if name.startswith(heads))
    row |= _single_score({name: value for name, value in record.items() if name.startswith("feedback.")})
    return row | ({} if record.get("example_id") else {"query_id": row["prompt"]})


# Functions that convert one record, and functions that convert all records of a file and may return fewer or more.
RECORD_READERS = {f.__name__[1:]: f for f in (_inspect, _mmlu_pro, _mix_instruct, _langfuse, _experiment)}
FILE_READERS = {f.__name__[1:]: f for f in (_lm_eval, _helm, _langsmith)}
_FILE = json.loads((Path(__file__).parent / "presets.json").read_text("utf-8"))
PRESETS = tuple(Preset(**preset) for preset in _FILE["presets"])


# "7b", "1.5B", "350m", "8x7b"; also "7b1" for 7.1 and "13bv2". Not "4bit", "8k" or the "11b" of "11bx2".
_SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(\d)?(?=v\d|[^a-z0-9]|$)")


def costs_by_size(models: Iterable[str], default: float = 7.0) -> dict[str, float]:
    """Reads the sizes of models in 1e9 parameters from their names. They serve as costs where a file (EmbedLLM) has none.

    The first size in a name counts: 13 for "vicuna-13b-v1.5", 0.35 for "opt-350m", 7.1 for "bloom-7b1"; a name without a size gets `default`. For a
    mixture of experts, their number times their size counts, as 56 for "Mixtral-8x7B", although experts share parameters, and the true size is 47.

    Source: replaces the cost map of ACQB's EmbedLLM experiment, which is taken from another paper and not printed.
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


def find_preset(names: Iterable[str]) -> Preset:
    """Returns the first known format whose fields are all in `names`, the columns or fields of a file; the default `Preset()` if there is none."""
    present = set(names)

    def fits(pattern: str) -> bool:
        return pattern in present or ("*" in pattern and any(fnmatch.fnmatchcase(name, pattern) for name in present))

    preset = next((preset for preset in PRESETS if all(map(fits, preset.fields))), Preset())
    return replace(preset, given={role: column for role, column in preset.given.items() if fits(column)})


def read_records(path: Path, records: Records) -> tuple[Records, Preset]:
    """Converts the records of a known format to records with known names of fields; leaves others unchanged. Returns the records and their format."""
    preset = find_preset(dict.fromkeys(str(key) for record in records[:50] for key in record))
    if not preset.name or preset.refused:
        return records, preset
    try:
        rows = [row for row in preset.rows(path, records) if row]
    except (TypeError, KeyError, AttributeError, IndexError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} looks like {preset.name}, but its records are others ({why})") from None
    if not rows:
        raise ValueError(f"{path} has the form of {preset.name}, but no answers of models")
    return rows, preset


def routereval_columns(path: Path, value: Mapping[Any, Any]) -> tuple[dict[str, np.ndarray], Preset]:
    """Converts `value`, a pickled RouterEval data set, to columns by name; a model in several of its groups is read once. Also returns its format."""
    if not all(isinstance(value.get(part), dict) and value[part] for part in ("easy", "hard", "split_index", "prompt")):
        raise ValueError(f"{path} is a pickled dict of {join_names(value)}, and not a data frame: save it as csv or parquet")
    groups = [group for part in ("easy", "hard") for kinds in value[part].values() for group in kinds.values()]
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
    """Whether the name of a file shows that it only summarises other files."""
    named = re.fullmatch(_FILE["summaries"], path.stem, re.IGNORECASE)
    return path.suffix == ".json" and named is not None and not path.stem.endswith("_result")
