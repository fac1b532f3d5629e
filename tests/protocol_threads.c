/* The workers' protocol on threads, for ThreadSanitizer: tests/sanitize.py builds and runs it, also with an error built in.
 *
 * One parent opens rounds; workers claim jobs, read its inputs, fill slots and commit. Everything but the counters and flags
 * is plain memory. Messages order nothing here (relaxed), so that what orders memory is the functions of scalar.c alone.
 * Some jobs are dropped by who claimed them, as by a worker that dies, and come again in the generation's next round.
 */
#include "../src/scalar.c"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

const fastes_kernels fastes_kernels_baseline, fastes_kernels_avx2, fastes_kernels_avx512; /* scalar.c names them */

enum { WORKERS = 4, JOBS = 12, INPUTS = 8, GENERATIONS = 10000, DROPS = 9 };
#define END ((int64_t)-1)

/* What the functions under test do here, unless the compiler is told of an error to make instead. */
#define COMMIT fastes_commit
#define OPEN fastes_commit
#if defined(RELAXED_COMMIT)
#undef COMMIT
#define COMMIT(flag, value) __atomic_store_n(flag, value, __ATOMIC_RELAXED)
#elif defined(RELAXED_OPEN)
#undef OPEN
#define OPEN(flag, value) __atomic_store_n(flag, value, __ATOMIC_RELAXED)
#elif defined(RELAXED_CLAIM)
#define fastes_claim relaxed_claim
static int64_t relaxed_claim(int64_t *counter, int64_t round, int64_t limit) {
    int64_t value = __atomic_load_n(counter, __ATOMIC_RELAXED);
    do {
        if (value >> 32 != round || (value & 0xffffffff) >= limit) return -1;
    } while (!__atomic_compare_exchange_n(counter, &value, value + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return value & 0xffffffff;
}
#elif defined(PLAIN_CLAIM)
#define fastes_claim plain_claim
static int64_t plain_claim(int64_t *counter, int64_t round, int64_t limit) {
    return *counter >> 32 == round && (*counter & 0xffffffff) < limit ? (*counter)++ & 0xffffffff : -1;
}
#endif

static int64_t counter, committed[JOBS];             /* the block's next_todo and committed */
static int64_t inputs[INPUTS], todo[JOBS];           /* plain: written by the parent between rounds */
static int64_t value[JOBS], runs[JOBS];              /* plain: written by who claimed the job */
static int64_t message, entered[WORKERS], done[WORKERS];
static int64_t taken[WORKERS];                       /* jobs that a worker claimed; its own until it has ended */

static int64_t expected(int64_t generation, int64_t job) { return generation * INPUTS * 100 + job; }

static int is_dropped(int64_t round, int64_t job) { return (round * 31 + job * 7) % DROPS == 0; }

static void run(int64_t job, int64_t round) {
    int64_t sum = job;
    for (int i = 0; i < INPUTS; i++) sum += inputs[i];
    sched_yield(); /* an episode is long: others go on meanwhile */
    if (is_dropped(round, job)) return;
#if defined(EARLY_COMMIT)
    COMMIT(&committed[job], round);
#endif
    value[job] = sum;
    runs[job]++;
#if !defined(EARLY_COMMIT)
    COMMIT(&committed[job], round);
#endif
}

static void *work(void *argument) {
    int64_t me = (intptr_t)argument, seen = 0, now, position;
    while ((now = __atomic_load_n(&message, __ATOMIC_RELAXED)) != END) {
        int64_t round = now >> 32, num_todo = now & 0xffffffff;
        if (round == seen) {
            sched_yield();
            continue;
        }
        seen = round;
        __atomic_store_n(&entered[me], round, __ATOMIC_RELAXED);
        while ((position = fastes_claim(&counter, round, num_todo)) >= 0) {
            taken[me]++;
            run(todo[position], round);
        }
        __atomic_store_n(&done[me], round, __ATOMIC_RELEASE); /* the message that a pipe would order */
    }
    return NULL;
}

/* Every job is committed; or all are claimed, and whoever may have claimed one has nothing left to do. */
static int is_over(int64_t round, int64_t num_todo, int64_t first) {
    int64_t job = 0;
    while (job < num_todo && fastes_committed(&committed[todo[job]]) >= first) job++;
    if (job == num_todo) return 1;
    if ((fastes_committed(&counter) & 0xffffffff) < num_todo) return 0;
#if !defined(NO_WAITING)
    for (int w = 0; w < WORKERS; w++) /* after the counter: whoever moved it had entered before */
        if (__atomic_load_n(&entered[w], __ATOMIC_RELAXED) == round && __atomic_load_n(&done[w], __ATOMIC_ACQUIRE) != round)
            return 0;
#endif
    return 1;
}

static void fail(const char *what, int64_t generation, int64_t job) {
    printf("generation %lld, job %lld: %s\n", (long long)generation, (long long)job, what);
    exit(1);
}

int main(void) {
    pthread_t threads[WORKERS];
    int64_t round = 0, reruns = 0;
    for (intptr_t w = 0; w < WORKERS; w++)
        if (pthread_create(&threads[w], NULL, work, (void *)w)) return 2;
    for (int64_t generation = 1; generation <= GENERATIONS; generation++) {
        int64_t first = round + 1, num_todo = JOBS;
        for (int i = 0; i < INPUTS; i++) inputs[i] = generation * 100;
        for (int64_t job = 0; job < JOBS; job++) todo[job] = job;
        while (num_todo) {
            round++;
            OPEN(&counter, round << 32);
            __atomic_store_n(&message, round << 32 | num_todo, __ATOMIC_RELAXED);
            while (!is_over(round, num_todo, first)) sched_yield();
            int64_t left = 0;
            for (int64_t k = 0; k < num_todo; k++)
                if (fastes_committed(&committed[todo[k]]) < first) todo[left++] = todo[k];
            num_todo = left;
            reruns += left;
        }
        for (int64_t job = 0; job < JOBS; job++) {
            if (runs[job] != generation) fail("not run exactly once", generation, job);
            if (value[job] != expected(generation, job)) fail("wrong value", generation, job);
        }
    }
    __atomic_store_n(&message, END, __ATOMIC_RELAXED);
    printf("%lld rounds, %lld jobs run again; jobs of each worker:", (long long)round, (long long)reruns);
    int idle = 0;
    for (int w = 0; w < WORKERS; w++) {
        pthread_join(threads[w], NULL);
        printf(" %lld", (long long)taken[w]);
        idle += taken[w] == 0;
    }
    printf("\n");
    return idle || reruns == 0; /* else not much was tried */
}
