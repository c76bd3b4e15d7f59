"""What kernels need of a GPU does not grow unseen."""

import json

import pytest
import resources
from kernels import pairs

from jaxroute.problems import default_policies, problems

STORED = {(row["problem"], row["policy"]): row for row in json.loads(resources.RESULTS.read_text())["rows"]}


def test_every_default_policy_has_a_row():
    assert set(STORED) == {(p, name) for p, module in problems().items() for name in default_policies(module)}


def test_goals_that_are_reached_stay_reached():
    """A round of UCB1 takes at most 420 instructions and 64 registers; nothing is spilled where it was not."""
    ucb1 = STORED["stochastic", "UCB1"]
    assert ucb1["round_instructions"] <= 420 and ucb1["registers"] <= 64 and not ucb1["stack_bytes"]
    assert not [row for row in STORED.values() if "reason" in row]


def _has_tools():
    try:
        return bool(resources.tool("nvdisasm") and resources.tool("cuobjdump") and resources.cuda.nvrtc())
    except (resources.Unsupported, resources.importlib.metadata.PackageNotFoundError, StopIteration):
        return False


@pytest.mark.skipif(not _has_tools(), reason="NVIDIA's tools are not here: pip install jaxroute[sass]")
@pytest.mark.parametrize(
    "pair",
    [("stochastic", "UCB1"), ("stochastic", "GaussianThompson"), ("service", "MessPlus"), ("combinatorial", "C2MABV")],
)
def test_a_kernel_is_not_worse_than_what_is_stored(pair, tmp_path):
    ((_, _, env, policy),) = pairs([pair[0]], [pair[1]])
    assert not resources.check(resources.measure(env, policy, tmp_path), STORED[pair])


def test_what_is_worse_is_said():
    row = STORED["stochastic", "UCB1"]
    assert resources.check(row, row) == []
    worse = {**row, "round_instructions": 2 * row["round_instructions"], "stack_bytes": 64}
    assert resources.check(worse, row) == [
        "stack_bytes 0 -> 64",
        f"round_instructions {row['round_instructions']} -> {2 * row['round_instructions']}",
    ]
