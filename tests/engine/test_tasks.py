"""Tasks are played one after the other, each while the one before is written."""

import contextlib
import threading

import jax
import numpy as np
import pytest
from helpers import x64

from jaxroute.engine.layout import Layout
from jaxroute.engine.running import simulate_ahead
from jaxroute.engine.schedule import Batch, Call


class _Numbered(Batch):
    """A batch whose checkpoint is a number."""

    def checkpoint(self, call):
        return call.since + 10


STEPS = [(_Numbered(None, {}, None), Call("policy", {}, np.zeros(1), number)) for number in range(4)]


def test_the_next_task_is_played_while_one_is_written():
    """The writer of each waits until the next one has begun, which it would for ever if nobody played ahead."""
    begun = [threading.Event() for _ in STEPS]

    def play(call, first):
        begun[call.since].set()
        return {"number": call.since, "first": first}, None

    seen = []
    with contextlib.closing(simulate_ahead([None, *STEPS, None], play)) as played:
        for _, call, curves, kept in played:
            number = call.since
            if number + 1 < len(STEPS):
                assert begun[number + 1].wait(60)
            seen.append((number, curves["number"], curves["first"], kept))
    assert seen == [(n, n, n + 10, None) for n in range(4)]


def test_what_goes_wrong_comes_after_what_went_well():
    def play(call, first):
        if call.since == 2:
            raise ValueError("no")
        return {}, None

    seen = []
    with pytest.raises(ValueError, match="no"), contextlib.closing(simulate_ahead(STEPS, play)) as played:
        for _, call, *_ in played:
            seen.append(call.since)
    assert seen == [0, 1]


def test_who_stops_listening_stops_the_playing():
    """At most the task that has begun is played to its end."""
    number = []
    with contextlib.closing(simulate_ahead(STEPS, lambda call, _: (number.append(call.since), None))) as played:
        next(played)
    assert number in ([0], [0, 1])


def test_numbers_have_the_width_of_the_caller():
    def play(call, first):
        return {"wide": jax.config.read("jax_enable_x64")}, None

    for wide in (False, True):
        with x64(wide):
            assert [curves["wide"] for _, _, curves, _ in simulate_ahead(STEPS[:1], play)] == [wide]


class _Gpu:
    platform = "gpu"


@pytest.mark.parametrize("seeds", [1, 7, 16, 1000, 1025, 10_000, 100_000, 131_072])
def test_seeds_are_one_call_on_a_gpu(seeds):
    """With at most a quarter more runs than were asked for, and whole groups of sixteen."""
    chosen = Layout.choose({}, (), seeds, None, 1 << 30, [_Gpu()])
    assert chosen.block >= seeds and chosen.block % 16 == 0
    assert chosen.block <= max(16, 1.25 * seeds + 16)


@pytest.mark.parametrize(
    "seeds, most, waves, block, number",
    [
        (1_000_000, 1 << 30, [135_168], 1 << 20, 1),
        (3_000_000, 1 << 30, [135_168], 1 << 20, 3),
        (131_072, 1 << 30, [118_272], 131_072, 1),  # Two waves, whatever is done.
        (1_000_000, 300_000, [], 262_144, 4),
        # Of 250,000 runs a call 1.85 waves: eight in all. Of 300,000 runs 2.2: twelve.
        (1_000_000, 300_000, [135_168], 262_144, 4),
        # Two blocks of 110,000 runs take two waves each of the first policy, four of the second; three of 81,920 one and three.
        (200_000, 110_000, [100_096, 33_792], 81_920, 3),
    ],
)
def test_blocks_on_a_gpu_take_few_waves(seeds, most, waves, block, number):
    chosen = Layout.choose({}, (), seeds, None, most, [_Gpu()], waves=waves)
    assert (chosen.block, -(-seeds // chosen.block)) == (block, number)


@pytest.mark.parametrize("most", [1, 20, 33_361, 61_000, 250_017, 1_000_001, 1 << 30])
def test_blocks_on_a_gpu_can_be_halved(most):
    """Often, or down to a few hundred runs: how much memory a call takes is a guess."""
    block = Layout.choose({}, (), 3_000_000, None, most, [_Gpu()], waves=[100_096]).block
    halvings = next(n for n in range(30) if block % (16 << (n + 1)))
    assert block <= max(16, most + 16) and (halvings >= 6 or block >> halvings <= 256)


def test_what_a_gpu_has_simulated_is_told_while_it_does():
    """Also that it is to end, before what is under way is waited for."""
    ended, told, begun = threading.Event(), [], threading.Event()

    def simulate(call, first):
        begun.set()
        assert ended.wait(60)
        return {}, None

    def waiting(call):
        told.append(call.since)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(simulate_ahead(STEPS, simulate, waiting, lambda stopped: ended.set() if stopped else told.append("again")))
    assert told == [0, "again"] and begun.is_set()
