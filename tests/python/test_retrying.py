# SPDX-License-Identifier: Apache-2.0
"""with_retry against a context that only keeps a log: when it is ready, split, restored, done. The
names are docs/arbiter.md's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from shmstore.arbiter import Again, NoMemory, Outcome, Retry, Split, Target, TimedOut
from shmstore.retrying import each_result, told


class Failure(Exception):
    pass


def retry() -> Retry:
    return Retry(28, "retry")


def split() -> Split:
    return Split(28, "split")


class FakeContext:
    """As arbiter.Context is to each_result(): logs, and says at ready() what it is told to."""

    def __init__(self, at_ready: Iterable[BaseException | None] = ()) -> None:
        self.log: list[str] = []
        self.at_ready = list(at_ready)

    def ready(self) -> None:
        self.log.append("ready")
        error = self.at_ready.pop(0) if self.at_ready else None
        if error:
            raise error

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        self.log.append("begin")
        try:
            yield
        except BaseException:
            self.log.append("undo")
            raise
        self.log.append("end")


class Run:
    """One call of with_retry: fn follows a script of outcomes, None = a
    result that names the item."""

    def __init__(self, items: Iterable[Any], script: Iterable[BaseException | None],
                 **options: Any) -> None:
        self.context = FakeContext(options.pop("at_ready", ()))
        self.pulled: list[Any] = []
        self.closed: dict[Any, list[BaseException | None]] = {}
        self.called: list[Any] = []
        self.script = list(script)
        self.items = items
        self.options: dict[str, Any] = {"split": None, "save": None, "restore": None, **options}

    def fn(self, item: Any) -> Any:
        self.called.append(item)
        error = self.script.pop(0)
        if error:
            raise error
        return f"<{item}>"

    def pulling(self) -> Iterator[Any]:
        for item in self.items:
            self.pulled.append(item)
            yield item

    def done(self, item: Any, error: BaseException | None) -> None:
        self.closed.setdefault(str(item), []).append(error)

    def results(self) -> list[Any]:
        o = self.options
        return list(each_result(self.context, self.pulling(), self.fn, o["split"], o["save"],
                                o["restore"], self.done))  # type: ignore[arg-type]

    def n_closed(self, item: Any) -> int:
        return len(self.closed.get(str(item), []))


class Splitter:
    """x -> p, q; p -> p1, p2; takes over what it splits."""

    def __init__(self, run_: Run | None = None) -> None:
        self.closed: list[Any] = []

    def __call__(self, item: str) -> list[str]:
        parts = {"x": ["p", "q"], "p": ["p1", "p2"]}.get(item, [])
        if parts:
            self.closed.append(item)
        return parts


def test_w01_an_error_ends_its_item_and_the_next_is_not_taken() -> None:
    run = Run(["x", "y"], [Failure()])
    with pytest.raises(Failure):
        run.results()
    assert (run.n_closed("x"), run.n_closed("y"), run.pulled) == (1, 0, ["x"])
    assert isinstance(run.closed["x"][0], Failure)
    assert run.context.log == ["begin", "undo"]


def test_w02_a_list_is_one_item() -> None:
    run = Run([["x", "y"]], [Failure()])
    with pytest.raises(Failure):
        run.results()
    assert run.n_closed(["x", "y"]) == 1


def test_w03_what_is_left_of_a_split_ends_with_it() -> None:
    splitter = Splitter()
    run = Run(["x", "y"], [split(), Failure()], split=splitter)
    with pytest.raises(Failure):
        run.results()
    assert (run.n_closed("p"), run.n_closed("q"), run.n_closed("y")) == (1, 1, 0)
    assert splitter.closed == ["x"] and run.n_closed("x") == 0
    assert run.called == ["x", "p"] and run.pulled == ["x"]


def test_w04_without_a_splitter_split_is_the_callers() -> None:
    run = Run(["x", "y"], [split()])
    with pytest.raises(Split):
        run.results()
    assert (run.n_closed("x"), run.n_closed("y")) == (1, 0)


def test_w05_a_retry_is_ready_once_outside_the_attempt() -> None:
    run = Run(["x"], [retry(), None])
    assert run.results() == ["<x>"]
    assert run.context.log == ["begin", "undo", "ready", "begin", "end"]
    assert run.closed == {"x": [None]}


@pytest.mark.parametrize("at_ready", [False, True], ids=["w06_from_the_attempt", "w07_from_ready"])
def test_split_gives_the_results_of_its_parts_in_order(at_ready: bool) -> None:
    splitter = Splitter()
    script = [retry(), None, None] if at_ready else [split(), None, None]
    run = Run(["x"], script, split=splitter, at_ready=[split()] if at_ready else [])
    assert run.results() == ["<p>", "<q>"]
    assert splitter.closed == ["x"] and run.closed == {"p": [None], "q": [None]}


def test_w08_a_part_is_split_again() -> None:
    run = Run(["x"], [split(), split(), None, None, None], split=Splitter())
    assert run.results() == ["<p1>", "<p2>", "<q>"]


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_w09_a_refused_split_names_the_item(nothing: Any) -> None:
    run = Run(["batch-7"], [split()], split=lambda item: nothing)
    with pytest.raises(Split, match="batch-7") as error:
        run.results()
    assert run.n_closed("batch-7") == 1
    assert isinstance(error.value.__cause__, Split)


@pytest.mark.parametrize("how", ["cause", "context"])
def test_w10_a_retry_behind_another_error_is_one(how: str) -> None:
    failures = iter([True, False])

    def fn(item: str) -> str:
        if not next(failures):
            return item
        try:
            raise retry()
        except Retry as error:
            if how == "cause":
                raise Failure from error
            raise Failure

    context = FakeContext()
    assert list(each_result(context, ["x"], fn, None, None, None, None)) == [
        "x"]  # type: ignore[arg-type]
    assert context.log.count("ready") == 1


def test_an_error_that_says_it_has_nothing_to_do_with_a_retry_is_one() -> None:
    error = Failure()
    error.__context__ = retry()
    assert isinstance(told(error), Retry)
    error.__suppress_context__ = True
    assert told(error) is None
    loop = Failure()
    loop.__cause__ = Failure()
    loop.__cause__.__cause__ = loop
    assert told(loop) is None


def test_w11_a_retry_within_the_split_is_the_callers() -> None:
    def splitter(item: str) -> list[str]:
        raise retry()

    run = Run(["x"], [split()], split=splitter)
    with pytest.raises(Retry) as error:
        run.results()
    assert run.called == ["x"] and "ready" not in run.context.log
    assert error.value is run.closed["x"][0]


def test_w12_what_an_attempt_changed_is_restored_before_the_next() -> None:
    state = {"v": 5}
    script: list[BaseException | None] = [retry(), None]

    def fn(item: str) -> int:
        state["v"] += 5
        error = script.pop(0)
        if error:
            raise error
        return state["v"]

    def restore(saved: dict[str, int]) -> None:
        context.log.append("restore")
        state.update(saved)

    context = FakeContext()
    assert list(each_result(context, ["x"], fn, None, lambda: dict(state), restore, None)) == [
        10]  # type: ignore[arg-type]
    assert state == {"v": 10}
    assert context.log == ["begin", "undo", "restore", "ready", "begin", "end"]


def test_w13_each_part_is_restored_to_where_it_began() -> None:
    values = [1, 2, 3]
    script: list[BaseException | None] = [split(), None, retry(), None]

    def fn(item: str) -> list[int]:
        for i in range(3):
            values[i] += 10
        error = script.pop(0)
        if error:
            raise error
        return list(values)

    def restore(saved: list[int]) -> None:
        values[:] = saved

    context = FakeContext()
    results = list(each_result(context, ["x"], fn, Splitter(), lambda: list(values), restore,
                               None))  # type: ignore[arg-type]
    assert results == [[11, 12, 13], [21, 22, 23]]


@pytest.mark.parametrize(
    ("target", "n_splits", "last", "fits"),
    [
        pytest.param(Target(20, 5), 2, 5, True, id="w14"),
        pytest.param(Target(20, 5), 3, 5, False, id="w15"),
        pytest.param(Target(1000, 100, 200), 1, 100, True, id="w16"),
        pytest.param(Target(100, 1, 2), 1, 1, True, id="w17"),
        pytest.param(Target(1, 0), 1, 1, False, id="never_nothing"),
    ],
)
def test_targets(target: Target, n_splits: int, last: int, fits: bool) -> None:
    run = Run([target], [split()] * n_splits + [None], split=Target.split)
    if fits:
        assert len(run.results()) == 1
    else:
        with pytest.raises(Split):
            run.results()
    assert run.called[-1].size == last


def test_w18_a_nested_block_deals_with_its_own() -> None:
    outer, inner = FakeContext(), FakeContext()
    script: list[BaseException | None] = [retry(), None]

    def inner_fn(item: str) -> str:
        error = script.pop(0)
        if error:
            raise error
        return item.upper()

    calls: list[str] = []

    def outer_fn(item: str) -> list[str]:
        calls.append(item)
        return list(each_result(inner, [item], inner_fn, None, None, None,
                                None))  # type: ignore[arg-type]

    assert list(each_result(outer, ["x"], outer_fn, None, None, None, None)) == [
        ["X"]]  # type: ignore[arg-type]
    assert calls == ["x"] and "ready" not in outer.log and inner.log.count("ready") == 1


def test_who_stops_asking_ends_what_is_left() -> None:
    run = Run(["x", "y"], [split(), None], split=Splitter())
    results = each_result(run.context, run.pulling(), run.fn, run.options["split"], None, None,
                          run.done)  # type: ignore[arg-type]
    assert next(results) == "<p>"
    results.close()  # type: ignore[attr-defined]
    assert (run.closed["p"] == [None] and isinstance(run.closed["q"][0], GeneratorExit) and
            run.pulled == ["x"])


@pytest.mark.parametrize("error", [NoMemory(12, "n"), Again(28, "a"), TimedOut(110, "t")])
def test_other_outcomes_end_it(error: Outcome) -> None:
    run = Run(["x"], [error])
    with pytest.raises(type(error)):
        run.results()
    assert run.context.log == ["begin", "undo"]


def test_an_outcome_of_ready_ends_it() -> None:
    run = Run(["x"], [retry()], at_ready=[NoMemory(12, "who held what")])
    with pytest.raises(MemoryError, match="who held what"):
        run.results()
    assert run.n_closed("x") == 1
