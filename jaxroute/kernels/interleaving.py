"""Loops whose steps are long chains of operations, with several steps at a time, statement by statement.

A processor works on some hundred instructions at once. Where each needs the result of the one before, as in logarithms, it waits; beside the
chain of one model there is time for those of others. Compilers do not do this across loops with hundreds of instructions. The numbers stay the same.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from jaxroute.kernels import ir
from jaxroute.kernels.values import add

# Steps at a time; functions that a step calls at least, and statements that a loop may have then.
MOST, LEAST_CALLS, MOST_STATEMENTS = 6, 2, 4000


def interleaved(block: ir.Block) -> ir.Block:
    """A block in which such loops have several steps at a time."""
    found = list[ir.Statement]()
    for statement in block:
        if isinstance(statement, ir.Loop):
            steps = _steps(statement)
            found += (
                [dataclasses.replace(statement, body=interleaved(statement.body))]
                if steps == 1
                else _parts(statement, steps)
            )
        elif isinstance(statement, ir.If):
            body, otherwise = (interleaved(one) for one in (statement.body, statement.otherwise))
            found.append(dataclasses.replace(statement, body=body, otherwise=otherwise))
        else:
            found.append(statement)
    return found


def _nodes(statements: Iterable[ir.Statement]) -> list[ir.Expr]:
    """All expressions, and those inside of them."""
    found = [e for one in statements for e in one.expressions()]
    for e in found:  # It grows meanwhile.
        found += e.operands
    return found


def _own(body: ir.Block) -> set[ir.Storage]:
    """Storages that each step has for itself; one whose place another has taken is not there."""
    return {one.storage for one in body if isinstance(one, ir.Declare) and one.storage.successor is None}


def _length(loop: ir.Loop) -> int:
    """How many steps a loop has that counts from 0 up to a number; 0 for others."""
    test = loop.test
    counts = loop.step == 1 and loop.first is not None and loop.first.op == "literal" and not loop.first.number
    if not counts or test is None or test.op != "lt" or test.operands[1].op != "literal":
        return 0
    return int(test.operands[1].number)


def _steps(loop: ir.Loop) -> int:
    """How many steps of a loop to write at a time."""
    length, body = _length(loop), loop.body
    calls = sum(e.op == "call" and e.varies for e in _nodes(body)) if length else 0
    if (
        calls < LEAST_CALLS
        or not all(isinstance(one, ir.Declare | ir.Assign) or one.written() for one in body)
        or not _may(loop)
    ):
        return 1
    most = max(1, min(MOST, length, MOST_STATEMENTS // len(body)))
    return min(range(1, most + 1), key=lambda steps: length // steps + length % steps)


def _may(loop: ir.Loop) -> bool:
    """Whether the statements of a step may come between those of the one before.

    What a loop changes and is there before it is either touched by one statement alone, or an array of which each step touches an element of its own.
    """
    changed = {storage.current for one in loop.body for storage in one.written()} - _own(loop.body)
    for storage in changed:
        touching = [one for one in loop.body if storage in {s.current for s in (*one.reads, *one.written())}]
        leaves = [e for e in _nodes(touching) if e.storage is not None and e.storage.current is storage]
        leaves += [one.target for one in touching if isinstance(one, ir.Assign) and one.target.storage in storage.all()]
        elements = all(len(e.operands) == 1 and e.operands[0].storage is loop.index for e in leaves)
        if len(touching) > 1 and not elements:
            return False
    return not any(one.blocks() or (isinstance(one, ir.Call) and one.name == "given") for one in loop.body)


def _parts(loop: ir.Loop, steps: int) -> list[ir.Statement]:
    """The loop with several steps at a time, and the rest of it."""
    assert loop.index is not None and loop.test is not None
    length, index = _length(loop), ir.variable(loop.index)
    whole = length - length % steps
    places = [{loop.index: add(index, step)} for step in range(steps)]
    copies = [_copied(loop.body, place, f"_{step}") for step, place in enumerate(places)]
    together = [one for same in zip(*copies, strict=True) for one in same]
    found: list[ir.Statement] = [dataclasses.replace(loop, test=index < whole, step=steps, body=together)]
    if whole < length:
        found.append(dataclasses.replace(loop, first=ir.literal(whole), body=_copied(loop.body, {}, f"_{steps}")))
    return found


def _copied(body: ir.Block, places: Mapping[ir.Storage, ir.Index], suffix: str) -> ir.Block:
    """The statements of a step with storages of their own."""
    renamed = {one: dataclasses.replace(one, name=one.name + suffix, predecessors=()) for one in _own(body)}

    def storage(one: ir.Storage) -> ir.Storage:
        return renamed.get(one.current, one)

    def expression(e: ir.Expr) -> ir.Expr:
        if e.storage is not None and e.storage in places:
            return ir.as_expr(places[e.storage])
        operands = tuple(map(expression, e.operands))
        return dataclasses.replace(e, operands=operands, storage=None if e.storage is None else storage(e.storage))

    def statement(one: ir.Statement) -> ir.Statement:
        if isinstance(one, ir.Declare):
            made = one.storage if one.storage.successor is not None else storage(one.storage)
            return ir.Declare(made, None if one.value is None else expression(one.value))
        if isinstance(one, ir.Assign):
            return ir.Assign(
                expression(one.target), expression(one.value), None if one.mask is None else expression(one.mask)
            )
        assert isinstance(one, ir.Call)
        return dataclasses.replace(
            one, operands=tuple(map(expression, one.operands)), writes=tuple(map(storage, one.writes))
        )

    return [statement(one) for one in body]
