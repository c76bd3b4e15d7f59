"""Descriptions of settings: what does something else is told apart, and what does the same is told alike."""

import functools
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from helpers import CHILDREN_PATH
from toys import small_market

import jaxroute as jr
from jaxroute.core import code, description
from jaxroute.problems import staged, stochastic


def sampler(scale):
    def sample(key):
        return stochastic.BanditEnv(mean=scale * jax.random.uniform(key, (3,)), scale=np.float32(0.0))

    return sample


class Sampler:
    """A sampler that is an object, or a method of one."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, key):
        return sampler(self.scale)(key)


def divided(by):
    def function(n):
        return n if n < 2 else function(n // by)

    return function


FUNCTIONS = {
    "a function that calls itself": (divided(2), divided(3)),
    "another attribute": (lambda *a: a[3].pulls, lambda *a: a[3].reward_sum),
    "another function called": (lambda *a: np.sin(a[-1]), lambda *a: np.cos(a[-1])),
    "another constant": (lambda *a: a[-1] + 1, lambda *a: a[-1] + 2),
    "another constant inside": (lambda *a: (lambda x: x + 1)(a[-1]), lambda *a: (lambda x: x + 2)(a[-1])),
    "another closure": (sampler(0.5), sampler(0.9)),
    "another default": (lambda *a, by=1: a[-1] + by, lambda *a, by=2: a[-1] + by),
    "another object": (Sampler(0.5), Sampler(0.9)),
    "a method of another object": (Sampler(0.5).__call__, Sampler(0.9).__call__),
    "another compiled function": (jax.jit(lambda *a: a[-1] + 1), jax.jit(lambda *a: a[-1] + 2)),
    "another bound argument": (functools.partial(small_market, budget=1.6), functools.partial(small_market, budget=1.7)),
}


def told(function):
    """What a store keeps of a function: what it was made with, and what its code does."""
    return [description.describe(function), code.code_of([function])]


@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions_that_do_something_else_are_told_apart(case):
    one, other = FUNCTIONS[case]
    assert told(one) != told(other)


def test_functions_are_described_alike_in_every_process():
    """Otherwise no other process could continue the store. Addresses in memory must not show."""
    script = "import json, tests.core.test_description as t; print(json.dumps(t.described()))"
    env = os.environ | {"PYTHONPATH": CHILDREN_PATH, "PYTHONHASHSEED": "7"}
    child = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr[-2000:]
    assert json.loads(child.stdout.splitlines()[-1]) == json.loads(json.dumps(described()))


def described():
    """What is told of everything that a run may be made of."""
    things = [
        stochastic.bernoulli([0.2, 0.7, 0.5]),
        small_market(),
        staged.StageRoute(),
        stochastic.Oracle.of,
        sampler(0.3),
        staged.lower_bound_market(horizon=100),
    ]
    things += [jr.grid(stochastic.UCB1, width=[1.0, 2.0]), *(function for pair in FUNCTIONS.values() for function in pair)]
    return [told(thing) for thing in things]
