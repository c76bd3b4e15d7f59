"""What columns are called: the roles of columns in a log, found by name, and the columns of each model in a table with a row per query."""

import difflib
import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxroute.core import checks

# Names of columns, the best first, as `plain` writes them.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "query": (
        *(
            "query_id",
            "prompt_id",
            "sample_id",
            "question_id",
            "request_id",
            "docid",
            "exampleid",
            "conversationid",
            "traceid",
        ),
        *("instanceid", "itemid", "taskid", "globalindex", "qid", "uid", "uuid", "id", "key", "index", "query", "prompt"),
        *("question", "inputtext", "text", "input"),
    ),
    "model": (
        *("model_name", "model", "llm", "llmname", "modelid", "engine", "deployment", "deploymentname", "llmselected"),
        *("modelversion", "endpoint", "router", "agent"),
    ),
    "score": (
        *("score", "quality", "correct", "is_correct", "accuracy", "acc", "performance", "perf", "reward", "judgescore"),
        *(
            "judgement",
            "judgment",
            "judge",
            "judgerating",
            "rating",
            "grade",
            "stars",
            "pass",
            "passed",
            "success",
            "successful",
        ),
        *("label", "qualityscore", "evaluationscore", "evaluationresultscore", "feedback", "outcome", "result", "f1", "em"),
    ),
    "cost": (
        *("cost", "totalcost", "costusd", "totalcostusd", "costeur", "usd", "eur", "price", "spend", "spending", "amount"),
        *("costperquery", "usdperquery", "usagecost", "charge", "fee", "evaluationresultinferencecost"),
        *("inferencecost", "responsecost", "energy", "energyconsumption", "energyj"),
    ),
    "tokens_in": (
        *("prompttokens", "inputtokens", "tokensin", "intokens", "numinputtokens", "numprompttokens", "tokensprompt"),
        *("tokensinput", "inputtokencount", "prompttokencount", "usageprompttokens", "usageinputtokens"),
        *("tokenusageinputtokens", "tokenusageprompttokens", "ntokensin"),
    ),
    "tokens_out": (
        *("completiontokens", "outputtokens", "tokensout", "outtokens", "numoutputtokens", "numcompletiontokens"),
        *("responsetokens", "generatedtokens", "tokenscompletion", "tokensoutput", "outputtokencount"),
        *("completiontokencount", "usagecompletiontokens", "usageoutputtokens", "tokenusageoutputtokens"),
        *("tokenusagecompletiontokens", "ntokensout"),
    ),
    "price_in": (
        *(
            "pricein",
            "inputprice",
            "priceinput",
            "promptprice",
            "usdpermtokin",
            "usdperm in",
            "usdper1min",
            "inputcostpermtok",
        ),
        *("usdpermtokensin", "inputpricepermtok", "usdper1ktokin", "priceinper1k", "inputpriceper1k"),
    ),
    "price_out": (
        *("priceout", "outputprice", "priceoutput", "completionprice", "usdpermtokout", "usdper1mout", "outputcostpermtok"),
        *("usdpermtokensout", "outputpricepermtok", "usdper1ktokout", "priceoutper1k", "outputpriceper1k"),
    ),
    "latency": (
        *("latency", "latencyms", "latencys", "latencyseconds", "latencysec", "duration", "durationms", "durations"),
        *("durationseconds", "responsetime", "responsetimems", "responsetimes", "responsetimeseconds", "seconds", "elapsed"),
        *("elapsedms", "elapsedseconds", "inferencetime", "inferencetimems", "runtime", "runtimems", "milliseconds", "ms"),
        *("totaltime", "latencymilliseconds", "timetaken", "timems"),
    ),
    "category": (
        *("category", "task", "evalname", "dataset", "datasetname", "benchmark", "benchmarkname", "topic", "taskname"),
        *("tasktype", "subject", "domain", "subset", "group", "categoryname", "intent", "family"),
    ),
    "text": (
        *("prompt", "prompttext", "question", "questiontext", "text", "input", "inputtext", "query", "querytext"),
        *("userprompt", "usermessage", "message", "instruction", "request", "originquery"),
    ),
    "response": ("response", "answer", "completion", "output", "modelresponse", "prediction", "generation"),
    "date": (
        *("date", "timestamp", "createdat", "datetime", "created", "time", "day", "requesttime", "starttime", "startedat"),
        *("createdtime", "ts", "eventtime"),
    ),
    "embedding": ("embedding", "embeddings", "vector", "feature", "features", "feat", "promptembedding", "queryembedding"),
    "prompt_chars": ("promptchars", "inputchars", "charsin", "promptlength"),
    "response_chars": ("responsechars", "respchars", "outputchars", "charsout", "responselength"),
    "confidence": ("confidence", "uncertainty", "selfconfidence", "entropy"),
}
# Roles that a person may name a column for.
ROLES = tuple(SYNONYMS)
_ALSO = {
    "prompt": "text",
    "question": "text",
    "group": "category",
    "quality": "score",
    "features": "embedding",
    "id": "query",
}

# How the columns of a model are called in a table with a row per query; the best first.
PATTERNS: dict[str, tuple[str, ...]] = {
    "cost": (
        *("{}|total_cost", "{}_total_cost", "total_cost_{}", "{}_cost_usd", "cost_usd_{}", "{}_cost", "cost_{}", "{}.cost"),
        *("cost.{}", "costs.{}", "{}_usd", "usd_{}", "{}_price", "energy_consumption_{}", "{} cost", "cost {}"),
    ),
    "score": (
        *("perf_{}", "{}_perf", "score_{}", "{}_score", "scores.{}", "{}.score", "{}|score", "correct_{}", "{}_correct"),
        *("quality_{}", "{}_quality", "label_{}", "acc_norm_{}", "acc_{}", "{}_acc", "accuracy_{}", "{}_accuracy"),
        *("rating_{}", "{}_rating", "judge_{}", "{}_judge", "reward_{}", "{}_reward", "{}_pass", "pass_{}", "{}_success"),
        *("success_{}", "{} score", "score {}", "{} quality"),
    ),
    "tokens_in": (
        *("{}_prompt_tokens", "{}_input_tokens", "{}_in_tokens", "{}_tokens_in", "prompt_tokens_{}", "input_tokens_{}"),
        *("tokens_in_{}", "in_tokens_{}", "{}.num_input_tokens", "{}.input_tokens", "{}.prompt_tokens"),
    ),
    "tokens_out": (
        *("{}_completion_tokens", "{}_output_tokens", "{}_out_tokens", "{}_tokens_out", "completion_tokens_{}"),
        *("output_tokens_{}", "tokens_out_{}", "out_tokens_{}", "{}.num_output_tokens", "{}.output_tokens"),
        *("{}.completion_tokens", "{}_tokens", "tokens_{}"),
    ),
    "latency": (
        *("latency_ms_{}", "{}_latency_ms", "latency_s_{}", "{}_latency_s", "latency_{}", "{}_latency", "{}.latency"),
        *("{}|latency", "inference_time_{}", "{}_inference_time", "{}_seconds", "seconds_{}", "{}_duration", "duration_{}"),
        *("{}_response_time", "response_time_{}", "{} latency", "{}_ms"),
    ),
    "response_chars": ("{}_chars", "chars_{}", "{}_response_chars", "response_chars_{}"),
}


def plain(name: str) -> str:
    """A name without case, spaces, underscores, hyphens and units in brackets' marks: "Query-ID" is "query_id"."""
    return re.sub(r"[^0-9a-z]+", "", str(name).lower())


_PLAIN = {role: tuple(plain(name) for name in names) for role, names in SYNONYMS.items()}
KNOWN = frozenset(name for names in _PLAIN.values() for name in names)


def candidates(role: str, names: Iterable[str]) -> list[str]:
    """The columns whose names say that they have a role, the best first."""
    by_plain: dict[str, list[str]] = {}
    for name in names:
        by_plain.setdefault(plain(name), []).append(name)
    return [name for known in dict.fromkeys(_PLAIN[role]) for name in by_plain.get(known, ())]


def given_roles(columns: Mapping[str, str], names: Sequence[str], where: str) -> dict[str, str]:
    """Columns by role as a person has named them; a name with `*` stands for one column per model.

    Raises:
      ValueError: an unknown role or column, with close names; or the same column twice.
    """
    if not isinstance(columns, Mapping):
        raise ValueError(
            f"columns must map roles to names of columns, as {{'score': 'my_column'}}, got {checks.show(columns)}"
        )
    found: dict[str, str] = {}
    for role, column in columns.items():
        role = _ALSO.get(str(role), str(role))
        role = checks.one_of("a role in columns", role, ROLES)
        column = str(column)
        if "*" in column:
            if not fnmatch.filter(names, column.replace("[", "[[]")):
                raise ValueError(
                    f"columns[{role!r}] is {column!r}, which no column of {where} fits; it has {', '.join(map(str, names))}"
                )
        elif column not in names:
            close = difflib.get_close_matches(column.lower(), [name.lower() for name in names], n=1)
            meant = next((name for name in names if close and name.lower() == close[0]), None)
            hint = f"; did you mean {meant!r}?" if meant else ""
            shown = ", ".join(map(repr, names[:40])) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
            raise ValueError(f"columns[{role!r}] is {column!r}, which {where} lacks{hint} It has {shown}".replace("?.", "?"))
        found[role] = column
    return found


@dataclass
class ModelColumns:
    """The columns of each model in a table with a row per query.

    models: their names, in the order of the columns of scores.
    columns: by role, the column of each model that has one.
    shapes: by role, how these columns are called.
    """

    models: list[str]
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    shapes: dict[str, str] = field(default_factory=dict)


def model_columns(names: Sequence[str], roles: Mapping[str, str], wanted: Sequence[str] = ()) -> ModelColumns | None:
    """The columns of models in a table with a row per query.

    Args:
      names: of all columns.
      roles: columns that a person has named, of which those with `*` are for models.
      wanted: names of models that were given, whose columns of scores may be called like them.

    Returns:
      None if fewer than two models have a column of scores.
    """
    free = [name for name in names if name and plain(name) not in KNOWN and name not in roles.values()]
    found: dict[str, dict[str, dict[str, str]]] = {}
    for role, patterns in PATTERNS.items():
        own = roles.get(role, "")
        shapes = (own.replace("*", "{}"),) if "*" in own else patterns
        found[role] = {shape: _matched(shape, names if "*" in own else free) for shape in shapes}
    bare = {name: name for name in free}
    options: list[tuple[str, dict[str, str]]] = [(shape, of) for shape, of in found["score"].items() if of]
    options.sort(key=lambda option: -len(option[1]))
    if "*" not in roles.get("score", ""):
        if any(name.startswith("label_") for name in names) and any(
            name.startswith("energy_consumption_") for name in names
        ):
            options = [("label_{}", found["score"]["label_{}"])]  # MESS+: accuracies there are something else.
        priced = [{m: bare[m] for m in of if m in bare} for of in found["cost"].values()]
        most = max(priced, key=len, default={})
        called = {model: bare[model] for model in wanted if model in bare}
        options += [("{}", most), ("{}", called)]
        options.sort(key=lambda option: -len(option[1]))  # Stable: patterns come before bare names.
    if not options or len(options[0][1]) < 1:
        return None
    shape, scores = options[0]
    result = ModelColumns(
        [m for m, _ in sorted(scores.items(), key=lambda item: names.index(item[1]))], {"score": scores}, {"score": shape}
    )
    if shape == "{}":  # In the order of the columns of scores, or as they were given.
        result.models = [model for model in wanted if model in scores] if set(wanted) == set(scores) else result.models
    for role in PATTERNS:
        if role != "score":
            best = max(found[role].items(), key=lambda item: sum(m in scores for m in item[1]), default=("", {}))
            of = {model: column for model, column in best[1].items() if model in scores and column not in scores.values()}
            if of:
                result.columns[role], result.shapes[role] = of, best[0]
    return result


# What stands where a model would, in columns that are statistics.
_NO_MODELS = frozenset(
    (
        "train",
        "test",
        "val",
        "valid",
        "dev",
        "mean",
        "avg",
        "average",
        "std",
        "stderr",
        "min",
        "max",
        "median",
        "total",
        "best",
        "oracle",
    )
) | frozenset(("rate1", "rate2", "rate", "n", "num", "is", "pct", "overall", "final", "raw", "norm"))


def _matched(shape: str, names: Sequence[str]) -> dict[str, str]:
    """Columns by model of all names that fit."""
    head, _, tail = shape.partition("{}")
    low_head, low_tail, size = head.lower(), tail.lower(), len(head) + len(tail)
    return {
        name[len(head) : len(name) - len(tail)]: name
        for name in names
        if len(name) > size
        and plain(name[len(head) : len(name) - len(tail)]) not in _NO_MODELS
        and name.lower().startswith(low_head)
        and name.lower().endswith(low_tail)
    }


_EMBEDDED = re.compile(r"^(emb|embedding|feature|feat|vec|vector|dim)[\s_\-.]*(\d+)$", re.IGNORECASE)


def embedding_columns(names: Sequence[str]) -> list[str]:
    """Columns emb_0, emb_1, ... in the order of their numbers: the largest family of at least two."""
    families: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _EMBEDDED.match(name)
        if match:
            families.setdefault(match[1].lower(), []).append((int(match[2]), name))
    best = max(families.values(), key=len, default=[])
    return [name for _, name in sorted(best)] if len(best) > 1 else []
