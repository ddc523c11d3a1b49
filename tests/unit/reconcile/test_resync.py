"""Resync: ghosts go, what was missed comes in, and what is newer than the listing stays."""

from __future__ import annotations

import asyncio

from tests.unit.reconcile.builders import a_key, an_object
from tests.unit.reconcile.virtual_time import now, run
from trtllm_operator.reconcile.resync import Listing, resync, resync_forever
from trtllm_operator.reconcile.store import Object, Store


def resynced(store: Store, listing: Listing) -> list[str]:
    """Resync pods with this listing; returns the names of what was enqueued."""
    enqueued: list[Object] = []

    async def list_kind(kind: str) -> Listing:
        return listing

    differences = asyncio.run(resync(["Pod"], list_kind, store, enqueued.append))
    assert differences == len(enqueued)
    return [obj["metadata"]["name"] for obj in enqueued]


def a_store(*objects: Object) -> Store:
    store = Store()
    for obj in objects:
        store.put(obj)
    return store


def test_an_object_that_vanished_while_the_watch_was_cut_goes() -> None:
    store = a_store(an_object("ghost", 5), an_object("b", 6))
    assert resynced(store, Listing([an_object("b", 6)], version=20)) == ["ghost"]
    assert store.get(a_key("ghost")) is None


def test_an_object_that_the_watch_missed_comes_in() -> None:
    store = a_store(an_object("b", 6))
    assert resynced(store, Listing([an_object("b", 6), an_object("new", 9)], version=20)) == ["new"]


def test_nothing_is_enqueued_when_nothing_differs() -> None:
    store = a_store(an_object("b", 6))
    assert resynced(store, Listing([an_object("b", 6)], version=20)) == []


def test_an_object_that_is_younger_than_the_listing_stays() -> None:
    """The watch shows a pod that was created after the listing was made."""
    store = a_store(an_object("young", 25))
    assert resynced(store, Listing([], version=20)) == []
    assert store.get(a_key("young")) is not None


def test_an_object_of_the_same_name_with_another_uid_replaces_the_ghost() -> None:
    store = a_store(an_object("a", 5, uid="old"))
    resynced(store, Listing([an_object("a", 9, uid="new")], version=20))
    assert store.get(a_key()) == an_object("a", 9, uid="new")


def test_a_late_line_of_a_pruned_ghost_does_not_bring_it_back() -> None:
    store = a_store(an_object("ghost", 5))
    resynced(store, Listing([], version=20))
    assert not store.put(an_object("ghost", 6))


def test_the_first_success_opens_the_gate_and_failures_are_retried_soon() -> None:
    async def scenario() -> list[float]:
        times: list[float] = []
        start = now()

        async def once() -> int:
            times.append(round(now() - start))
            if len(times) < 3:
                raise ConnectionError("the API server is away")
            return 0

        first = asyncio.Event()
        task = asyncio.create_task(resync_forever(once, first=first, random=lambda: 0.5, expected=(ConnectionError,)))
        await first.wait()
        opened = round(now() - start)
        await asyncio.sleep(700)
        task.cancel()
        return [opened, *times]

    assert run(scenario()) == [10, 0, 5, 10, 310, 610]
