"""The page on kernels shows the text of UCB1's kernel as it is."""

import re

import jax
import pytest
from helpers import ROOT

import jaxroute as jr
from jaxroute.kernels.source import Source
from jaxroute.problems import stochastic

PAGE = ROOT / "notebooks" / "site" / "howto" / "kernels.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def without_space(text):
    return re.sub(r"\s+", " ", text).strip()


@pytest.fixture(scope="module")
def text():
    """C++ of UCB1's kernel on three models."""
    found, patch = [], pytest.MonkeyPatch()
    write = Source.for_host
    patch.setattr(Source, "for_host", lambda self: found.append(write(self)) or found[-1])
    env = stochastic.bernoulli([0.9, 0.8, 0.2])
    jr.simulate(env, stochastic.UCB1(), horizon=40, seeds=16, progress=False, execution=jr.Execution("kernel"))
    patch.undo()
    jax.clear_caches()
    return without_space(found[0])


@pytest.mark.parametrize("number", range(len(blocks("c"))))
def test_the_page_shows_the_text_of_ucb1(text, number):
    """Up to the numbers in names, which depend on the version of jax."""
    seen = set()

    def any_number(match):
        name = match[0]
        pattern = f"(?P={name})" if name in seen else rf"(?P<{name}>{match[1]}\d+)"
        seen.add(name)
        return pattern

    pattern = re.sub(r"\b([a-z]+_?)\d+\b", any_number, re.escape(without_space(blocks("c")[number])))
    assert re.search(pattern, text)


def test_the_page_shows_the_source_of_ucb1():
    source = without_space((ROOT / "jaxroute/problems/stochastic/policies/ucb.py").read_text())
    for line in blocks("python")[0].splitlines()[1:]:
        assert without_space(line.partition("  #")[0]).removesuffix(")") in source
