"""Interleaves the steps of loops: several steps are computed at a time, statement by statement.

A processor executes some hundred instructions at once, but waits in a chain of dependent instructions such as a logarithm. Interleaving the chains
of several steps, often one for each language model, fills this time, which compilers do not do in long loops. Results stay the same bit for bit.
"""

import dataclasses
from collections.abc import Iterable

from jaxroute.kernels import ir
from jaxroute.kernels.ir import add

# Largest number of steps at a time; smallest number of function calls in a step; largest number of statements of the resulting loop.
MOST, LEAST_CALLS, MOST_STATEMENTS = 6, 2, 2000


def interleaved(block: ir.Block) -> ir.Block:
    """Returns a copy of a block in which each suitable loop, also in inner blocks, computes several steps at a time."""
    found = list[ir.Statement]()
    for statement in block:
        if isinstance(statement, ir.Loop) and (steps := _steps(statement)) > 1:
            found += _parts(statement, steps)
        else:
            inner = {name: interleaved(part) for name, part in vars(statement).items() if isinstance(part, list)}
            found.append(dataclasses.replace(statement, **inner))
    return found


def _nodes(statements: Iterable[ir.Statement]) -> list[ir.Expr]:
    return [part for one in statements for e in one.expressions() for part in e.parts()]


def _own(body: ir.Block) -> set[ir.Storage]:
    return {one.storage for one in body if isinstance(one, ir.Declare) and one.storage.successor is None}


def _length(loop: ir.Loop) -> int:
    first, test = loop.first, loop.test
    counts = loop.step == 1 and first is not None and first.op == "literal" and not first.number
    known = test is not None and test.op == "lt" and test.operands[1].op == "literal"
    return int(test.operands[1].number) if test is not None and counts and known else 0


def _steps(loop: ir.Loop) -> int:
    length, body = _length(loop), loop.body
    plain = all(one.written() and not one.blocks() and getattr(one, "name", "") != "given" for one in body)
    if not (length and plain) or sum(e.op == "call" and e.varies for e in _nodes(body)) < LEAST_CALLS or not _may(loop):
        return 1
    most = max(1, min(MOST, length, MOST_STATEMENTS // len(body)))
    return min(range(1, most + 1), key=lambda steps: length // steps + length % steps)


def _may(loop: ir.Loop) -> bool:
    """Whether interleaving is correct: each outer storage that the body changes is used by one statement only, or only at the loop's index."""

    def each_its_own(storage: ir.Storage) -> bool:
        touching = [one for one in loop.body if storage in {s.current for s in (*one.reads, *one.written())}]
        leaves = [*_nodes(touching), *(one.target for one in touching if isinstance(one, ir.Assign))]
        places = [e.operands for e in leaves if e.storage is not None and e.storage.current is storage]
        return len(touching) == 1 or all(len(place) == 1 and place[0].storage is loop.index for place in places)

    changed = {storage.current for one in loop.body for storage in one.written()}
    return all(map(each_its_own, changed - _own(loop.body)))


def _parts(loop: ir.Loop, steps: int) -> list[ir.Statement]:
    """Returns a loop whose steps each compute `steps` steps of `loop`, and a loop for the remaining steps, if there are any."""
    assert loop.index is not None
    length, index = _length(loop), ir.variable(loop.index)
    whole = length - length % steps
    copies = [_copied(loop, add(index, step), f"_{step}") for step in range(steps)]
    together = [one for same in zip(*copies, strict=True) for one in same]
    found: list[ir.Statement] = [dataclasses.replace(loop, test=index < whole, step=steps, body=together)]
    if whole < length:
        found.append(dataclasses.replace(loop, first=ir.literal(whole), body=_copied(loop, index, f"_{steps}")))
    return found


def _copied(loop: ir.Loop, index: ir.Index, suffix: str) -> ir.Block:
    """Returns a copy of a loop's body for the step `index`; names of variables declared in the body get the `suffix`."""
    renamed = {one: dataclasses.replace(one, name=one.name + suffix) for one in _own(loop.body)}

    def copied(part: object) -> object:
        if isinstance(part, ir.Storage):
            return renamed.get(part.current, part)
        if isinstance(part, tuple):
            return tuple(map(copied, part))
        if not isinstance(part, ir.Expr):
            return part
        if part.storage is loop.index:
            return ir.as_expr(index)
        return dataclasses.replace(part, operands=copied(part.operands), storage=copied(part.storage))

    def copy_of(one: ir.Statement) -> ir.Statement:
        return dataclasses.replace(one, **{f.name: copied(getattr(one, f.name)) for f in dataclasses.fields(one) if f.init})

    return list(map(copy_of, loop.body))
