"""What kernels need of a GPU does not grow unseen."""

import json

import pytest
import resources
from helpers import assert_measured
from kernels import pairs

STORED = {(row["problem"], row["policy"]): row for row in json.loads(resources.RESULTS.read_text())["rows"]}


def _has_tools():
    try:
        return bool(resources.tool("nvdisasm") and resources.tool("cuobjdump") and resources.cuda.nvrtc())
    except (resources.Unsupported, resources.importlib.metadata.PackageNotFoundError, StopIteration):
        return False


needs_tools = pytest.mark.skipif(not _has_tools(), reason="NVIDIA's tools are not here: pip install jaxroute[sass]")


def test_default_policies_have_a_row():
    assert_measured(set(STORED), "pip install jaxroute[sass], then python scripts/resources.py --policies NAME")


def test_goals_that_are_reached_stay_reached():
    """A round of UCB1 takes at most 580 instructions and 92 registers; nothing of it is spilled.

    Of these 40 are for correct quotients; 85 and 26 registers for sums that stay correct and an order of ties.
    """
    ucb1 = STORED["stochastic", "UCB1"]
    assert ucb1["round_instructions"] <= 580 and ucb1["registers"] <= 92 and not ucb1["stack_bytes"]
    assert not [row for row in STORED.values() if "reason" in row]


@needs_tools
@pytest.mark.parametrize("pair", [row for row in STORED if row[1] in ("UCB1", "GaussianThompson", "MessPlus", "C2MABV")])
def test_a_kernel_is_not_worse_than_what_is_stored(pair, tmp_path):
    ((_, _, env, policy),) = pairs([pair[0]], [pair[1]])
    assert not resources.check(resources.measure(resources.source(env, policy), tmp_path), STORED[pair])


def test_what_is_worse_is_said():
    row = STORED["stochastic", "UCB1"]
    assert resources.check(row, row) == []
    worse = {**row, "round_instructions": 2 * row["round_instructions"], "stack_bytes": 64}
    instructions = f"round_instructions {row['round_instructions']} -> {2 * row['round_instructions']}"
    assert resources.check(worse, row) == ["stack_bytes 0 -> 64", instructions]


ROUND = """
  IADD3 R1, R1, 0x1, RZ
@!P0 LOP3.LUT R2, R2, R3, RZ, 0x3c, !PT
  FSETP.GT.AND P0, PT, R4, R5, PT
  FFMA R6, R6, R7, R8
  IMAD.MOV.U32 R9, RZ, RZ, R10
  MUFU.RCP R11, R12
@P0 LDL R13, [R1+0x10]
  STL.64 [R1], R14
  UIADD3 UR4, UR4, 0x1, URZ
  BRA `(.L_x_1)
"""


def test_cycles_by_hand():
    """Ten instructions, three of them of the pipe that takes two cycles, and two accesses to the stack."""
    instructions = [line.strip() for line in ROUND.strip().splitlines()]
    row = resources.of_round(instructions, registers=130, stack=0)
    # A warp takes 136 x 32 registers, and each of four schedulers has 16,384: three warps.
    assert (row["round_instructions"], row["half_rate"], row["stack_accesses"], row["warps"]) == (10, 3, 2, 12)
    assert row["round_cycles"] == 10 and row["ceiling"] == resources.PEAK / 10
    # Three warps issue in three cycles of four.
    assert row["expected"] == pytest.approx(resources.PEAK / (10 / 0.75))
    integers = resources.of_round([*instructions, *["SHF.L.W.U32.HI R1, R1, 0xd, R1"] * 10], registers=64, stack=0)
    assert (integers["round_instructions"], integers["half_rate"], integers["round_cycles"]) == (20, 13, 26)
    # 32 warps of 400 bytes a thread do not fit into 192 KiB: two accesses of 16 cycles each.
    assert resources.of_round(instructions, registers=64, stack=400)["expected"] == resources.PEAK / 32
    assert resources.of_round(instructions, registers=64, stack=100)["expected"] == resources.PEAK / 10
