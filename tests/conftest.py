"""Fixtures of all tests, and what they leave behind."""

import contextlib
import ctypes
import gc
import itertools
import os
import resource
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # Processes that tests start leave nothing in the user's folders.

import jax
import pytest
from helpers import ROOT, x64

from jaxroute.engine import programs

# What is compiled is kept in this folder of the checkout, for the other workers and the next time; `pytest --cache-clear` does not
# clear it, deleting the folder does. Measured on the tests of projections, rounding and bandits: 100 CPU s without,
# 75 in a first run, 27 in the next.
COMPILED = ROOT / ".pytest_cache" / "compiled"
jax.config.update("jax_enable_compilation_cache", True)
jax.config.update("jax_compilation_cache_dir", str(COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# A worker holds about so many bytes at most; what it cannot get rid of comes on top.
_MOST_BYTES = 1 << 30
_limit = _MOST_BYTES
_ended = itertools.count(1)
# Files and folders of the fast tier: what takes no compiler.
FAST = (
    "analysis/test_metrics.py",
    "core/test_types.py",
    "data/",
    "engine/test_bad_input.py",
    "store/test_statistics.py",
    "test_layers.py",
    "test_names.py",
    "testing/test_planted_faults.py",
    "testing/test_structure.py",
)


# Beginnings of tests that compile for five seconds or more to see what quicker neighbours see: for the slow tier.
LONG = (
    "problems/staged/parts/test_deployment.py::test_table_1_at_its_true_values[3-6-0.360847-expected0-float32",
    "problems/staged/parts/test_deployment.py::test_table_1_at_its_true_values[3-15-0.721693-expected2-float64",
    "problems/staged/parts/test_deployment.py::test_single_precision_is_as_good[8-3-80",
    "problems/staged/test_oracle.py::test_oracle_has_no_regret[6-250-0.8395",
    "problems/staged/test_theory.py::test_parts_equal_a_plain_loop",
    "problems/staged/test_theory.py::test_decomposition_into_deployment_and_routing",
    "problems/staged/test_stageroute.py::test_deployed_sets_of_figure_5[Greedy",
    "problems/queueing/test_env.py::test_queue_regret_is_the_difference_to_the_optimal_policys_run",
    *(
        f"engine/kernels/test_rollout.py::test_the_kernel_plays_what_the_scan_plays[{name}]"
        for name in ("queueing/Random", "combinatorial/C2MABV", "cascade/LinUCB")
    ),
    "engine/test_precision.py::test_runs_differ_by_rounding_only_and_the_referee_agrees[cascade/LinUCB",
    "estimators/mnl/test_likelihood.py::test_rows_have_its_derivatives[1]",
    "experiments/test_claims.py::test_every_case_is_traced_and_every_claim_can_hold_and_fail[queueing/figure-6",
    "solvers/test_selection.py::test_program_against_highs[True-tiny costs-25",
    *(
        f"problems/cascade/test_env.py::test_the_optimal_search_has_no_regret_whatever_the_law[{law}"
        for law in ("LOC", "SPIKE")
    ),
    "problems/combinatorial/test_c2mabv.py::test_optimism_covers_the_regret",
    "problems/combinatorial/test_instances.py::test_copies_of_one_model",
    "problems/cascade/test_reference.py::test_saturated_scores_are_told_apart",
    "problems/staged/test_stageroute.py::test_deployed_sets_of_figure_5[StageRoute",
    "problems/staged/parts/test_deployment.py::test_minimum_share_against_branch_and_bound[8-3-80",
    "problems/staged/parts/test_deployment.py::test_against_the_plain_procedure[8-6-80",
    "problems/staged/parts/test_deployment.py::test_single_precision_is_as_good[6-3-80",
    "store/test_growth.py::test_a_store_that_grows_has_the_bits_of_a_run_at_once[instances of a sampler",
    "store/test_growth.py::test_a_store_of_statistics_grows[values of the environment",
    "store/test_growth.py::test_a_smaller_error_goes_on[runs",
    "solvers/test_rounding.py::test_rounding_follows_the_enumerated_law[z4-swap",
    "experiments/test_experiments.py::test_experiment_runs_at_smoke_size[staged/figure-2",
    "notebooks/test_notebooks.py::test_runs_at_smoke_size[quickstart",
    "testing/test_behaviour.py::test_the_plain_loop_equals_the_compiled_run",
    "store/test_moments.py::test_several_processes_give_the_bits_of_one[2",
    "store/test_moments.py::test_several_processes_stop_where_one_does[moments-2",
    "engine/test_hosts.py::test_the_command_shares_the_work_and_reports_once",
    "engine/batching/test_dependence.py::test_the_grid_equals_the_plain_runs_bit_for_bit[head0",
    "engine/test_simulate.py::test_the_horizon_is_all_that_is_added_to_what_an_environment_declares",
    "problems/staged/test_stageroute.py::test_every_slot_is_used[3-500-StageRoute",
    "problems/staged/test_env.py::test_measures_fit_together[Greedy",
    "problems/staged/test_env.py::test_three_regrets[Oracle",
    "problems/staged/parts/test_deployment.py::test_ties_of_fillers_go_to_the_cheaper_then_to_the_index",
    "problems/staged/parts/test_deployment.py::test_against_the_plain_procedure[8-3-80",
    "problems/staged/parts/test_deployment.py::test_table_1_at_its_true_values[3-6-0.360847-expected0-float64",
    "problems/staged/test_baselines.py::test_cheapest_takes_the_lowest_cost_bounds",
    "problems/queueing/test_reference.py::test_acqb_equals_the_reference_round_by_round[K2, pairs: kappa 0.3",
    "problems/queueing/test_reference.py::test_acqb_on_a_pool[K1, counts",
    "problems/cascade/test_theory.py::test_elliptical_potentials_stay_below_their_bound",
    "problems/cascade/test_theory.py::test_probes_measure_the_estimates",
    "problems/cascade/test_cosmos.py::test_the_search_of_a_period_knows_earlier_periods_only",
    "problems/cascade/test_reference.py::test_windows_of_many_boxes[tanh-logistic-False",
    "problems/combinatorial/test_optimum.py::test_a_set_that_costs_just_the_budget_is_within_it",
    "problems/combinatorial/test_theory.py::test_theorem_bounds",
    *(f"solvers/test_budgeted_fill.py::test_against_highs[{size}-float64" for size in (9, 10, 11, 12, 14)),
    *(f"solvers/test_budgeted_fill.py::test_multiplier[{size}-float64" for size in (9, 12, 13, 15, 30)),
    *(f"solvers/test_budgeted_fill.py::test_certificate[{size}-float64" for size in (10, 15)),
    *(f"solvers/test_selection.py::test_program_against_highs[{exact}-duplicated-25" for exact in (True, False)),
    "engine/test_reference.py::test_stages_and_rounds_that_are_not_counted[1]",
    "engine/test_reference.py::test_stages_and_rounds_that_are_not_counted[12]",
    "engine/test_reference.py::test_stages_and_rounds_that_are_not_counted[40]",
    "engine/test_reference.py::test_settings_samplers_and_functions_of_the_environment",
    "engine/test_room.py::test_whatever_the_environment_is_given_as[sampler]",
    "engine/test_hosts.py::test_a_process_that_is_killed_leaves_its_blocks_to_the_next_run",
    "engine/test_simulate.py::test_a_seed_is_the_same_run_alone_and_in_blocks[staged]",
    "problems/staged/test_reference.py::test_equals_the_reference_round_by_round[routing scope, fees, ragged stages",
    "problems/staged/test_reference.py::test_equals_the_reference_round_by_round[stop, much noise, other bounds",
    "problems/staged/test_instances.py::test_policies_without_constants_of_their_own_can_keep_a_budget_in_dollars",
    "problems/staged/test_instances.py::test_newcomers_that_miss_their_window",
    "problems/staged/test_env.py::test_deployment_fees_enter_only_the_spend",
    "problems/staged/test_env.py::test_measures_fit_together[Oracle",
    "problems/staged/test_baselines.py::test_static_keeps_its_first_set",
    "problems/staged/test_stageroute.py::test_deployed_sets_of_figure_5[Oracle",
    "problems/staged/parts/test_deployment.py::test_start_up_tie[float32",
    "problems/staged/parts/test_deployment.py::test_against_branch_and_bound[6-3-80",
    "problems/staged/parts/test_deployment.py::test_against_the_plain_procedure[6-3-80",
    "problems/combinatorial/test_reference.py::test_equals_the_reference_round_by_round[awc (a)",
    "problems/combinatorial/test_baselines.py::test_figures_of_the_notes[awc-policy5",
    "problems/combinatorial/test_baselines.py::test_figures_of_the_notes[suc-policy3",
    "problems/queueing/test_acqb.py::test_exploration_is_as_often_as_the_sum_of_eta",
    "problems/queueing/sources/test_contexts.py::test_a_context_is_the_first_good_one_of_all_candidates[True",
    "problems/cascade/test_cosmos.py::test_designs_and_potentials_are_those_of_the_requests_seen[unknown",
    "problems/cascade/test_reference.py::test_policies_equal_the_reference_round_by_round[unknown, exact evaluator",
    "problems/cascade/test_reference.py::test_policies_equal_the_reference_round_by_round[radii of the proofs, unknown",
    "problems/cascade/parts/test_radii.py::test_the_radii_of_the_proofs_open_everything",
    *(f"solvers/test_budgeted_fill.py::test_against_highs[{size}-float64" for size in (13, 15, 30)),
    *(f"solvers/test_budgeted_fill.py::test_default_steps_converge[{size}-float64" for size in (5, 9, 30)),
    *(
        f"solvers/test_selection.py::test_program_against_highs[{exact}-{kind}-25"
        for exact in (True, False)
        for kind in ("uniform", "half free")
    ),
    "engine/batching/test_dependence.py::test_more_settings_need_no_further_trace",
    "engine/batching/test_dependence.py::test_numbers_of_the_predictor_and_of_the_environment_sweep_in_one_trace",
    "engine/batching/test_lanes.py::test_training_a_network_in_every_run[adam",
    "engine/test_reference.py::test_a_policy_of_every_problem[c",
    "engine/test_reference.py::test_a_policy_of_every_problem[service",
    "engine/test_simulate.py::test_stageroute_equals_a_loop_over_its_compiled_verbs",
    "experiments/test_experiments.py::test_experiment_runs_at_smoke_size[stochastic/regret",
    "problems/cascade/test_reference.py::test_policies_equal_the_reference_round_by_round[bootstrap, floor",
    "problems/combinatorial/test_parts_relaxation.py::test_every_solver_plays_its_tasks[suc-solver0",
    "problems/combinatorial/test_reference.py::test_equals_the_reference_round_by_round[suc (c)",
    "problems/queueing/parts/test_scheduling.py::test_places_of_long_tables",
    "problems/queueing/test_reference.py::test_acqb_equals_the_reference_round_by_round[K1: kappa 0,",
    "problems/queueing/test_reference.py::test_acqb_equals_the_reference_round_by_round[K2: kappa 0",
    "problems/queueing/test_reference.py::test_acqb_equals_the_reference_round_by_round[K3: kappa 0,",
    "problems/queueing/test_reference.py::test_root_of_the_design_matrix_after_a_run",
    "problems/service/test_reference.py::test_equals_the_reference_round_by_round[Mlp, two steps",
    "problems/service/test_reference.py::test_equals_the_reference_round_by_round[cells",
    "problems/service/test_reference.py::test_equals_the_reference_round_by_round[probit, running mean",
    "problems/service/test_reference.py::test_equals_the_reference_round_by_round[theory steps",
    "problems/staged/test_reference.py::test_single_precision_is_the_same_run[M=6",
    "problems/staged/test_stageroute.py::test_regret_of_numpy_loops[10-500-StageRoute",
    "problems/staged/test_stageroute.py::test_same_seed_alone_or_in_a_batch",
    "problems/staged/parts/test_deployment.py::test_against_the_plain_procedure[8-4",
    "problems/staged/parts/test_deployment.py::test_against_branch_and_bound[6-2",
    "problems/staged/parts/test_deployment.py::test_against_branch_and_bound[8-4",
    "problems/staged/parts/test_deployment.py::test_start_up_tie[float64",
    "testing/test_behaviour.py::test_policies_behave[staged/StageRoute",
    "testing/test_behaviour.py::test_quick_environments_behave[env1",
    "problems/combinatorial/test_reference.py::test_equals_the_reference_round_by_round[suc, lost feedback",
    "problems/combinatorial/test_oracle.py::test_oracle_of_groups[awc-own",
    "problems/combinatorial/test_baselines.py::test_figures_of_the_notes[awc-policy6",
    "problems/combinatorial/test_baselines.py::test_figures_of_the_notes[suc-policy4",
    "problems/cascade/test_reference.py::test_policies_equal_the_reference_round_by_round[window",
    "problems/cascade/test_env.py::test_searches_and_flows_are_what_a_loop_finds[unknown",
    "problems/cascade/parts/test_window.py::test_the_default_floor_has_the_same_estimate[identity",
    "problems/staged/test_reference.py::test_equals_the_reference_round_by_round[Greedy",
    "problems/staged/test_stageroute.py::test_regret_of_numpy_loops[3-500-Greedy",
    "problems/staged/parts/test_deployment.py::test_minimum_share_against_branch_and_bound[8-4-80",
    "problems/staged/parts/test_deployment.py::test_against_branch_and_bound[8-3-80",
    "engine/test_simulate.py::test_a_policy_knows_the_counted_rounds_of_its_run[30-10-0",
    "engine/test_simulate.py::test_a_small_loop_inside_a_policy_compiles[draws",
    "engine/test_room.py::test_whatever_the_environment_is_given_as[instances",
    "estimators/mnl/test_likelihood.py::test_rows_have_its_derivatives[2]",
    "estimators/mnl/test_likelihood.py::test_solvers_end_at_its_minimum[Newton, two passes and polish-False",
    "estimators/mnl/test_newton.py::test_fits_row_by_row_equal_a_plain_optimiser[K1]",
    "solvers/test_projection.py::test_projection_derivatives_against_differences[False",
    "solvers/test_budgeted_fill.py::test_against_highs[15-float32",
    "solvers/test_budgeted_fill.py::test_certificate[10-float32",
    "reference/test_queueing.py::test_forced_exploration[1",
    "reference/test_queueing.py::test_queue_recursion_and_records[1",
    "store/test_runs.py::test_a_run_that_was_killed_continues_to_the_same_bits[between data",
    "engine/test_simulate.py::test_the_record_interval_changes_nothing_at_common_times[staged",
    "problems/queueing/test_env.py::test_the_queue_is_what_came_less_what_left",
    "problems/queueing/test_reference.py::test_acqb_equals_the_reference_round_by_round[K1: kappa 0.3, ridge 5",
    "problems/staged/test_theory.py::test_parts_add_up_to_the_regret",
    "problems/staged/test_stageroute.py::test_regret_of_numpy_loops[3-500-StageRoute",
    "problems/staged/test_reference.py::test_equals_the_reference_round_by_round[M=6",
    "problems/staged/parts/test_deployment.py::test_against_branch_and_bound[8-6-80",
    "problems/staged/parts/test_deployment.py::test_minimum_share_against_branch_and_bound[6-3-80",
    "problems/staged/parts/test_deployment.py::test_table_1_at_its_true_values[3-7-0.52381-expected1-float64",
    "estimators/mnl/test_newton.py::test_fits_row_by_row_equal_a_plain_optimiser[K1, ridge 0.1",
    "estimators/mnl/test_newton.py::test_fits_row_by_row_equal_a_plain_optimiser[K2, pairs",
    *(
        f"store/test_growth.py::test_a_store_that_grows_has_the_bits_of_a_run_at_once[{way}]"
        for way in (
            "everything",
            "values of the environment",
            "rounds, not a multiple of what is recorded",
            "rounds and seeds",
        )
    ),
    "store/test_growth.py::test_a_smaller_error_goes_on[moments",
    "store/test_objects.py::test_the_description_is_kept_twice[runs",
    "store/test_objects.py::test_a_damaged_object_is_noticed_and_played_again[changed-runs",
    "store/test_objects.py::test_the_marker_of_a_dead_process_is_taken_over[{",
    "store/test_objects.py::test_what_cannot_be_written_ends_the_run_and_loses_nothing[runs-_done",
    "reference/test_queueing.py::test_forced_exploration[2",
    "reference/test_queueing.py::test_queue_recursion_and_records[2",
    "problems/staged/test_stageroute.py::test_order_of_the_figures",
    "problems/staged/parts/test_deployment.py::test_random_ties",
    "problems/staged/parts/test_deployment.py::test_more_sets_than_one_block",
    "solvers/test_selection.py::test_program_against_highs[False-tiny costs-25",
    "solvers/test_selection.py::test_program_against_highs[False-uniform-9",
    "estimators/test_gaussian.py::test_three_samplers_have_the_same_covariance",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(LONG):
            item.add_marker("slow")
        place = item.path.relative_to(ROOT / "tests").as_posix()
        if place.startswith(FAST) and not item.get_closest_marker("slow"):
            item.add_marker("fast")


@pytest.fixture(autouse=True)
def little_memory():
    """Drops what has been compiled where a process holds more than it should: a laptop runs two workers beside other things.

    Also before it runs out of memory mappings, which ends it: Linux allows 65,530.
    """
    yield
    global _limit
    status = Path("/proc/self/statm")
    if not status.exists() or next(_ended) % 5:
        return
    mappings = len(Path("/proc/self/maps").read_bytes().splitlines())
    if _resident(status) > _limit or mappings > 30_000:
        programs.PROGRAMS.clear()
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        _limit = max(_MOST_BYTES, _resident(status) + _MOST_BYTES // 4)


def _resident(status):
    """Bytes of this process in memory."""
    return int(status.read_text().split()[1]) * resource.getpagesize()


@pytest.fixture
def double_precision():
    """Runs the test in double precision."""
    with x64():
        yield


@pytest.fixture
def count_blocks(monkeypatch):
    """The first seeds of the blocks that were played."""
    played = []
    run = programs.Block.play

    def counted(self, tile, seeds, *begun):
        played.append(int(seeds[0]))
        return run(self, tile, seeds, *begun)

    monkeypatch.setattr(programs.Block, "play", counted)
    return played


@pytest.fixture
def fresh_programs():
    """What the test compiles stays its own."""
    with programs.PROGRAMS.fresh():
        yield
