"""Checks the behaviour of a policy by simulation: compiled, in batches and in grids, which takes seconds; and a run as a plain Python loop."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy, is_policy, stage_length_of
from jaxroute.core.quick import quick_jit
from jaxroute.engine import reference
from jaxroute.engine.compiling import trace_count
