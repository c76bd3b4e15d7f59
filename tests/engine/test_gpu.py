"""What must hold on an accelerator; run with `pytest -m gpu`."""

import jax
import numpy as np
import pytest

import jaxroute as jr
from jaxroute.problems import cascade, queueing, service, staged, stochastic
from jaxroute.problems.cascade.parts.indices import StreamingNewton

pytestmark = pytest.mark.gpu

CASES = {
    "stochastic": (lambda: stochastic.bernoulli(np.linspace(0.9, 0.1, 10).tolist()), stochastic.GaussianThompson(scale=0.5), "regret"),
    "staged": (lambda: staged.arena_market(max_deployed=6, stage_length=250, horizon=2000), staged.StageRoute(), "regret"),
    "service": (lambda: service.benchmark_service("winogrande", signal=0.15), service.MessPlus(), "cost"),
    "queueing": (lambda: queueing.RandomQueues(horizon=2000, limit=512), queueing.ACQB(), "routing_regret"),
    "cascade": (lambda: cascade.uniform_cascade(), cascade.COSMOS(), "queries"),
    "cascade, learned scores": (lambda: cascade.uniform_cascade(evaluator=5), cascade.COSMOS(fit=StreamingNewton()), "queries"),
}  # fmt: skip


def played(name, devices, **options):
    make, policy, metric = CASES[name]
    execution = jr.Execution(devices=devices, block=options.pop("block", None))
    return jr.simulate(make(), policy, progress=False, execution=execution, **options)[metric]


@pytest.fixture
def devices():
    try:
        return jax.devices("gpu")
    except RuntimeError:
        pytest.skip("no GPU here")


@pytest.mark.parametrize("name", CASES)
def test_gpu_and_cpu_agree_within_the_error_of_their_difference(name, devices):
    options = {"horizon": 2000, "seeds": 2048}
    gpu = played(name, devices, **options).isel(time=-1, policy=0)
    with jax.default_device(jax.devices("cpu")[0]):
        cpu = played(name, jax.devices("cpu")[:1], **options).isel(time=-1, policy=0)
    # The draws are the same bits, so most runs are equal but for the rounding of sums; rounding may part a few.
    alike = np.isclose(gpu, cpu, rtol=1e-4, atol=1e-4 * np.abs(cpu.values).max())
    assert np.mean(alike) > 0.5
    difference = np.where(alike, 0.0, (gpu - cpu).values)
    assert abs(difference.mean()) < 5 * difference.std(ddof=1) / np.sqrt(difference.size) + 1e-6


@pytest.mark.parametrize("name", CASES)
def test_a_seed_is_the_same_run_in_any_block_on_a_gpu(name, devices):
    whole = played(name, devices, horizon=1000, seeds=256)
    alone, blocks = played(name, devices, horizon=1000, seeds=[7]), played(name, devices, horizon=1000, seeds=256, block=32)
    np.testing.assert_array_equal(alone.values, whole.sel(seed=[7]).values)
    np.testing.assert_array_equal(blocks.values, whole.values)
