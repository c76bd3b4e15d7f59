"""Summaries of comparisons, made up: a typical one, and those that a page gets wrong first."""

import math
import random

from jaxroute.comparison.points import JUDGE, RARE, RETRIES

MODELS = (
    "llama-3.2-1b", "qwen2.5-3b", "mistral-7b", "llama-3.1-8b", "gemma-2-9b", "phi-4-14b", "qwen2.5-32b", "mixtral-8x7b", "llama-3.3-70b",
    "qwen2.5-72b", "gpt-4o",
)  # fmt: skip
SCORE, FEATURES = "a score of each answer that is served", "features of each query"
ALL_SCORES = "scores of all models for some queries"


def pair(value, error=None):
    return (value, value * 0.02 if error is None else error)


def model(index, number, scale):
    part = index / max(number - 1, 1)
    quality = 0.42 + 0.38 * part**0.7 + (0.03 if index % 3 == 1 else 0.0)
    return quality, scale * 10 ** (-4 + 2.2 * part)


def point(strategy, kind, setting, quality, cost, **more):
    """Makes a point and fills in plausible values for what is not given."""
    blank = dict.fromkeys(("latency", "late_quality", "late_cost", "without", "saving", "learning"))
    blank |= {"calls": pair(1.0, 0.0), "meets": False, "answer": False, "needs": [], "shares": {}, "further": ""}
    return blank | {"strategy": strategy, "kind": kind, "setting": setting, "quality": quality, "cost": cost} | more


def learning(quality, cost, pieces=10, queries=2000):
    ends = [queries * (i + 1) // pieces for i in range(pieces)]
    return {
        "queries": ends,
        "quality": [quality - 0.12 * math.exp(-i / 1.3) for i in range(pieces)],
        "cost": [cost * (1 + 0.8 * math.exp(-i / 1.5)) for i in range(pieces)],
    }


WAYS = (
    ("MESS+", "online", "V", (SCORE, FEATURES), 0.35),
    ("StageRoute", "online", "budget", (SCORE,), 0.5),
    ("ACQB", "online", "gamma", (SCORE, ALL_SCORES), 0.62),
    ("UCB1", "online", "width", (SCORE,), 0.9),
    ("Thompson sampling", "online", "prior", (SCORE,), 0.85),
    ("kNN regression", "offline", "neighbours", (FEATURES, ALL_SCORES), 0.45),
    ("logistic regression", "offline", "lambda", (FEATURES, ALL_SCORES), 0.42),
    ("cascade", "offline", "threshold", ("a score of each answer, before it is served",), 0.55),
    ("lottery of two models", "offline", "", (), 0.8),
    ("cascade, perfect judge", "offline", "threshold", (JUDGE,), 0.3),
    ("COSMOS", "online", "b", (JUDGE, FEATURES), 0.3),
    ("ACQB, with retries", "online", "rho", (RETRIES,), 0.6),
)


def typical(
    target=0.75, models=MODELS, scale=1.0, unit="USD per query", ways=WAYS, seed=3, latency=True, file="traffic.csv"
):
    """Makes a summary of about ten strategies with five settings each, on eleven models."""
    rng = random.Random(seed)
    listed, points = [], []
    for i, name in enumerate(models):
        quality, cost = model(i, len(models), scale)
        listed.append({"name": name, "quality": pair(quality, 0.02), "cost": pair(cost)})
        delay = pair(0.4 + 0.2 * i) if latency else None
        meets = quality + 0.01 >= target
        points.append(point("one model", "single", name, pair(quality, 0.02), pair(cost), meets=meets, latency=delay))
    points.sort(key=lambda p: p["cost"][0])
    base = next((p for p in points if p["meets"]), None)
    for way, kind, knob, needs, level in ways:
        settings = [""] if not knob else [f"{knob} = {v:g}" for v in (0.001, 0.01, 0.1, 1, 10)]
        found = []
        for i, setting in enumerate(settings):
            part = (i + 0.5) / len(settings)
            cost = scale * 10 ** (-3.6 + 1.7 * part) * level * rng.uniform(0.9, 1.1)
            quality = min(0.52 + 0.3 * part**0.6 + 0.05 * (1 - level) + rng.uniform(-0.01, 0.01), 0.99)
            rare = next((RARE[need] for need in needs if need in RARE), None)
            more = {
                "needs": list(needs),
                "without": rare,
                "meets": quality + 0.004 >= target,
                "further": f"jaxroute sweep {way} --seeds 100",
            }
            if kind == "online":
                more |= {"late_quality": pair(quality + 0.01, 0.01), "late_cost": pair(cost * 0.95)}
                more |= {"learning": learning(quality + 0.01, cost)}
            if way == "cascade":
                more |= {"calls": pair(1.6, 0.03)}
            if latency:
                more |= {"latency": pair(1.1 + 0.3 * part)}
            found.append(point(way, kind, setting, pair(quality, 0.008), pair(cost), **more))
        meeting = [p for p in found if p["meets"]]
        answer = min(meeting, key=lambda p: p["cost"][0]) if meeting else max(found, key=lambda p: p["quality"][0])
        answer["answer"] = True
        if base is not None:
            answer["saving"] = (1 - answer["cost"][0] / base["cost"][0], 0.03)
        points += found
    for i, setting in enumerate(("0.7", "0.8", "0.9")):
        cost = scale * 10 ** (-3.8 + 0.5 * i)
        bound = point("knows every score", "bound", setting, pair(0.72 + 0.1 * i, 0.01), pair(cost))
        points.append(bound | {"meets": 0.72 + 0.1 * i >= target})
    points = rng.sample(points, len(points))
    return {
        "jaxroute": "0.1.0",
        "target": target,
        "sentence": sentence(points, target, unit),
        "besides": ["The best mixture that looks at no query saves 10.2 (0.4) %."],
        "best": best_of(points),
        "answered": any(p["answer"] and p["meets"] and (p["saving"] or (0,))[0] > 0 for p in points),
        "data": {
            "file": file,
            "queries": 365,
            "unit": unit,
            "currency": unit.split()[0],
            "latency": latency,
            "features": "the column `prompt`, as 64 hashed words",
            "read": [
                "Scores: columns that end in `_score`, 11 models.",
                "Costs: columns that end in `_cost`, in USD per query.",
                "4 rows without a score were left out.",
            ],
            "models": sorted(listed, key=lambda m: m["cost"][0]),
        },
        "points": points,
        "sensitivity": sensitivity(points),
        "assumptions": [
            "The queries to come are like those of the table.",
            "A score is what users would say of the answer.",
            "Prices stay as they are.",
        ],
        "seconds": {"reading": 0.4, "offline rules": 3.21, "learning policies": 41.7},
        "orders": 32,
        "command": f"jaxroute compare {file} --target-quality {target:g} --out report/",
        "to_route": ("Saved: Best mixture.", "way = jaxroute.comparison.load_strategy('choice.npz')"),
    }


def best_of(points):
    """Number of the cheapest answer that meets the target, or of the cheapest single model that does."""
    real = [i for i, p in enumerate(points) if p["meets"] and not p["without"] and (p["kind"] == "single" or p["answer"])]
    return min(real, key=lambda i: points[i]["cost"][0], default=None)


def sentence(points, target, unit):
    ways = [p for p in points if p["answer"] and p["meets"] and not p["without"]]
    if not ways:
        return f"No way of routing reaches {100 * target:g} % on these queries."
    best = min(ways, key=lambda p: p["cost"][0])
    less = best["saving"] and f", {100 * best['saving'][0]:.0f} % less than the cheapest single model that does"
    reached = f"{best['strategy']} ({best['setting']}) reaches {100 * target:g} % for {best['cost'][0]:.3g} {unit}"
    return f"{reached}{less or ''}; the difference is 9 standard errors."


def sensitivity(points):
    rows = []
    for target in (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9):
        real = [p for p in points if p["kind"] != "bound" and not p["without"] and p["quality"][0] >= target]
        way = min(real, key=lambda p: p["cost"][0], default=None)
        single = min((p for p in real if p["kind"] == "single"), key=lambda p: p["cost"][0], default=None)
        found = {name: way and way[name] for name in ("strategy", "setting", "quality", "cost")}
        saving = (1 - way["cost"][0] / single["cost"][0], 0.03) if way and single else None
        rows.append({"target": target, **found, "single": single and single["setting"], "saving": saving})
    return rows


def free():
    """Makes a summary in which some calls cost nothing."""
    found = typical()
    for p in found["points"]:
        if p["setting"] in MODELS[:4] or (p["strategy"] == "cascade" and p["setting"].endswith("0.001")):
            p["cost"] = (0.0, 0.0)
    for m in found["data"]["models"][:4]:
        m["cost"] = (0.0, 0.0)
    return found


def all_free():
    found = typical(latency=False)
    for p in found["points"]:
        p["cost"], p["saving"] = (0.0, math.nan), None
    return found


def unknown_errors():
    """Makes a summary with unknown errors (NaN, infinite or null) and one point without quality."""
    found = typical()
    for i, p in enumerate(found["points"]):
        error = (math.nan, None, math.inf)[i % 3]
        p["quality"], p["cost"] = (p["quality"][0], error), (p["cost"][0], error)
    found["points"][0]["quality"] = (math.nan, math.nan)
    return found


def one_point():
    found = typical(models=MODELS[:1], ways=())
    found["points"] = [p for p in found["points"] if p["kind"] == "single"]
    found["best"] = best_of(found["points"])
    found["sensitivity"] = []
    return found


def nothing():
    return one_point() | {"points": [], "best": None}


def hostile():
    """Makes a summary whose names contain markup, are very long, or are written in other scripts."""
    evil = "<script>alert(1)</script>"
    names = (
        evil,
        "a" * 300,
        '"><img src=x onerror=alert(1)>',
        "模型-七十亿-指令",
        "نموذج-كبير",
        "Größe $x^2$ & 'Söhne' 🚀",
        "very long name " * 20,
        "nul\x00 and \ud800 surrogate",
    )
    found = typical(models=names, file=f"{evil} & table.csv")
    for i, p in enumerate(found["points"]):
        if p["kind"] != "single":
            p["setting"] = f"{evil} {p['setting']}" if i % 2 else p["setting"] + " and more" * 30
            p["needs"], p["further"] = [*p["needs"], evil], f"{evil} && echo '</code>'"
    found["sentence"] += evil
    found["assumptions"].append(evil)
    found["data"]["read"].append(evil)
    found["data"]["unit"] = "USD & <b>cents</b> per query"
    return found


# Functions that make a summary, by name.
ALL = {f.__name__: f for f in (typical, free, all_free, unknown_errors, one_point, nothing, hostile)}
ALL |= {
    "unanswered": lambda: typical(target=0.995),  # No strategy reaches the target, not even a bound.
    "no_learners": lambda: typical(ways=tuple(w for w in WAYS if w[1] == "offline"), latency=False),
    "one_single": lambda: typical(target=0.79, latency=False),  # Exactly one single model meets the target.
    "many_models": lambda: typical(models=[f"provider-{i % 9}/model-{i}-instruct" for i in range(112)], latency=False),
    "joules": lambda: typical(scale=1e5, unit="J per request"),
    "tiny": lambda: typical(scale=1e-3),
}
