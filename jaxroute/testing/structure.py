"""Checks the protocol of a policy and an environment without compilation: every method is traced with abstract values, in milliseconds."""

import dataclasses
import difflib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxroute.core import checks, draws
from jaxroute.core.protocols import ENVIRONMENT, POLICY, Members, misspelt, stage_length_of
from jaxroute.core.types import Metric, Spec, classes_of, planned_state
from jaxroute.engine.grid import check_pytree
from jaxroute.engine.rounds import spec_for

_BELONG = "data that later rounds need belong into the state"


class Fault(AssertionError):
    """Error of an environment or policy that violates the protocol; its message is one sentence."""


def check_structure(policy: Any, env: Any) -> None:
    """Checks in milliseconds, without compilation, that a policy and an environment follow the protocol.

    All required methods must exist, and optional ones must be spelt right. Static fields must be hashable. Each method must be traceable with
    abstract values, give the same trace twice, store no traced value, and change neither its object nor its arguments. States must keep their
    containers, shapes and strong types. `act` must return an action that the environment accepts, and a dict. Declared metrics must exist with
    their dimensions. `spec` must be a hashable `Spec`, the same at every call.

    Types are promoted by jax's rules; `jax.numpy_dtype_promotion("strict")` and `jax.numpy_rank_promotion("raise")` find accidental promotions.

    Args:
      policy: the policy, or a function `env -> policy`.
      env: an environment, or a sampler `key -> Environment`.

    Raises:
      AssertionError: a rule is violated; the message names the component, the method and the field.
    """
    for one in (env, policy):
        if hasattr(one, "check"):
            _agrees(f"{_name(one)}.check refuses its values", one.check)
    env_component = _Component("env", env, "step", jax.eval_shape(draws.key, 0))
    _check_environment(env_component)
    component = _Component("policy", policy, "act", env_component.value)
    if hasattr(policy, "check_spec"):
        spec, refusal = spec_for(env_component.value, 1), f"{component.name}.check_spec refuses {env_component.name}"
        _agrees(refusal, lambda: policy.check_spec(spec))
    _check_policy(component, env_component)
    _check_round(component, env_component)


class _Trace(NamedTuple):
    """Trace of a method, and the abstract values that it returns.

    Attributes:
      result: what the method returned, with a shape and type instead of each array.
      types: full abstract value, with weak types, of each leaf of `result`, in order.
      program: operations of the trace, in a form that can be compared.
    """

    result: Any
    types: list[Any]
    program: tuple


class _Component:
    """Environment or policy with abstract values instead of arrays, whose methods are traced.

    `made` is what the user passed: an object with the method `method`, or a function (a sampler of environments, or `env -> policy`) that is traced
    with the abstract `argument` to make the object. Errors call the component `role`, such as "policy".
    """

    def __init__(self, role: str, made: Any, method: str, argument: Any):
        if not hasattr(made, method) and callable(made):
            made = _traced(_name(made), made, argument).result
        self.name = _name(made)
        if isinstance(made, type):
            raise Fault(f"{role} is the class {self.name}; pass an instance, for example {self.name}()")
        _agrees("", lambda: check_pytree(role, made))
        for field in dataclasses.fields(made) if dataclasses.is_dataclass(made) else ():
            if not field.metadata.get("pytree_node", True):
                static = getattr(made, field.name)
                try:
                    hash(static)
                except TypeError:
                    where = f"the static field {self.name}.{field.name}"
                    raise Fault(f"{where} must be hashable, got {checks.show(static)}") from None
        self.value = jax.tree.map(_abstract, made)

    def trace(self, method: str, *arguments: Any, static: tuple = ()) -> _Trace:
        """Traces `method(*arguments, *static)` with abstract `arguments`; a fault is raised if the call changes the object or an argument."""

        def call(value, arguments):
            contents, leaves = _contents(value), jax.tree.flatten(arguments)
            result = getattr(value, method)(*arguments, *static)
            for name, held in _contents(value).items():
                is_cached = isinstance(getattr(type(value), name, None), functools.cached_property)
                if contents.get(name, contents) is not held and not is_cached:
                    raise Fault(f"{self.name}.{method} changes {self.name}.{name}; {_BELONG}")
            after = jax.tree.flatten(arguments)
            if leaves[1] != after[1] or any(a is not b for a, b in zip(leaves[0], after[0], strict=True)):
                raise Fault(f"{self.name}.{method} changes one of its arguments in place")
            return result

        return _traced(f"{self.name}.{method}", call, self.value, arguments)


def _check_environment(env: _Component) -> None:
    _check_names(env, ENVIRONMENT)
    spec = env.value.spec
    if not isinstance(spec, Spec):
        raise Fault(f"{env.name}.spec must be a Spec, got {checks.show(spec)}")
    try:
        same = hash(spec) == hash(env.value.spec) and spec == env.value.spec
    except TypeError as error:
        raise Fault(f"{env.name}.spec must be hashable: {error}") from None
    if not same:
        raise Fault(f"{env.name}.spec must be the same at every call")
    _check_declared(f"{env.name}.spec.metrics", spec.metrics)


def _check_policy(policy: _Component, env: _Component) -> None:
    _check_names(policy, POLICY)
    spec, declared = env.value.spec, getattr(policy.value, "metrics", ())
    _check_declared(f"{policy.name}.metrics", declared)
    for name in sorted({m.name for m in declared} & {m.name for m in spec.metrics}):
        raise Fault(f"{policy.name}.metrics declares {name!r}, which {env.name}.spec.metrics declares too")
    if hasattr(policy.value, "plan") and not stage_length_of(env.value, policy.value):
        raise Fault(f"{policy.name} has plan, but neither it nor {env.name} has a stage_length")


def _check_round(policy: _Component, env: _Component) -> None:
    """Traces `init`, `observe`, `plan`, `act`, `step` and `update` in turn, on the abstract results of earlier calls, and checks what they return."""
    key, t, spec = jax.eval_shape(draws.key, 0), jax.ShapeDtypeStruct((), jnp.int32), env.value.spec
    env_state = _strong(env.trace("init", key), f"{env.name}.init")
    state = _strong(policy.trace("init", key, static=(spec_for(env.value, 1),)), f"{policy.name}.init")
    if stage_length_of(env.value, policy.value):
        state = planned_state(state)
    obs = env.trace("observe", key, env_state, t).result
    if hasattr(policy.value, "plan"):
        _check_fixed(state, policy.trace("plan", key, state, obs, t), f"{policy.name}.plan")

    acted = policy.trace("act", key, state, obs, t).result
    if not isinstance(acted, tuple) or len(acted) != 2 or not isinstance(acted[1], dict):
        raise Fault(f"{policy.name}.act must return (action, info) with info a dict, got {_kind(acted)}")
    action, info = acted
    try:
        played = env.trace("step", key, env_state, action, t)
    except Fault as error:
        if "cannot be traced" not in str(error):
            raise
        raise Fault(f"{env.name} does not take the action of {policy.name}.act, {_kind(action)}: {error}") from error
    answer = played.result
    if not isinstance(answer, tuple) or len(answer) != 3 or not isinstance(answer[2], dict):
        raise Fault(f"{env.name}.step must return (state, feedback, flows) with flows a dict, got {_kind(answer)}")
    next_env_state, feedback, flows = answer
    number = len(jax.tree.leaves(next_env_state))
    _check_fixed(env_state, _Trace(next_env_state, played.types[:number], ()), f"{env.name}.step")
    _check_fixed(state, policy.trace("update", key, state, obs, action, feedback, t), f"{policy.name}.update")

    where = (f"the flows of {env.name}.step()", flows), (f"{env.name}.gauges()", _gauges(env, env_state))
    _check_measured(spec.metrics, *where, f"{env.name}.spec.metrics", spec)
    for name in spec.zero_flows:
        if name not in flows:
            raise Fault(f"the flows of {env.name}.step() lack {name!r}, which {env.name}.spec.zero_flows names")
    where = (f"the Info of {policy.name}.act()", info), (f"{policy.name}.gauges()", _gauges(policy, state))
    _check_measured(getattr(policy.value, "metrics", ()), *where, f"{policy.name}.metrics", spec)


def _check_names(component: _Component, members: Members) -> None:
    """Checks that a component has the required methods of `members` (an environment also a `spec`), and that no optional method is misspelt."""
    owner, value = type(component.value), component.value
    for name in (*(["spec"] if members is ENVIRONMENT else []), *members.required):
        if not hasattr(value, name):
            close = difflib.get_close_matches(name, [n for n in dir(owner) if not n.startswith("_")], n=1)
            hint = f"; did you misspell it as {close[0]!r}?" if close else ""
            raise Fault(f"{component.name} has no {'' if name == 'spec' else 'method '}{name}{hint}")
        if name != "spec" and not callable(getattr(value, name)):
            raise Fault(f"{component.name}.{name} must be a method")
    for name, meant in misspelt(value, members):
        raise Fault(f"{component.name} has {name!r}, which nothing calls; did you mean {meant!r}?")


def _check_declared(where: str, metrics: Any) -> None:
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise Fault(f"{where} must hold Metric objects, got {checks.show(metric)}")
    names = [m.name for m in metrics]
    for name in names:
        if names.count(name) > 1:
            raise Fault(f"{where} declares {name!r} twice")


def _check_measured(metrics, sums: tuple[str, dict], gauges: tuple[str, dict], declared: str, spec: Spec) -> None:
    """Raises a `Fault` if a metric has no value, or a value of other dimensions than it declares.

    Args:
      metrics: the metrics that an environment or policy declares.
      sums: how errors call the values of a round, and these values by name of the metric.
      gauges: the same for values of a state, of metrics of the kind "gauge".
      declared: how errors call the attribute that holds `metrics`.
      spec: description of the environment, for the number of models.
    """
    for metric in metrics:
        place, values = gauges if metric.kind == "gauge" else sums
        if metric.name not in values:
            verb = "lack" if place.startswith("the flows") else "lacks"
            raise Fault(f"{place} {verb} {metric.name!r}, which {declared} declares")
        shape = jnp.shape(values[metric.name])
        if len(shape) != len(metric.dims):
            expected = f"{declared} names the dimensions {metric.dims}"
            raise Fault(f"{metric.name!r} in {place} has the shape {shape}, but {expected}")
        for dim, size in zip(metric.dims, shape, strict=True):
            if dim == "model" and size != spec.num_models:
                raise Fault(f"{metric.name!r} in {place} has {size} models, the environment has {spec.num_models}")


def _gauges(component: _Component, state: Any) -> dict[str, Any]:
    if not hasattr(component.value, "gauges"):
        return {}
    values = component.trace("gauges", state).result
    if not isinstance(values, dict):
        raise Fault(f"{component.name}.gauges must return a dict, got {_kind(values)}")
    return values


def _leaves(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) or "(the whole state)" for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _strong(made: _Trace, what: str) -> Any:
    """Returns the state that a traced method returned. Raises a `Fault`, which calls the method `what`, if an array of the state has a weak type."""
    for name, leaf in zip(_leaves(made.result), made.types, strict=True):
        if getattr(leaf, "weak_type", False):
            problem = f"{what} makes the state's array {name} weakly typed, so its type depends on the other operands"
            raise Fault(f"{problem}: give it a type, for example jnp.zeros({leaf.shape}, jnp.{leaf.dtype})")
    return made.result


def _check_fixed(before: Any, made: _Trace, what: str) -> None:
    """Checks that the state returned by the method `what` has the containers, shapes and types of `before`, the state that it received."""
    old, new = _leaves(before), _leaves(made.result)
    if jax.tree.structure(before) != jax.tree.structure(made.result) or classes_of(before) != classes_of(made.result):
        lost, added = [n for n in old if n not in new], [n for n in new if n not in old]
        how = f"drops the array {lost[0]}" if lost else f"adds the array {added[0]}" if added else "has other containers"
        raise Fault(f"{what} returns a state of another structure than init made: it {how}")
    for name, first, leaf in zip(old, jax.tree.leaves(before), made.types, strict=True):
        if (first.shape, first.dtype) != (leaf.shape, leaf.dtype):
            raise Fault(f"{what} changes the state's array {name} from {_kind(first)} to {_kind(leaf)}")
    _strong(made, what)


def _traced(what: str, function: Callable, *arguments: Any) -> _Trace:
    """Traces a function, which errors call `what`, with abstract arguments. Raises a `Fault` if it is impure, untraceable or stores traced values."""
    try:
        with jax.checking_leaks():
            first = _trace(function, *arguments)
        second = _trace(function, *arguments)
    except Fault:
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        values = "a field, a state or an observation as a Python number, a condition or a shape; each value would be another program"
        problem = f"{what} needs a value that is known only when it runs ({values})"
        raise Fault(f"{problem}: {type(error).__name__}: {_first_line(error)}") from error
    except Exception as error:
        if "Leaked" in str(error) or isinstance(error, jax.errors.UnexpectedTracerError):
            raise Fault(f"{what} keeps a traced value after it has returned; {_BELONG}") from error
        raise Fault(f"{what} cannot be traced: {type(error).__name__}: {_first_line(error)}") from error
    if first.program != second.program:
        why = "traced twice with the same arguments it gives two programs; it reads something that changes outside them"
        raise Fault(f"{what} is not pure: {why}")
    return first


def _trace(function: Callable, *arguments: Any) -> _Trace:
    def once(*arguments):  # A new function, because jax would return the first trace again.
        return function(*arguments)

    closed, result = jax.make_jaxpr(once, return_shape=True)(*arguments)
    return _Trace(result, list(closed.out_avals), _program(closed))


def _program(value: Any) -> Any:
    """Converts a traced program (jaxpr) or a parameter of it to nested tuples without names and addresses, which are equal for equal programs."""
    if isinstance(value, ClosedJaxpr) and value.jaxpr is not value:
        return (_program(value.jaxpr), *map(_program, value.consts))
    if isinstance(value, Jaxpr):  # Since jax 0.12 a Jaxpr may hold its constants.
        constants = tuple(map(_program, getattr(value, "consts", ())))
        numbers = {var: i for i, var in enumerate((*value.constvars, *value.invars))}

        def read(atom):
            return (atom.aval, _program(atom.val)) if isinstance(atom, Literal) else numbers[atom]

        operations = []
        for equation in value.eqns:
            read_from = tuple(map(read, equation.invars))
            numbers |= {var: len(numbers) + i for i, var in enumerate(equation.outvars)}
            parameters = tuple((name, _program(p)) for name, p in sorted(equation.params.items()))
            operations.append((equation.primitive.name, read_from, tuple(v.aval for v in equation.outvars), parameters))
        return constants, tuple(v.aval for v in value.invars), tuple(operations), tuple(map(read, value.outvars))
    if isinstance(value, (tuple, list)):
        return tuple(map(_program, value))
    # Also the arrays that jax stores in literals.
    if hasattr(value, "__array__") and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        array = np.asarray(value)
        return array.dtype.name, array.shape, array.tobytes()
    if isinstance(value, (float, complex)):
        return repr(value)  # NaN is not equal to itself, but its text is.
    return value if isinstance(value, (bool, int, str, type(None))) else type(value)


def _contents(value: Any) -> dict[str, Any]:
    """Returns the attributes of an object and of its classes, by name, to find out whether a call changes any of them."""
    return {name: held for cls in reversed(type(value).__mro__[:-1]) for name, held in vars(cls).items()} | vars(value)


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    """Converts an array or number to an abstract value with the shape and type that the engine uses."""
    array = leaf if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else np.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype, allow_extended_dtype=True))


def _agrees(what: str, check: Callable[[], Any]) -> None:
    try:
        check()
    except ValueError as error:
        raise Fault(f"{what}: {error}" if what else str(error)) from error


def _name(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__name__)


def _kind(value: Any) -> str:
    """Describes a value for messages, such as "float32[3]"; a tuple by the descriptions of its entries."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(_kind, value))})"
    return "None" if value is None else type(value).__name__


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")
