"""C2MAB-V on the rows of the user's own table."""

from collections.abc import Mapping

from jaxroute.data.logs.log import read_experiment_log
from jaxroute.experiments.base import Case
from jaxroute.experiments.combinatorial.figures import BASELINES, RECORD, SETTINGS, TASKS, at_horizon
from jaxroute.experiments.combinatorial.theory import experiment
from jaxroute.problems import combinatorial as cb


def _table_env(
    data: str | None = None,
    reward: str = "suc",
    size: int = 3,
    budget_share: float = 0.8,
    costs: Mapping[str, float] | None = None,
) -> cb.CloudEnv:
    """Environment of the rows of a file; the budget is a share of the mean cost of `size` models."""
    table = read_experiment_log(data, costs, features="none").table
    return cb.table_cloud(table, reward=reward, size=size, budget=budget_share * size * float(table.mean_costs().mean()))


def _rows(env: cb.CloudEnv) -> int:
    return len(env.outcomes.outcomes)


def _table_case(task: str) -> Case:
    policies = {"C2MAB-V (c)": SETTINGS["C2MAB-V (c)"], "Direct": cb.Direct(), **BASELINES, "RandomSet": cb.RandomSet()}
    settings = {"data": None, "reward": task}
    return Case(_table_env, policies, 6000, task, settings, {"task": task}, record=(*RECORD, "realised_reward"), rows=_rows)


EXPERIMENTS = (
    experiment(
        "table",
        "The three tasks on the rows of your own table (--data FILE)",
        [_table_case(task) for task in TASKS],
        64,
        at_horizon("reward", "violation"),
        "section 6, with logged outcomes",
        stand_in="",
        notes="each row is used once before any is repeated; models of a row are not independent, see realised_reward",
    ),
)
