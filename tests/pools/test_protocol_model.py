"""Risk: an order of events among parent and workers that no test run happens to meet, with deaths at the worst moment.

A model of the protocol of fastes/pools/processes/, one shared access a step, explored in every order of steps.
The model's own errors are its risk: each rule of the protocol is left out once, and the checker must find what that breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import Any, NamedTuple

import pytest

# --- the model -------------------------------------------------------------------------------------------------------

NOTHING = 0  # requests and tickets count from 1
CANDIDATES, EVALUATION = 0, 1  # one place of each kind

# what a worker does next
WAIT, SAY, CLAIM, CLAIM_OTHER, TAKE, SAY_LATE, PICK, NOTE_PLACE, NOTE_JOB, UNSAY, RUN, COMMIT, LEAVE, COUNT = range(14)
TELL, UNSAY_IDLE, DEAD, ABSENT = range(14, 18)
ON_ITS_ROW = (SAY, SAY_LATE, NOTE_PLACE, NOTE_JOB, UNSAY, UNSAY_IDLE, LEAVE)  # all that these change
AT_A_JOB = (PICK, NOTE_PLACE, NOTE_JOB, UNSAY, RUN, COMMIT)
# what the parent does next
INPUTS, TODO, OPEN, OFFER, WATCH, SEE, SEE_CLAIMING, SEE_JOB, SEE_PLACE, SEE_FLAGS, COLLECT, CLOSE, KILL, END = range(14)


class Row(NamedTuple):
    """What a worker notes in the block."""

    claiming: int = 0
    place: int = 0
    ticket: int = NOTHING
    job: int = -1


class Worker(NamedTuple):
    """One worker process, its row, and its socket."""

    does: int = WAIT
    place: int = 0  # of the job that it claimed
    ticket: int = NOTHING
    job: int = -1  # its position in todo, then the job there
    row: Row = Row()
    looks: int = 0  # LOOKs that it has sent, and the parent has not read


class Place(NamedTuple):
    """Of the shared block; ticket and unclaimed are one word."""

    ticket: int = NOTHING
    unclaimed: int = 0
    unfinished: int = 0
    inputs: int = NOTHING  # the request whose theta is there
    todo: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()  # the request that the value was computed for
    flags: tuple[int, ...] = ()  # the ticket under which the slot was filled


class Request(NamedTuple):
    """What the parent knows of one that is open."""

    number: int
    place: int
    first: int = NOTHING  # its first ticket
    ticket: int = NOTHING
    finished: bool = False
    counted: bool = True  # no worker may have ended between one of its jobs and the count


class State(NamedTuple):
    at: int = 0  # of the parent's plan
    does: int = INPUTS
    left: tuple[int, ...] = ()  # parent: jobs to open, or those without a flag
    subject: int = 0  # parent: index of the request it opens or looks at
    again: tuple[int, ...] = ()  # parent: requests to open again
    unread: tuple[int, ...] = ()  # parent: workers whose rows it is going to read, or is reading
    held: tuple[int, ...] = ()  # parent: jobs that rows name; the last one is still without its place in SEE_PLACE
    woken: bool = False  # parent: something has happened since it looked at flags
    orphans: bool = False  # parent: a lost worker may have left a job
    lost_at: int = NOTHING  # parent: a ticket of that moment
    last_ticket: int = NOTHING
    offers: int = 0  # bytes in the pipe
    ticks: bool = False  # the parent looks from time to time: a worker may have ended between a job and its count
    open: tuple[Request, ...] = ()
    places: tuple[Place, ...] = ()
    workers: tuple[Worker, ...] = ()
    deaths: int = 0  # how many may still come


class Ask(NamedTuple):
    """A step of the parent's plan: submit a request of so many jobs."""

    number: int
    place: int
    jobs: int


class Await(NamedTuple):
    """Wait for a request, and collect it."""

    number: int


class Fail(NamedTuple):
    """A request meets an error, is closed, and workers start anew."""

    number: int


class Forget(NamedTuple):
    """All requests; workers start anew."""


Plan = tuple[Ask | Await | Fail | Forget, ...]
# Two are open at once; the place of the one that is collected first has the third.
THREE: Plan = (
    Ask(1, CANDIDATES, 2),
    Ask(2, EVALUATION, 1),
    Await(1),
    Ask(3, CANDIDATES, 2),
    Await(2),
    Await(3),
)
FAILING: Plan = (Ask(1, CANDIDATES, 1), Ask(2, EVALUATION, 2), Fail(1), Ask(3, CANDIDATES, 1), Await(2), Await(3))
FORGETTING: Plan = (
    Ask(1, CANDIDATES, 1),
    Ask(2, EVALUATION, 1),
    Forget(),
    Ask(3, CANDIDATES, 1),
    Ask(4, EVALUATION, 1),
    Await(3),
    Await(4),
)


@dataclass(frozen=True)
class Rules:
    """Sizes, and the rules of the protocol, each of which can be broken."""

    plan: Plan = THREE
    workers: int = 2
    deaths: int = 1
    tick: bool = False  # the parent looks without a reason, too
    order: tuple[int, ...] = (INPUTS, TODO, OPEN, OFFER)  # of the parent's steps when it opens a request
    whole_word: bool = True  # a claim needs ticket and number of jobs as they were read
    said_before_claim: bool = True
    place_before_job: bool = True  # in its row
    row_before_unsaid: bool = True
    value_before_commit: bool = True
    commit_before_leaving: bool = True
    look_is_sent: bool = True  # when the last job of a request is done
    commit_before_count: bool = True
    count_awaited: bool = True  # before the place may have another request
    unsaid_before_sleep: bool = True
    clean_row: bool = True  # for a replacement
    offers_stay: bool = True  # for who does not sleep yet
    new_one_looks: bool = True  # before it sleeps
    exhausted_before_again: bool = True  # jobs are opened again when none of their request is unclaimed
    heed_claiming: bool = True
    rows_before_flags: bool = True
    only_uncommitted: bool = True  # what is opened again
    orphans_until_found: bool = True  # they are looked for again
    close_failed: bool = True
    kill_first: bool = True  # workers end before the jobs of other requests are opened again
    start_last: bool = True  # and start when they are
    close_forgotten: bool = True
    old_flags_count_not: bool = True  # flags of an earlier request in the place

    def start(self) -> State:
        jobs = [
            max((ask.jobs for ask in self.plan if isinstance(ask, Ask) and ask.place == place), default=0) for place in (0, 1)
        ]
        places = tuple(Place(slots=(NOTHING,) * n, flags=(NOTHING,) * n) for n in jobs)
        return begin(self, State(places=places, workers=(self.new(),) * self.workers, deaths=self.deaths))

    def new(self) -> Worker:
        """A worker that has built its environment."""
        return Worker(self.looking() if self.new_one_looks else WAIT)

    def looking(self) -> int:
        """The first step of a look for jobs."""
        return SAY if self.said_before_claim else CLAIM


class Broken(Exception):
    """A state or step that must not be."""


Step = tuple[str, State]


def steps(rules: Rules, s: State) -> Iterator[Step]:
    """Every step that can come next, with the state after it."""
    if rows_are_unread(s):
        alone = [k for k, w in enumerate(s.workers) if w.does in ON_ITS_ROW]
        if alone:  # whenever it does this, nobody sees a difference
            k = min(alone, key=lambda k: (s.workers[k].does, s.workers[k].place, s.workers[k].job))
            step = worker_step(rules, s, k, s.workers[k])
            assert step is not None
            yield step
            return
    yield from parent_steps(rules, s)
    for k, w in enumerate(s.workers):
        if w.does not in (DEAD, ABSENT):
            if (step := worker_step(rules, s, k, w)) is not None:
                yield step
            if s.deaths:
                yield f"worker {k} dies", with_worker(s, k, w._replace(does=DEAD), deaths=s.deaths - 1, ticks=True)


def rows_are_unread(s: State) -> bool:
    """From here on."""
    return not s.deaths and not s.orphans and all(w.does != DEAD for w in s.workers)


def with_worker(s: State, k: int, w: Worker, **changes: Any) -> State:
    return s._replace(workers=(*s.workers[:k], w, *s.workers[k + 1 :]), **changes)


def with_place(s: State, number: int, **changes: Any) -> State:
    places = list(s.places)
    places[number] = places[number]._replace(**changes)
    return s._replace(places=tuple(places))


def changed(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def open_at(s: State, place: int) -> Request | None:
    return next((r for r in s.open if r.place == place and r.ticket), None)


# --- workers ---------------------------------------------------------------------------------------------------------


def worker_step(rules: Rules, s: State, k: int, w: Worker) -> Step | None:
    """The only step that a living worker can do, or None: it waits."""
    me = f"worker {k}"
    if w.does == WAIT:
        if not s.offers:
            return None
        return f"{me} wakes", with_worker(s, k, w._replace(does=rules.looking()), offers=s.offers - 1)
    if w.does in (SAY, SAY_LATE):
        does = PICK if w.does == SAY_LATE else CLAIM
        return f"{me} {SAYS}", with_worker(s, k, w._replace(does=does, row=w.row._replace(claiming=1)))
    if w.does in (CLAIM, CLAIM_OTHER, TAKE):
        return claim_step(rules, s, k, w)
    if w.does in (PICK, NOTE_PLACE, NOTE_JOB, UNSAY):
        return noting_step(rules, s, k, w)
    if w.does in (RUN, COMMIT, LEAVE, COUNT):
        return running_step(rules, s, k, w)
    if w.does == TELL:
        return f"{me} sends LOOK", with_worker(s, k, counted(rules, w)._replace(looks=w.looks + 1))
    assert w.does == UNSAY_IDLE
    row = w.row._replace(claiming=0) if rules.unsaid_before_sleep else w.row
    return f"{me} has claimed nothing", with_worker(s, k, w._replace(does=WAIT, row=row))


SAYS = "says that it claims"


def claim_step(rules: Rules, s: State, k: int, w: Worker) -> Step:
    """Candidates come first. Reading a word and taking a job from it is one step, as the word must not change meanwhile."""
    me, number = f"worker {k}", {CLAIM: CANDIDATES, CLAIM_OTHER: EVALUATION, TAKE: w.place}[w.does]
    place, ticket = s.places[number], w.ticket if w.does == TAKE else s.places[number].ticket
    if not place.unclaimed:
        does = CLAIM_OTHER if number == CANDIDATES else UNSAY_IDLE
        return f"{me} finds place {number} empty", with_worker(s, k, w._replace(does=does, place=0, ticket=NOTHING))
    if not rules.whole_word and w.does != TAKE:
        after = w._replace(does=TAKE, place=number, ticket=ticket)
        return f"{me} reads ticket {ticket} of place {number}", with_worker(s, k, after)
    does = PICK if rules.said_before_claim else SAY_LATE
    after = w._replace(does=does, place=number, ticket=ticket, job=place.unclaimed - 1)
    claimed = with_place(with_worker(s, k, after), number, unclaimed=place.unclaimed - 1)
    return f"{me} claims position {after.job} of place {number} under ticket {ticket}", claimed


def noting_step(rules: Rules, s: State, k: int, w: Worker) -> Step:
    me, todo, row = f"worker {k}", s.places[w.place].todo, w.row
    order = (NOTE_PLACE, NOTE_JOB) if rules.place_before_job else (NOTE_JOB, NOTE_PLACE)
    order = (*order, UNSAY) if rules.row_before_unsaid else (UNSAY, *order)
    order = (PICK, *order, order_of_running(rules)[0])
    does = order[order.index(w.does) + 1]
    if rules.place_before_job and rules.row_before_unsaid and w.does == PICK:  # nobody sees a difference
        does, row = NOTE_JOB, row._replace(place=w.place, ticket=w.ticket)
    if w.does == PICK:
        if w.job >= len(todo):
            raise Broken(f"{me} reads position {w.job} of a list of {len(todo)}")
        job = todo[w.job]
        if any(is_at_a_job(other) and (other.place, other.job) == (w.place, job) for other in s.workers if other is not w):
            raise Broken(f"two workers run job {job} of place {w.place}")
        return f"{me} picks job {job}", with_worker(s, k, w._replace(does=does, job=job, row=row))
    if w.does == NOTE_PLACE:
        row = row._replace(place=w.place, ticket=w.ticket)
        return f"{me} notes place {w.place}, ticket {w.ticket}", with_worker(s, k, w._replace(does=does, row=row))
    if w.does == NOTE_JOB:
        return f"{me} notes job {w.job}", with_worker(s, k, w._replace(does=does, row=row._replace(job=w.job)))
    return f"{me} says that it has noted", with_worker(s, k, w._replace(does=does, row=row._replace(claiming=0)))


def is_at_a_job(w: Worker) -> bool:
    return w.does in AT_A_JOB and w.does != PICK


def order_of_running(rules: Rules) -> tuple[int, ...]:
    order = (RUN, COMMIT) if rules.value_before_commit else (COMMIT, RUN)
    order = (*order, LEAVE) if rules.commit_before_leaving else (LEAVE, *order)
    return (*order, COUNT) if rules.commit_before_count else (COUNT, *order)


def counted(rules: Rules, w: Worker) -> Worker:
    """A worker once its job is counted: it looks for the next one."""
    if rules.commit_before_count:
        return w._replace(does=rules.looking(), place=0, ticket=NOTHING, job=-1)
    return w._replace(does=order_of_running(rules)[1])


def running_step(rules: Rules, s: State, k: int, w: Worker) -> Step:
    order = order_of_running(rules)
    does = (*order, rules.looking())[order.index(w.does) + 1]
    place, request = s.places[w.place], open_at(s, w.place)
    if w.does == COUNT:
        left = max(place.unfinished - 1, 0)
        after = w._replace(does=TELL) if place.unfinished == 1 and rules.look_is_sent else counted(rules, w)
        return f"worker {k} counts a job, {left} are left", with_worker(with_place(s, w.place, unfinished=left), k, after)
    if w.does == LEAVE:
        return f"worker {k} leaves job {w.job}", with_worker(s, k, w._replace(does=does, row=w.row._replace(job=-1)))
    if w.does == COMMIT:
        after = with_place(s, w.place, flags=changed(place.flags, w.job, w.ticket))
        return f"worker {k} commits job {w.job} of place {w.place}", with_worker(after, k, w._replace(does=does))
    if request is None or w.ticket < request.first:
        raise Broken(f"worker {k} writes slot {w.job} of place {w.place} under the old ticket {w.ticket}")
    if place.flags[w.job] >= request.first and rules.value_before_commit:
        raise Broken(f"worker {k} runs job {w.job} of place {w.place} again")
    after = with_place(s, w.place, slots=changed(place.slots, w.job, place.inputs))
    label = f"worker {k} runs job {w.job} of request {place.inputs} in place {w.place}"
    return label, with_worker(after, k, w._replace(does=does))


# --- the parent ------------------------------------------------------------------------------------------------------


def begin(rules: Rules, s: State) -> State:
    """The state in which the parent begins the next step of its plan."""
    workers = tuple(rules.new() if w.does == ABSENT else w for w in s.workers)
    s = s._replace(left=(), subject=0, again=(), unread=(), held=(), workers=workers)
    if s.at == len(rules.plan):
        return s._replace(does=END)
    step = rules.plan[s.at]
    if isinstance(step, Ask):
        asked = (*s.open, Request(step.number, step.place))
        return s._replace(does=rules.order[0], open=asked, subject=len(s.open), left=tuple(range(step.jobs)))
    if isinstance(step, Await):
        return s._replace(does=SEE if index_of(s, step.number) is None else WATCH, woken=True)
    return s._replace(does=CLOSE)


def index_of(s: State, number: int) -> int | None:
    return next((k for k, request in enumerate(s.open) if request.number == number), None)


def parent_steps(rules: Rules, s: State) -> Iterator[Step]:
    if s.does in (INPUTS, TODO, OPEN, OFFER):
        yield opening_step(rules, s)
    elif s.does == WATCH:
        yield from watching(rules, s)
    elif s.does in (SEE, SEE_CLAIMING, SEE_JOB, SEE_PLACE, SEE_FLAGS):
        yield from looking(rules, s)
    elif s.does == COLLECT:
        yield collecting_step(rules, s)
    elif s.does in (CLOSE, KILL):
        yield ending_step(rules, s)


def opening_step(rules: Rules, s: State) -> Step:
    request = s.open[s.subject]
    if s.does == INPUTS:
        label = f"parent writes the inputs of request {request.number} into place {request.place}"
        after = with_place(s, request.place, inputs=request.number)
    elif s.does == TODO:
        label, after = f"parent writes todo {s.left[::-1]}", with_place(s, request.place, todo=s.left[::-1])
    elif s.does == OPEN:
        ticket = s.last_ticket + 1
        opened = request._replace(ticket=ticket, first=request.first or (ticket if rules.old_flags_count_not else 1))
        unfinished = s.places[request.place].unfinished if request.first else len(s.left)
        after = with_place(s, request.place, ticket=ticket, unclaimed=len(s.left), unfinished=unfinished)
        after = after._replace(open=changed(s.open, s.subject, opened), last_ticket=ticket)
        label = f"parent opens {len(s.left)} jobs of request {request.number} under ticket {ticket}"
    else:
        asleep = sum(w.does == WAIT for w in s.workers)
        most = rules.workers if rules.offers_stay else asleep
        after = s._replace(offers=min(s.offers + len(s.left) + 1, most))
        label = f"parent offers {len(s.left)} jobs"
    following = rules.order[rules.order.index(s.does) + 1 :]
    if isinstance(rules.plan[s.at], Ask):
        return label, after._replace(does=following[0]) if following else begin(rules, after._replace(at=s.at + 1))
    following = tuple(step for step in following if step != INPUTS)
    if following:
        return label, after._replace(does=following[0])
    return label, next_again(rules, after) if isinstance(rules.plan[s.at], Fail) else next_request(rules, after)


def watching(rules: Rules, s: State) -> Iterator[Step]:
    step = rules.plan[s.at]
    assert isinstance(step, Await)
    for k, w in enumerate(s.workers):
        if w.looks:
            yield f"parent reads LOOK of {k}", with_worker(s, k, w._replace(looks=w.looks - 1), woken=True)
        elif w.does == DEAD:
            yield f"parent replaces {k}", replaced(rules, s, k)
    if s.woken or rules.tick or s.ticks:
        yield "parent looks", next_request(rules, s._replace(subject=-1))
    elif is_done(s, step.number) and all(w.does in (WAIT, RUN, COMMIT) and not w.looks for w in s.workers):
        raise Broken(f"request {step.number} is done, and the parent is not told")


def is_done(s: State, number: int) -> bool:
    found = index_of(s, number)
    return found is None or not uncommitted(s, s.open[found])


def jobs_of(rules: Rules, number: int) -> int:
    return next(step.jobs for step in rules.plan if isinstance(step, Ask) and step.number == number)


def uncommitted(s: State, request: Request, jobs: int | None = None) -> tuple[int, ...]:
    flags = s.places[request.place].flags[:jobs]
    return tuple(job for job, flag in enumerate(flags) if flag < request.first)


def replaced(rules: Rules, s: State, k: int) -> State:
    new = rules.new() if rules.clean_row else rules.new()._replace(row=s.workers[k].row)
    ticket, requests = s.last_ticket + 1, uncounted(s.open)
    return with_worker(s, k, new, open=requests, orphans=True, lost_at=ticket, last_ticket=ticket, woken=True)


def uncounted(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    return tuple(each._replace(counted=False) for each in requests)


def next_request(rules: Rules, s: State) -> State:
    """The parent goes on to look at the next request; after the last one it knows whether it has waited long enough."""
    s = s._replace(left=(), unread=(), held=())
    for k in range(s.subject + 1, len(s.open)):
        if not s.open[k].finished:
            return s._replace(does=SEE, subject=k)
    step = rules.plan[s.at]
    assert isinstance(step, Await)
    orphans = s.orphans and any(r.ticket <= s.lost_at for r in s.open if not r.finished) and rules.orphans_until_found
    s = s._replace(subject=0, woken=False, orphans=orphans)
    if not orphans:
        check_for_lost_jobs(rules, s)
    found = index_of(s, step.number)
    return s._replace(does=COLLECT if found is not None and s.open[found].finished else WATCH)


def check_for_lost_jobs(rules: Rules, s: State) -> None:
    for r in s.open:
        place = s.places[r.place]
        for job in uncommitted(s, r, jobs_of(rules, r.number)):
            if job not in place.todo[: place.unclaimed] and not any(may_run(s, w, r.place, job) for w in s.workers):
                raise Broken(f"job {job} of request {r.number} is lost")


def may_run(s: State, w: Worker, place: int, job: int) -> bool:
    """A dead worker counts: its loss is noticed later."""
    if w.does in (SAY_LATE, PICK):
        return w.place == place and s.places[place].todo[w.job] == job
    return w.does == DEAD or (w.place == place and w.job == job)


def looking(rules: Rules, s: State) -> Iterator[Step]:
    request = s.open[s.subject]
    number, place, jobs = request.number, s.places[request.place], jobs_of(rules, request.number)
    if s.does == SEE:
        left = uncommitted(s, request, jobs)
        if not left and request.counted and place.unfinished and rules.count_awaited:
            yield f"parent finds request {number} done and not counted", next_request(rules, s)
        elif not left:
            done = changed(s.open, s.subject, request._replace(finished=True))
            yield f"parent finds request {number} done", next_request(rules, s._replace(open=done))
        elif place.unclaimed and rules.exhausted_before_again:
            yield f"parent finds {place.unclaimed} unclaimed jobs of request {number}", next_request(rules, s)
        elif s.orphans:
            for order in permutations(range(len(s.workers))):  # which worker has which row is arbitrary
                label = f"parent finds {left} of request {number} without flags"
                yield label, s._replace(does=SEE_CLAIMING, left=left, unread=order)
        else:
            yield f"parent finds {left} of request {number} without flags", next_request(rules, s)
    elif s.does == SEE_FLAGS:
        left = uncommitted(s, request, jobs) if rules.rows_before_flags else s.left
        orphans = tuple(job for job in left if job in s.left and job not in s.held)
        label = f"parent finds {orphans} of request {number} without anybody"
        if orphans:
            following = next(step for step in rules.order if step != INPUTS)
            left = orphans if rules.only_uncommitted else tuple(range(jobs))
            yield label, s._replace(does=following, left=left, held=())
        else:
            yield label, next_request(rules, s)
    else:
        yield reading_step(rules, s, request, s.unread[0])


def reading_step(rules: Rules, s: State, request: Request, k: int) -> Step:
    """The parent reads a worker's row."""
    row = s.workers[k].row
    following = s._replace(does=SEE_CLAIMING if s.unread[1:] else SEE_FLAGS, unread=s.unread[1:])
    if s.does == SEE_CLAIMING:
        if row.claiming and rules.heed_claiming:
            return f"parent finds {k} claiming", next_request(rules, s)
        return f"parent finds {k} not claiming", s._replace(does=SEE_JOB)
    if s.does == SEE_JOB:
        label = f"parent finds {k} at job {row.job}"
        return label, s._replace(does=SEE_PLACE, held=(*s.held, row.job)) if row.job >= 0 else following
    *held, job = s.held
    if row.place == request.place and row.ticket >= request.first:
        if s.places[request.place].flags[job] < request.first and not any(may_run(s, w, request.place, job) for w in s.workers):
            raise Broken(f"job {job} of request {request.number} is taken for one that worker {k} runs")
        held.append(job)
    return f"parent finds {k} in place {row.place}", following._replace(held=tuple(sorted(held)))


def collecting_step(rules: Rules, s: State) -> Step:
    step = rules.plan[s.at]
    assert isinstance(step, Await)
    request = next(r for r in s.open if r.number == step.number)
    slots = s.places[request.place].slots[: jobs_of(rules, request.number)]
    if any(slot != request.number for slot in slots):
        raise Broken(f"request {request.number} collects {slots}")
    after = s._replace(at=s.at + 1, open=tuple(r for r in s.open if r is not request))
    return f"parent collects request {request.number}", begin(rules, after)


def ending_step(rules: Rules, s: State) -> Step:
    """An error, or an interrupt: what it concerns is closed, all workers end, and what else is open is opened again."""
    step = rules.plan[s.at]
    failed = step.number if isinstance(step, Fail) else None
    concerned = [r for r in s.open if failed in (None, r.number)]
    if s.does == CLOSE:
        after = s
        if rules.close_forgotten if failed is None else rules.close_failed:
            for request in concerned:
                after = with_place(after, request.place, ticket=NOTHING, unclaimed=0)
        return f"parent closes {[r.number for r in concerned]}", after._replace(does=KILL)
    left = tuple(r for r in s.open if r not in concerned)
    after = s._replace(open=left, again=tuple(k for k, r in enumerate(left) if not r.finished))
    if rules.kill_first:
        new = Worker(ABSENT) if rules.start_last else rules.new()
        after = after._replace(open=uncounted(left), workers=(new,) * rules.workers, ticks=True)
    return "parent ends all workers", next_again(rules, after)


def next_again(rules: Rules, s: State) -> State:
    """After an error, the next request whose jobs are opened again."""
    if not s.again:
        return begin(rules, s._replace(at=s.at + 1))
    k, *later = s.again
    left = uncommitted(s, s.open[k], jobs_of(rules, s.open[k].number))
    return s._replace(does=TODO, subject=k, left=left, again=tuple(later))


# --- every order -----------------------------------------------------------------------------------------------------


def explore(rules: Rules, is_doubted: bool = False) -> int:
    """Visit every state that can be reached; returns their number. Raises Broken with the shortest way to a violation.

    One violation belongs to the graph, not to a state: that there is no way from it to the end without another death.
    is_doubted: whether states that count as alike are compared by what can follow.
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
                elif is_doubted and after != states[to]:
                    assert followers(rules, after) == followers(rules, states[to])
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


def followers(rules: Rules, s: State) -> set[tuple[Any, ...]]:
    return {alike(after) for _, after in steps(rules, s)}


def alike(s: State) -> tuple[Any, ...]:
    """The same for states that go on in the same way.

    Numbers of tickets matter only as far as they are compared, and workers only by what they do, but for those
    whose rows the parent is reading.
    """
    firsts = [0x7FFFFFFF, 0x7FFFFFFF]
    for r in s.open:
        firsts[r.place] = r.first or 0x7FFFFFFF
    workers, unread = [], rows_are_unread(s)
    for k, w in enumerate(s.workers):
        row, is_read = w.row, s.does == SEE_PLACE and k == s.unread[0]
        at_row = (row.job, row.place, row.ticket >= firsts[row.place])
        if row.job < 0 and not is_read and w.does != NOTE_JOB:
            at_row = (-1, 0, False)
        late = w.job >= 0 and w.ticket < firsts[w.place]
        if w.does == TAKE:
            late = w.ticket < s.places[w.place].ticket
        if unread:
            workers.append((w.does, w.place, w.job, late, w.looks))
        else:
            workers.append((w.does, w.place, w.job, late, w.looks, row.claiming, at_row))
    in_order = [workers[k] for k in s.unread]
    workers = sorted(w for k, w in enumerate(workers) if k not in s.unread)
    places = tuple(
        (p.unclaimed, p.unfinished, p.inputs, p.todo, p.slots, tuple(flag >= first for flag in p.flags))
        for p, first in zip(s.places, firsts, strict=True)
    )
    requests = tuple((r.number, r.finished, r.counted, bool(r.first), s.orphans and r.ticket <= s.lost_at) for r in s.open)
    parent = (s.at, s.does, s.left, s.subject, s.again, len(s.unread), s.held, s.woken, s.orphans, s.offers, s.ticks)
    return (parent, requests, places, (*workers, *in_order), s.deaths)


def way_to(at: int, came_from: list[tuple[str, int]]) -> list[str]:
    way = []
    while at:
        label, at = came_from[at]
        way.append(label)
    return way[::-1]


# --- what it says ----------------------------------------------------------------------------------------------------

PAIR: Plan = (Ask(1, CANDIDATES, 2), Await(1))
IN_TURN: Plan = (Ask(1, CANDIDATES, 1), Await(1), Ask(2, CANDIDATES, 1), Await(2))
AT_ONCE: Plan = (Ask(1, CANDIDATES, 1), Ask(2, EVALUATION, 1), Await(1), Await(2))
UNEQUAL: Plan = (Ask(1, CANDIDATES, 2), Ask(2, EVALUATION, 1), Await(1), Await(2))
ONES: Plan = (Ask(1, CANDIDATES, 1), Ask(2, EVALUATION, 1), Await(1), Ask(3, CANDIDATES, 1), Await(2), Await(3))

SIZES = {
    "no death": Rules(ONES, deaths=0),
    "all are forgotten": Rules(FORGETTING, workers=1),
}
BIG_SIZES = {
    "a death": Rules(PAIR),
    "a death before the place has another request": Rules(IN_TURN),
    "looks at any time": Rules(PAIR, tick=True),
    "two deaths of a worker alone": Rules(UNEQUAL, workers=1, deaths=2),
    "a request fails, and a death of a worker alone": Rules(FAILING, workers=1),
    "several jobs": Rules(deaths=0),
    "a death among two requests": Rules(AT_ONCE),
    "a death, and looks at any time": Rules(IN_TURN, tick=True),
    "two deaths": Rules(PAIR, deaths=2),
    "a request fails": Rules(FAILING, deaths=0),
    "all are forgotten": Rules(FORGETTING, deaths=0),
    "three workers": Rules(AT_ONCE, workers=3, deaths=0),
}


@pytest.mark.parametrize("rules", SIZES.values(), ids=SIZES)
def test_every_order_of_steps_ends_well(rules: Rules) -> None:
    assert explore(rules) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("rules", BIG_SIZES.values(), ids=BIG_SIZES)
def test_every_order_of_more_steps_ends_well(rules: Rules) -> None:
    assert explore(rules) > 10_000


@pytest.mark.parametrize(
    "rules",
    [
        Rules(PAIR, deaths=0),
        Rules(UNEQUAL, workers=1),
        Rules(IN_TURN, workers=1, deaths=2),
        Rules(FAILING, workers=1, deaths=0),
    ],
    ids=["no death", "a death", "two deaths", "a request fails"],
)
def test_what_counts_as_alike_goes_on_alike(rules: Rules) -> None:
    assert explore(rules, is_doubted=True) > 500


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PAIR, IN_TURN], ids=["a pair", "in turn"])
def test_what_counts_as_alike_goes_on_alike_with_deaths_among_two(plan: Plan) -> None:
    assert explore(Rules(plan), is_doubted=True) > 10_000


ALONE = Rules(PAIR, workers=1)  # a replacement has to do it all
TURNS = Rules(IN_TURN, deaths=0)
BOTH = Rules(AT_ONCE, deaths=0)
FAILED = Rules(FAILING, deaths=0)
BROKEN_RULES = {
    "a claim in a word that has changed": (replace(TURNS, whole_word=False), "under the old ticket 1"),
    "claim, then say so": (replace(ALONE, said_before_claim=False), "runs job 1 of place 0 again"),
    "the job, then its place": (
        replace(ALONE, plan=UNEQUAL, workers=2, place_before_job=False),
        "is taken for one that worker",
    ),
    "claiming is over, then the row": (replace(ALONE, row_before_unsaid=False), "runs job 1 of place 0 again"),
    "commit, then the value": (
        replace(ALONE, plan=IN_TURN, tick=True, value_before_commit=False),
        r"request 1 collects \(0,\)",
    ),
    "leave the job, then commit": (replace(ALONE, commit_before_leaving=False), "runs job 1 of place 0 again"),
    "no look": (replace(BOTH, look_is_sent=False), "request 1 is done, and the parent is not told"),
    "count, then commit": (replace(BOTH, commit_before_count=False), "is done, and the parent is not told"),
    "done before it is counted": (replace(TURNS, count_awaited=False), "is done, and the parent is not told"),
    "sleep while claiming": (replace(ALONE, plan=IN_TURN, unsaid_before_sleep=False), "there is no end"),
    "the row of a dead worker": (replace(ALONE, clean_row=False), "is taken for one that worker 0 runs"),
    "who sleeps later is not told": (replace(TURNS, offers_stay=False), "there is no end"),
    "a replacement sleeps at once": (replace(ALONE, new_one_looks=False), "there is no end"),
    "again while some are unclaimed": (replace(ALONE, exhausted_before_again=False), "runs job 0 of place 0 again"),
    "somebody is claiming": (replace(ALONE, heed_claiming=False), "runs job 1 of place 0 again"),
    "flags, then rows": (replace(ALONE, rows_before_flags=False), "runs job 1 of place 0 again"),
    "all jobs again": (replace(ALONE, only_uncommitted=False), "runs job 0 of place 0 again"),
    "orphans are looked for once": (replace(ALONE, orphans_until_found=False), "job 0 of request 1 is lost"),
    "a failed request stays open": (replace(FAILED, close_failed=False), "under the old ticket 1"),
    "workers go on after an error": (replace(FAILED, kill_first=False), "under the old ticket 1"),
    "workers start before jobs are opened again": (replace(FAILED, start_last=False), "two workers run job 0 of place 1"),
    "a forgotten request stays open": (replace(FAILED, plan=FORGETTING, close_forgotten=False), "under the old ticket 1"),
    "flags of the request before": (replace(TURNS, old_flags_count_not=False), "runs job 0 of place 0 again"),
    "inputs after the jobs are open": (replace(BOTH, order=(TODO, OPEN, OFFER, INPUTS)), r"request 1 collects \(0,\)"),
    "the list after the jobs are open": (replace(BOTH, order=(INPUTS, OPEN, OFFER, TODO)), "of a list of 0"),
    "the offer, then the jobs": (replace(TURNS, order=(INPUTS, TODO, OFFER, OPEN)), "there is no end"),
}
SLOW = ("the job, then its place",)


@pytest.mark.parametrize(
    ("rules", "violation"),
    [pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, case in BROKEN_RULES.items()],
)
def test_a_broken_rule_is_found(rules: Rules, violation: str) -> None:
    with pytest.raises(Broken, match=violation):
        explore(rules)


def test_every_rule_is_broken_once() -> None:
    kept = [item.name for item in fields(Rules) if all(getattr(r, item.name) == item.default for r, _ in BROKEN_RULES.values())]
    assert kept == []


def test_a_violation_comes_with_the_way_to_it() -> None:
    with pytest.raises(Broken) as caught:
        explore(replace(ALONE, plan=IN_TURN, tick=True, value_before_commit=False))
    way = str(caught.value).splitlines()
    assert [line for line in way if line.startswith("parent")][:4] == [
        "parent writes the inputs of request 1 into place 0",
        "parent writes todo (0,)",
        "parent opens 1 jobs of request 1 under ticket 1",
        "parent offers 1 jobs",
    ]
    assert way[-1] == "request 1 collects (0,)"
    assert [line for line in way if line.endswith("commits job 0 of place 0")] == ["worker 0 commits job 0 of place 0"]
