"""The course of learning in words."""

from jaxroute.comparison.page import numbers, strategies
from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.summary import PointSummary, Summary

_NEAR = 0.01  # Difference of quality that counts as none: one percentage point.


def learners(summary: Summary) -> list[PointSummary]:
    """Chosen settings of online policies whose course of learning is known, in the order of the table."""
    chosen = [p for points in strategies.groups(summary).values() for p in points]
    return [p for p in chosen if p["kind"] == "online" and p["learning"] is not None and p["learning"]["queries"]]


def words(point: PointSummary, summary: Summary) -> str:
    """The time that a policy takes to learn and the cost of learning, against its last part of the stream."""
    learning, name = point["learning"] or {"queries": [], "quality": [], "cost": []}, point["strategy"]
    parts = [p for p in zip(learning["queries"], learning["quality"], learning["cost"], strict=True) if known(p[1])]
    name += "" if strategies.deployable(point) else f" (dashed: {strategies.obstacle(point)})"
    if len(parts) < 2:
        return f"{name}: too few queries."
    last, end = parts[-1][1] or 0.0, parts[-1][2]
    final = f"is within .01 of its final quality ({numbers.percent((last, None))})"
    away = [i for i, (_, quality, _) in enumerate(parts) if abs((quality or 0.0) - last) > _NEAR + 1e-12]
    if not away:
        return f"{name} {final} from the first part on."
    if away[-1] == len(parts) - 2:
        return f"{name} is still changing after {numbers.count(parts[-1][0], 'query', 'queries')}."
    settled = parts[away[-1]][0]
    text = f"After {numbers.count(settled, 'query', 'queries')} {name} {final}"
    starts = [0, *(n for n, _, _ in parts)]
    before = [(n - starts[i], q or 0.0, c) for i, (n, q, c) in enumerate(parts[: away[-1] + 1])]
    lost = sum(size * (last - quality) for size, quality, _ in before)
    if lost > 0:
        text += f". Until then the mean quality is {numbers.plain(lost / settled * 100)} points lower than at the end"
        if known(end) and all(known(c) for _, _, c in before):
            extra = sum(size * ((c or 0.0) - end) for size, _, c in before)
            currency, more = summary["data"]["unit"].split(" per ")[0], "more" if extra > 0 else "less"
            text += f", and the queries cost {numbers.plain(abs(extra), currency)} {more} in total"
    return text + "."
