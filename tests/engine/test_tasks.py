"""Tasks are played one after the other, each while the one before is written."""

import contextlib
import threading

import jax
import pytest
from helpers import x64

from jaxroute.engine.layout import Layout
from jaxroute.engine.tasks import played_ahead

TASKS = [("policy", {}, number) for number in range(4)]


def test_the_next_task_is_played_while_one_is_written():
    """The writer of each waits until the next one has begun, which it would for ever if nobody played ahead."""
    begun = [threading.Event() for _ in TASKS]

    def play(task, first):
        begun[task[2]].set()
        return {"number": task[2], "first": first}, None

    seen = []
    with contextlib.closing(played_ahead(TASKS, play, lambda *task: task[2] + 10)) as played:
        for task, curves, kept in played:
            if task[2] + 1 < len(TASKS):
                assert begun[task[2] + 1].wait(60)
            seen.append((task[2], curves["number"], curves["first"], kept))
    assert seen == [(n, n, n + 10, None) for n in range(4)]


def test_what_goes_wrong_comes_after_what_went_well():
    def play(task, first):
        if task[2] == 2:
            raise ValueError("no")
        return {}, None

    seen = []
    with pytest.raises(ValueError, match="no"), contextlib.closing(played_ahead(TASKS, play, lambda *_: None)) as played:
        for task, *_ in played:
            seen.append(task[2])
    assert seen == [0, 1]


def test_who_stops_listening_stops_the_playing():
    """At most the task that has begun is played to its end."""
    number = []
    with contextlib.closing(played_ahead(TASKS, lambda task, _: (number.append(task[2]), None), lambda *_: None)) as played:
        next(played)
    assert number in ([0], [0, 1])


def test_numbers_have_the_width_of_the_caller():
    def play(task, first):
        return {"wide": jax.config.read("jax_enable_x64")}, None

    for wide in (False, True):
        with x64(wide):
            assert [curves["wide"] for _, curves, _ in played_ahead(TASKS[:1], play, lambda *_: None)] == [wide]


class _Gpu:
    platform = "gpu"


@pytest.mark.parametrize("seeds", [1, 7, 16, 1000, 1025, 10_000, 100_000, 131_072])
def test_seeds_are_one_call_on_a_gpu(seeds):
    """With at most a quarter more runs than were asked for, and whole groups of sixteen."""
    chosen = Layout.choose({}, (), seeds, None, 1 << 30, [_Gpu()])
    assert chosen.blocks(seeds) == 1 and chosen.block % 16 == 0
    assert chosen.block <= max(16, 1.25 * seeds + 16)


def test_a_million_seeds_are_eight_calls_on_a_gpu():
    chosen = Layout.choose({}, (), 1_000_000, None, 1 << 30, [_Gpu()])
    assert (chosen.block, chosen.blocks(1_000_000)) == (1 << 17, 8)
