/* The workers' protocol on threads, for ThreadSanitizer: tests/src/sanitize.py builds and runs it, also with an error built in.
 *
 * One parent keeps a request open in each place; workers claim jobs, read inputs, fill slots and commit. Everything but the
 * words, rows and flags is plain memory. No message orders anything: what orders memory is the functions of scalar.c alone.
 * Workers die at the worst moments: they stop, and go on as new ones once the parent has cleaned their row.
 */
#include "../../src/scalar.c"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

const fastes_kernels fastes_kernels_baseline, fastes_kernels_avx2, fastes_kernels_avx512; /* scalar.c names them */

enum { WORKERS = 4, PLACES = 2, JOBS = 6, INPUTS = 8, REQUESTS = 12000, DEATHS = 23 };
enum { JOB, PLACE, TICKET, CLAIMING, COLUMNS = 8 };
enum { ALIVE, DEAD, END };

/* What the functions under test do here, unless the compiler is told of an error to make instead. */
static inline void relaxed_store(int64_t *at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
static inline int64_t relaxed_load(const int64_t *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
#define COMMIT fastes_commit
#define OPEN fastes_commit
#define NOTE fastes_commit
#define SEE_FLAG fastes_committed
#define SEE_ROW fastes_committed
#if defined(RELAXED_COMMIT)
#undef COMMIT
#define COMMIT relaxed_store
#elif defined(RELAXED_OPEN)
#undef OPEN
#define OPEN relaxed_store
#elif defined(RELAXED_NOTE)
#undef NOTE
#define NOTE relaxed_store
#elif defined(RELAXED_FLAG)
#undef SEE_FLAG
#define SEE_FLAG relaxed_load
#elif defined(RELAXED_ROW)
#undef SEE_ROW
#define SEE_ROW relaxed_load
#elif defined(RELAXED_CLAIM) || defined(PLAIN_CLAIM)
#define fastes_claim worse_claim
static int64_t worse_claim(int64_t *unclaimed, int64_t stride, int64_t count, int64_t *at) {
    for (int64_t k = 0; k < count; k++) {
        int64_t *word = &unclaimed[k * stride], value = relaxed_load(word);
        *at = k;
#if defined(PLAIN_CLAIM)
        if (value & 0xffffffff) return *word = value - 1;
#else
        while (value & 0xffffffff)
            if (__atomic_compare_exchange_n(word, &value, value - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return value - 1;
#endif
    }
    return -1;
}
#endif

typedef struct { /* of a request */
    int64_t inputs[INPUTS], todo[JOBS];    /* plain: written by the parent before it opens jobs */
    int64_t value[JOBS], runs[JOBS];       /* plain: written by who claimed the job */
    int64_t committed[JOBS];
    int64_t first, ticket, left, number;   /* the parent's own */
} place;

static place places[PLACES];
static int64_t unclaimed[PLACES][8], rows[WORKERS][COLUMNS], state[WORKERS];
static int64_t taken[WORKERS], deaths[WORKERS]; /* a worker's own until it has ended */
static int64_t last_ticket, lost_at, reruns, kept;
static int has_orphans;

static int64_t expected(int64_t number, int64_t job) { return number * INPUTS * 100 + job; }

/* Die here, now and then; returns whether to end once a successor is wanted. As waiting for a process does, `state` orders. */
static int dies(int64_t me, int64_t *chance) {
    if (++*chance % DEATHS) return 0;
    deaths[me]++;
    int64_t alive = ALIVE;
    if (!__atomic_compare_exchange_n(&state[me], &alive, DEAD, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 1;
    while (__atomic_load_n(&state[me], __ATOMIC_ACQUIRE) == DEAD) sched_yield();
    return 1;
}

static void *work(void *argument) {
    int64_t me = (intptr_t)argument, *row = rows[me], number = 0, word, chance = 7 * me;
    while (__atomic_load_n(&state[me], __ATOMIC_ACQUIRE) != END) {
#if !defined(UNSAID_CLAIM)
        NOTE(&row[CLAIMING], 1);
#endif
        if ((word = fastes_claim(&unclaimed[0][0], 8, PLACES, &number)) < 0) {
            NOTE(&row[CLAIMING], 0);
            sched_yield();
            continue;
        }
        place *p = &places[number];
        taken[me]++;
        if (dies(me, &chance)) continue;
        if (chance % 2) sched_yield(); /* the worst place to be slow in */
#if defined(EARLY_UNSAY)
        NOTE(&row[CLAIMING], 0);
        sched_yield();
#endif
        int64_t job = p->todo[word & 0xffffffff], ticket = word >> 32, sum = job;
        NOTE(&row[PLACE], number);
        NOTE(&row[TICKET], ticket);
        NOTE(&row[JOB], job);
        NOTE(&row[CLAIMING], 0);
        if (dies(me, &chance)) continue;
        for (int i = 0; i < INPUTS; i++) sum += p->inputs[i];
        sched_yield(); /* an episode is long: others go on meanwhile */
#if defined(EARLY_COMMIT)
        COMMIT(&p->committed[job], ticket);
        sched_yield();
#endif
        p->value[job] = sum;
        p->runs[job]++;
#if defined(EARLY_LEAVE)
        NOTE(&row[JOB], -1);
        sched_yield();
#endif
#if !defined(EARLY_COMMIT)
        COMMIT(&p->committed[job], ticket);
#endif
        if (dies(me, &chance)) continue;
        NOTE(&row[JOB], -1);
    }
    return NULL;
}

static void fail(const char *what, int64_t number, int64_t job) {
    printf("request %lld, job %lld: %s\n", (long long)number, (long long)job, what);
    exit(1);
}

static void open_jobs(place *p, int64_t count) {
    p->ticket = ++last_ticket;
    p->left = count;
    OPEN(&unclaimed[p - places][0], p->ticket << 32 | count);
}

static void submit(place *p, int64_t number) {
    for (int i = 0; i < INPUTS; i++) p->inputs[i] = number * 100;
    for (int64_t job = 0; job < JOBS; job++) {
        p->todo[job] = job;
        p->runs[job] = 0;
    }
    p->number = number;
    p->first = last_ticket + 1;
    open_jobs(p, JOBS);
}

static int64_t uncommitted(place *p, int64_t *jobs) {
    int64_t count = 0;
    for (int64_t job = 0; job < JOBS; job++)
        if (SEE_FLAG(&p->committed[job]) < p->first) jobs[count++] = job;
    return count;
}

/* Open again what nobody is at, where nobody is about to claim a job. */
static void open_orphans(place *p) {
    int64_t left[JOBS], count, orphans = 0, held[JOBS] = {0};
#if defined(EARLY_FLAGS)
    count = uncommitted(p, left);
    sched_yield();
#endif
    for (int w = 0; w < WORKERS; w++) {
        if (SEE_ROW(&rows[w][CLAIMING])) {
#if !defined(HEEDLESS)
            return;
#endif
        }
        int64_t job = SEE_ROW(&rows[w][JOB]);
        if (job >= 0 && SEE_ROW(&rows[w][PLACE]) == p - places && SEE_ROW(&rows[w][TICKET]) >= p->first) held[job] = 1;
    }
#if !defined(EARLY_FLAGS)
    count = uncommitted(p, left);
#endif
    for (int64_t k = 0; k < count; k++)
        if (!held[left[k]]) left[orphans++] = left[k];
    if (!orphans) return;
    for (int64_t k = 0; k < orphans; k++) p->todo[k] = left[k];
    kept += orphans < count; /* others are still at theirs */
    reruns += orphans;
    open_jobs(p, orphans);
}

static void replace_the_dead(void) {
    for (int w = 0; w < WORKERS; w++) {
        if (__atomic_load_n(&state[w], __ATOMIC_ACQUIRE) != DEAD) continue;
        rows[w][JOB] = -1;
        rows[w][CLAIMING] = 0;
        has_orphans = 1;
        lost_at = ++last_ticket;
        __atomic_store_n(&state[w], ALIVE, __ATOMIC_RELEASE);
    }
}

/* Whether a request is done. */
static int look_at(place *p) {
    int64_t left[JOBS];
    if (fastes_committed(&unclaimed[p - places][0]) & 0xffffffff) return 0;
    if (!uncommitted(p, left)) return 1;
    if (has_orphans) open_orphans(p);
    return 0;
}

static void collect(place *p) {
    for (int64_t job = 0; job < JOBS; job++) {
        if (p->value[job] != expected(p->number, job)) fail("wrong value", p->number, job);
        if (p->runs[job] < 1) fail("not run", p->number, job);
    }
}

int main(void) {
    pthread_t threads[WORKERS];
    int64_t submitted = 0, collected = 0;
    for (intptr_t w = 0; w < WORKERS; w++) {
        rows[w][JOB] = -1;
        if (pthread_create(&threads[w], NULL, work, (void *)w)) return 2;
    }
    for (int k = 0; k < PLACES; k++) submit(&places[k], ++submitted);
    while (collected < REQUESTS) {
        int may_have_orphans = 0;
        replace_the_dead();
        for (int k = 0; k < PLACES; k++) {
            place *p = &places[k];
            if (look_at(p)) {
                collect(p);
                collected++;
                submit(p, ++submitted);
            }
            may_have_orphans |= p->ticket <= lost_at;
        }
        has_orphans &= may_have_orphans;
        sched_yield();
    }
    printf("%lld requests, %lld jobs run again, %lld times while others ran; jobs and deaths of each worker:", (long long)collected,
           (long long)reruns, (long long)kept);
    int idle = 0;
    for (int w = 0; w < WORKERS; w++) {
        __atomic_store_n(&state[w], END, __ATOMIC_RELEASE);
        pthread_join(threads[w], NULL);
        printf(" %lld %lld", (long long)taken[w], (long long)deaths[w]);
        idle += taken[w] == 0 || deaths[w] == 0;
    }
    printf("\n");
    return idle || reruns == 0 || kept == 0; /* else not much was tried */
}
