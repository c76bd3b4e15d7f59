"""Stored runs that are read when they are indexed: for results that are large beside the memory."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from jaxroute.store import cells
from jaxroute.store.cells import CURVES, Request
from jaxroute.store.packs import PackStore
from jaxroute.store.runs import Runs


class LazyRuns(Runs):
    """The runs of a result in a store that stays open; `dataset` has arrays that read their cells when they are indexed.

    With `partial`, runs that are not there or damaged are NaN, and not valid; otherwise they are errors.
    """

    def __init__(self, request: Request, store: PackStore, partial: bool):
        self.request, self.store, self.partial = request, store, partial
        self.lead = (len(request.policies), *(len(v) for v in request.axes.values()), len(request.seeds))
        self.done = np.zeros(self.lead, bool)
        self._families = {policy: request.families(CURVES, policy) for policy in request.policies}
        for policy, families in self._families.items():
            for number, place in enumerate(np.ndindex(*request.shape(policy))):
                held = {g: m & cells.held(store, families[number], g) for g, m in request.cut.masks.items()}
                tile = {axis: np.asarray([at]) for axis, at in zip(request.policy_axes[policy], place, strict=True)}
                if any(held.values()):
                    self._place(policy, tile, request.cut.of(held), {})

    def _first(self, name: str, seeds: int) -> Any:
        return indexing.LazilyIndexedArray(_Array(self, name, (*self.lead[:-1], seeds)))

    def read(self, name: str, chosen: Sequence[np.ndarray]) -> np.ndarray:
        """Returns a variable at some positions along each dimension; `ValueError` if it does not fit into memory, or is damaged."""
        lead = [np.unique(places, return_inverse=True) for places in chosen[: len(self.lead)]]
        (policies, _), *axes, (seeds, _) = lead
        spans = {axis: span for axis, (span, _) in zip(self.request.axes, axes, strict=True)}
        part = self._part(name, policies, spans, seeds)
        runs = Runs(part, self.store)
        if not self.partial and (missing := runs.missing(len(part.seeds))):
            raise ValueError(f"the result in {str(self.store.place)!r} is not complete any more: {missing}")
        return runs.data[name][np.ix_(*(places for _, places in lead), *chosen[len(self.lead) :])]

    def _part(self, name: str, policies: np.ndarray, axes: Mapping[str, np.ndarray], seeds: np.ndarray) -> Request:
        """The request of some policies, settings and seeds, and of one variable."""
        whole, identities = self.request, {}
        for policy in (names := [whole.policies[i] for i in policies]):
            own = np.asarray(whole.identities[policy]).reshape(whole.shape(policy))
            for place, axis in enumerate(whole.policy_axes[policy]):
                own = own.take(axes[axis], place)
            identities[policy] = own.ravel().tolist()
        settings = {axis: values[axes[axis]] for axis, values in whole.axes.items()}
        variables = {one: about for one, about in whole.variables.items() if one == name}
        parts = {"policies": names, "axes": settings, "variables": variables, "identities": identities}
        parts["zero_flows"] = [one for one in whole.zero_flows if one == name]
        return dataclasses.replace(whole, seeds=whole.seeds[seeds], **parts)


class _Array(BackendArray):
    def __init__(self, runs: LazyRuns, name: str, lead: tuple[int, ...]):
        self._runs, self._name = runs, name
        _, inner = runs.request.variables.get(name, (None, None))
        self.shape = lead if inner is None else (*lead, len(runs.request.times), *inner)
        self.dtype = np.dtype(bool if name == "valid" else np.float64)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        chosen = [np.arange(size)[one] for one, size in zip(key, self.shape, strict=True)]
        found = self._runs.read(self._name, [np.atleast_1d(one) for one in chosen])
        return found[tuple(0 if one.ndim == 0 else slice(None) for one in chosen)]

    def __deepcopy__(self, memo: Any) -> "_Array":  # What is stored does not change.
        return self
