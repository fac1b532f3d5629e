"""Risk: an order of events among parent and workers that no test run happens to meet, with deaths at the worst moment.

A model of the protocol of fastes/pools/processes/, one shared access a step, explored in every order of steps.
The model's own errors are its risk: each rule of the protocol is left out once, and the checker must find what that breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import pytest

# --- the model -------------------------------------------------------------------------------------------------------

TORN = -1  # inputs or a slot, while they are being written
NOTHING = 0  # rounds and generations count from 1

# what a worker does next
BUILD, WAIT, BEGIN, ENTER, CLAIM, PICK, READ, BEGIN_SLOT, FILL_SLOT, COMMIT, ENTER_LATE, FINISH, DEAD = range(13)
# what the parent does next
BEGIN_INPUTS, INPUTS, TODO, OPEN, OFFER, WATCH, LOOK, COLLECT, END = range(9)


class Worker(NamedTuple):
    """One worker process, its row of the block, its socket, and what the parent knows of it."""

    does: int = BUILD
    round: int = NOTHING  # of the message it works on
    limit: int = 0  # and its number of jobs
    begun: int = NOTHING  # the inputs that it read before it entered: the normaliser's
    job: int = -1  # the position it claimed, then the job there
    seen: int = NOTHING  # the inputs that the job was computed from
    inbox: tuple[tuple[int, int], ...] = ()  # ROUND messages: number, jobs
    outbox: tuple[int, ...] = ()  # DONE messages: number
    entered: int = NOTHING  # shared: the last round that it entered
    sent: int = NOTHING  # parent: the last round that it was told of
    done: int = NOTHING  # parent: the last round that it is known to be done with


class State(NamedTuple):
    does: int = BEGIN_INPUTS
    generation: int = 1
    first: int = 1  # round of this generation
    round: int = 1
    left: tuple[int, ...] = ()  # parent: the jobs of this round
    todo: tuple[int, ...] = ()  # shared: the same, where workers read it
    inputs: int = NOTHING  # shared: the generation whose theta and normaliser are there
    tag: int = NOTHING  # shared, one word with position: the counter
    position: int = 0
    slots: tuple[int, ...] = ()  # shared: the inputs that the value was computed from
    flags: tuple[int, ...] = ()  # shared: the round in which the slot was filled
    workers: tuple[Worker, ...] = ()
    deaths: int = 0  # how many may still come


@dataclass(frozen=True)
class Rules:
    """Sizes, and the rules of the protocol, each of which can be broken."""

    jobs: int = 2
    workers: int = 2
    generations: int = 2
    deaths: int = 2
    order: tuple[int, ...] = (BEGIN_INPUTS, INPUTS, TODO, OPEN, OFFER)  # of the parent's steps before it watches
    tagged_claim: bool = True  # a claim takes a position only in its own round
    limit_of_message: bool = True  # it knows the number of jobs from its message, not from memory
    value_before_commit: bool = True
    entered_before_claim: bool = True
    wait_for_entered: bool = True  # an exhausted round ends when all who entered it are done
    counter_before_entered: bool = True  # the parent reads the counter, then who entered
    done_of_this_round: bool = True  # a late DONE of an earlier round does not count
    offer_to_late: bool = True  # who sends it is told of the round that is under way
    offer_to_new: bool = True  # and so is a replacement
    only_uncommitted: bool = True  # a second round runs what is left

    def start(self) -> State:
        every = tuple(range(self.jobs))
        none = (NOTHING,) * self.jobs
        workers = (Worker(),) * self.workers
        return State(self.order[0], left=every, slots=none, flags=none, workers=workers, deaths=self.deaths)


class Broken(Exception):
    """A state or step that must not be."""


Step = tuple[str, State]


def steps(rules: Rules, s: State) -> Iterator[Step]:
    """Every step that can come next, with the state after it."""
    yield from parent_steps(rules, s)
    for k, w in enumerate(s.workers):
        if w.does != DEAD:
            if (step := worker_step(rules, s, k, w)) is not None:
                yield step
            if s.deaths:
                corpse = Worker(DEAD, outbox=w.outbox, entered=w.entered, sent=w.sent, done=w.done)
                yield f"worker {k} dies", with_worker(s, k, corpse, deaths=s.deaths - 1)


def with_worker(s: State, k: int, w: Worker, **changes: Any) -> State:
    return s._replace(workers=(*s.workers[:k], w, *s.workers[k + 1 :]), **changes)


def changed(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def worker_step(rules: Rules, s: State, k: int, w: Worker) -> Step | None:
    """The only step that a living worker can do, or None: it waits."""
    me = f"worker {k}"
    if w.does == BUILD:
        return f"{me} is built", with_worker(s, k, w._replace(does=WAIT))
    if w.does == WAIT:
        if not w.inbox:
            return None
        (number, jobs), *later = w.inbox
        after = w._replace(does=BEGIN, round=number, limit=jobs, inbox=tuple(later))
        return f"{me} reads ROUND({number}, {jobs})", with_worker(s, k, after)
    if w.does == BEGIN:
        does = ENTER if rules.entered_before_claim else CLAIM
        return f"{me} takes over normaliser {s.inputs}", with_worker(s, k, w._replace(does=does, begun=s.inputs))
    if w.does == ENTER:
        return f"{me} enters {w.round}", with_worker(s, k, w._replace(does=CLAIM, entered=w.round))
    if w.does == CLAIM:
        limit = w.limit if rules.limit_of_message else len(s.todo)
        if (s.tag != w.round and rules.tagged_claim) or s.position >= limit:
            return f"{me} finds nothing to claim", with_worker(s, k, w._replace(does=FINISH))
        after = w._replace(does=PICK if rules.entered_before_claim else ENTER_LATE, job=s.position)
        return f"{me} claims position {s.position}", with_worker(s, k, after, position=s.position + 1)
    if w.does == ENTER_LATE:
        return f"{me} enters {w.round}", with_worker(s, k, w._replace(does=PICK, entered=w.round))
    if w.does == PICK:
        if w.job >= len(s.todo):
            raise Broken(f"{me} reads position {w.job} of a list of {len(s.todo)}")
        job = s.todo[w.job]
        if s.flags[job] >= s.first:
            raise Broken(f"{me} runs job {job} again")
        return f"{me} runs job {job}", with_worker(s, k, w._replace(does=READ, job=job))
    if w.does == READ:
        does = BEGIN_SLOT if rules.value_before_commit else COMMIT
        after = w._replace(does=does, seen=s.inputs if s.inputs == w.begun else TORN)
        return f"{me} reads theta {s.inputs}", with_worker(s, k, after)
    if w.does in (BEGIN_SLOT, FILL_SLOT):
        return slot_step(rules, s, k, w)
    if w.does == COMMIT:
        after = w._replace(does=CLAIM, job=-1, seen=NOTHING) if rules.value_before_commit else w._replace(does=BEGIN_SLOT)
        return f"{me} commits job {w.job}", with_worker(s, k, after, flags=changed(s.flags, w.job, w.round))
    after = w._replace(does=WAIT, outbox=(*w.outbox, w.round), round=NOTHING, limit=0, begun=NOTHING)
    return f"{me} sends DONE({w.round})", with_worker(s, k, after)


def slot_step(rules: Rules, s: State, k: int, w: Worker) -> Step:
    if w.round < s.first:
        raise Broken(f"worker {k} of round {w.round} writes slot {w.job} in generation {s.generation}")
    if s.flags[w.job] >= s.first and rules.value_before_commit:
        raise Broken(f"worker {k} writes slot {w.job}, which is committed")
    if w.does == BEGIN_SLOT:
        after = w._replace(does=FILL_SLOT)
        return f"worker {k} begins slot {w.job}", with_worker(s, k, after, slots=changed(s.slots, w.job, TORN))
    after = w._replace(does=COMMIT) if rules.value_before_commit else w._replace(does=CLAIM, job=-1, seen=NOTHING)
    return f"worker {k} fills slot {w.job}", with_worker(s, k, after, slots=changed(s.slots, w.job, w.seen))


def parent_steps(rules: Rules, s: State) -> Iterator[Step]:
    if s.does == BEGIN_INPUTS:
        yield "parent begins to write inputs", s._replace(does=INPUTS, inputs=TORN)
    elif s.does == INPUTS:
        yield f"parent has written inputs {s.generation}", then(rules, s._replace(inputs=s.generation))
    elif s.does == TODO:
        yield f"parent writes todo {s.left}", then(rules, s._replace(todo=s.left))
    elif s.does == OPEN:
        yield f"parent opens round {s.round}", then(rules, s._replace(tag=s.round, position=0))
    elif s.does == OFFER:
        k = next((k for k, w in enumerate(s.workers) if offered(s, w) != w), None)
        if k is None:
            yield "parent has told all who wait", then(rules, s)
        else:
            yield f"parent sends ROUND({s.round}, {len(s.left)}) to {k}", with_worker(s, k, offered(s, s.workers[k]))
    elif s.does == COLLECT:
        if s.slots != (s.generation,) * rules.jobs:
            raise Broken(f"generation {s.generation} collects {s.slots}")
        new = s._replace(does=rules.order[0], generation=s.generation + 1, first=s.round, left=tuple(range(rules.jobs)))
        after = s._replace(does=END) if s.generation == rules.generations else new
        yield f"parent collects generation {s.generation}", after
    else:
        yield from watching(rules, s)


def then(rules: Rules, s: State) -> State:
    """The parent's next step before it watches; inputs are written once a generation."""
    following = (*rules.order, WATCH)[rules.order.index(s.does) + 1 :]
    return s._replace(does=next(step for step in following if step != BEGIN_INPUTS or s.inputs != s.generation))


def offered(s: State, w: Worker) -> Worker:
    """A worker after it was told of the round, unless it has not answered the one before. A dead one reads nothing."""
    if w.done < w.sent or w.sent == s.round:
        return w
    return w._replace(sent=s.round, inbox=w.inbox if w.does == DEAD else (*w.inbox, (s.round, len(s.left))))


def watching(rules: Rules, s: State) -> Iterator[Step]:
    if s.does == WATCH:
        for k, w in enumerate(s.workers):
            if w.outbox:
                late = w.outbox[0] != s.round
                after = w._replace(outbox=w.outbox[1:], done=w.outbox[0] if rules.done_of_this_round else s.round)
                after = offered(s, after) if late and rules.offer_to_late else after
                yield f"parent reads DONE({w.outbox[0]}) of {k}", with_worker(s, k, after)
            if w.does == DEAD:
                new = Worker()
                yield f"parent replaces {k}", with_worker(s, k, offered(s, new) if rules.offer_to_new else new)
        if all(s.flags[job] >= s.first for job in s.left):
            yield "parent finds every job committed", next_round(rules, s)
    # Two reads of shared memory: the counter, then who entered. Flags may be read one by one: in a round they only grow.
    exhausted = s.position >= len(s.left)
    finished = all(not rules.wait_for_entered or w.entered != s.round or w.done == s.round for w in s.workers)
    first, second = (exhausted, finished) if rules.counter_before_entered else (finished, exhausted)
    if s.does == WATCH and first:
        yield f"parent finds the {'counter exhausted' if exhausted else 'workers done'}", s._replace(does=LOOK)
    if s.does == LOOK:
        yield f"parent looks again: {second}", next_round(rules, s) if second else s._replace(does=WATCH)


def next_round(rules: Rules, s: State) -> State:
    """The round is over. Each round beyond one a generation has to have a death to blame."""
    left = tuple(job for job in s.left if s.flags[job] < s.first)
    if left and s.round + 1 > s.generation + rules.deaths - s.deaths:
        raise Broken(f"round {s.round} ends without {left}, and nobody died")
    if not left:
        return s._replace(does=COLLECT, round=s.round + 1)
    does = next(step for step in rules.order if step not in (BEGIN_INPUTS, INPUTS))
    return s._replace(does=does, round=s.round + 1, left=left if rules.only_uncommitted else s.left)


def explore(rules: Rules) -> int:
    """Visit every state that can be reached; returns their number. Raises Broken with the shortest way to a violation.

    One violation belongs to the graph, not to a state: that there is no way from it to the end without another death.
    Workers are alike: states that differ in their order are one.
    """
    number = {alike(rules.start()): 0}
    states, came_from, before = [rules.start()], [("", 0)], [[0]]
    ends = []
    for at, state in enumerate(states):  # grows meanwhile
        if state.does == END:
            ends.append(at)
            continue
        try:
            for label, after in steps(rules, state):
                to = number.setdefault(alike(after), len(states))
                if to == len(states):
                    states.append(after)
                    came_from.append((label, at))
                    before.append([])
                if after.deaths == state.deaths:
                    before[to].append(at)
        except Broken as violation:
            raise Broken("\n".join([*way_to(at, came_from), str(violation)])) from None
    can_end = set(ends)
    while ends:
        new = set(before[ends.pop()]) - can_end
        can_end |= new
        ends.extend(new)
    if len(can_end) < len(states):
        stuck = next(at for at in range(len(states)) if at not in can_end)
        raise Broken("\n".join([*way_to(stuck, came_from), "from here, there is no end"]))
    return len(states)


def alike(s: State) -> State:
    return s._replace(workers=tuple(sorted(s.workers)))


def way_to(at: int, came_from: list[tuple[str, int]]) -> list[str]:
    way = []
    while at:
        label, at = came_from[at]
        way.append(label)
    return way[::-1]


# --- what it says ----------------------------------------------------------------------------------------------------

SIZES = {
    "no death": Rules(deaths=0, jobs=3),
    "one death": Rules(deaths=1, jobs=3),
    "two deaths in a generation": Rules(deaths=2, generations=1),
    "three deaths of a worker alone": Rules(deaths=3, workers=1),
}
BIG_SIZES = {
    "two deaths": Rules(),
    "two deaths and three jobs": Rules(jobs=3),
    "three workers": Rules(workers=3, deaths=1),
    "three generations": Rules(generations=3, deaths=1),
}


@pytest.mark.parametrize("rules", SIZES.values(), ids=SIZES)
def test_every_order_of_steps_ends_well(rules: Rules) -> None:
    assert explore(rules) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("rules", BIG_SIZES.values(), ids=BIG_SIZES)
def test_every_order_of_more_steps_ends_well(rules: Rules) -> None:
    assert explore(rules) > 50_000


TWO = Rules(deaths=0)
ONE = Rules(deaths=1, workers=1)  # a replacement has to do it all
BROKEN_RULES = {
    "a claim in any round": (replace(TWO, tagged_claim=False), "of round 1 writes slot 0 in generation 2"),
    "the number of jobs from memory": (replace(ONE, limit_of_message=False), "of round 2 writes slot 1 in generation 2"),
    "commit, then the value": (replace(TWO, value_before_commit=False), r"generation 1 collects \(1, 0\)"),
    "claim, then enter": (replace(TWO, entered_before_claim=False), "round 1 ends without"),
    "not waiting for who entered": (replace(TWO, wait_for_entered=False), "round 1 ends without"),
    "who entered, then the counter": (replace(TWO, counter_before_entered=False), "round 1 ends without"),
    "a late DONE counts": (replace(TWO, done_of_this_round=False), "round 2 ends without"),
    "a late worker is not told": (replace(TWO, offer_to_late=False), "there is no end"),
    "a replacement is not told": (replace(ONE, offer_to_new=False), "there is no end"),
    "all jobs again": (replace(ONE, only_uncommitted=False), "runs job 0 again"),
    "inputs after the round is open": (replace(TWO, order=(TODO, OPEN, OFFER, BEGIN_INPUTS, INPUTS)), "generation 1 collects"),
    "the list after the round is open": (replace(TWO, order=(BEGIN_INPUTS, INPUTS, OPEN, OFFER, TODO)), "of a list of 0"),
    "message, then the counter": (replace(TWO, order=(BEGIN_INPUTS, INPUTS, TODO, OFFER, OPEN)), "there is no end"),
}


@pytest.mark.parametrize(("rules", "violation"), BROKEN_RULES.values(), ids=BROKEN_RULES)
def test_a_broken_rule_is_found(rules: Rules, violation: str) -> None:
    with pytest.raises(Broken, match=violation):
        explore(rules)


def test_every_rule_is_broken_once() -> None:
    kept = [item.name for item in fields(Rules) if all(getattr(r, item.name) == item.default for r, _ in BROKEN_RULES.values())]
    assert kept == ["jobs", "generations"]


def test_a_violation_comes_with_the_way_to_it() -> None:
    with pytest.raises(Broken) as caught:
        explore(replace(TWO, value_before_commit=False))
    way = str(caught.value).splitlines()
    assert way[:4] == [
        "parent begins to write inputs",
        "parent has written inputs 1",
        "parent writes todo (0, 1)",
        "parent opens round 1",
    ]
    assert [line.split(" ", 2)[2] for line in way if "job 1" in line] == ["runs job 1", "commits job 1"]
