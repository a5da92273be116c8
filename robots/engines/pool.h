// Threads that share the work on many worlds: what the sources beside it include.
#ifndef POOL_H
#define POOL_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

// Work on n items. Each returns 0 if it failed.
typedef struct {
  int (*one)(void* all, int i);
  void* all;
  int n, next, failed;
} Job;

static void work(Job* job) {
  for (long i; (i = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->n;)
    if (!job->one(job->all, i)) __atomic_store_n(&job->failed, (int)i + 1, __ATOMIC_RELAXED);
}

// Threads that help with one job at a time. Who gives a job waits only for helpers that have begun
// with it, so that a core which others keep busy costs little.
typedef struct {
  int owner;              // The process: helpers are not there after a fork.
  int is_taken, n, turn;  // Whether a job is given; helpers; number of the job.
  int state, sleeping;    // Helpers within the job, times two, and one if it is open.
  int most;               // Helpers that may be within it.
  Job* job;
  pthread_mutex_t lock;
  pthread_cond_t wake;
} Pool;
enum { OPEN = 1, INSIDE = 2, MOST_HELPERS = 63, SPINS = 2000 };
static Pool* pool;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static void* help(void* argument) {
  Pool* p = argument;
  for (int done = 0;;) {
    int spins = 0;
    while (__atomic_load_n(&p->turn, __ATOMIC_SEQ_CST) == done && spins++ < SPINS) relax();
    if (__atomic_load_n(&p->turn, __ATOMIC_SEQ_CST) == done) {
      pthread_mutex_lock(&p->lock);
      __atomic_fetch_add(&p->sleeping, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(&p->turn, __ATOMIC_SEQ_CST) == done)
        pthread_cond_wait(&p->wake, &p->lock);
      __atomic_fetch_sub(&p->sleeping, 1, __ATOMIC_SEQ_CST);
      pthread_mutex_unlock(&p->lock);
    }
    done = __atomic_load_n(&p->turn, __ATOMIC_SEQ_CST);
    int seen = __atomic_load_n(&p->state, __ATOMIC_SEQ_CST);
    while ((seen & OPEN) && seen / INSIDE < __atomic_load_n(&p->most, __ATOMIC_SEQ_CST))
      if (__atomic_compare_exchange_n(&p->state, &seen, seen + INSIDE, 0, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
        work(p->job);
        __atomic_fetch_sub(&p->state, INSIDE, __ATOMIC_SEQ_CST);
        break;
      }
  }
  return 0;
}

// Start helpers until there are n, as far as the system allows. Signals are for other threads.
static void hire(Pool* p, int n) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (pthread_t one; p->n < n && !pthread_create(&one, 0, help, p); p->n++) pthread_detach(one);
  pthread_sigmask(SIG_SETMASK, &before, 0);
}

// The pool of this process for one job; null if another thread's job has it.
static Pool* take_pool(void) {
  Pool *p = __atomic_load_n(&pool, __ATOMIC_SEQ_CST), *seen = p;
  if (!p || p->owner != getpid()) {
    if (!(p = calloc(1, sizeof(Pool)))) return 0;
    p->owner = getpid();
    pthread_mutex_init(&p->lock, 0);
    pthread_cond_init(&p->wake, 0);
    // The parent's, which a fork may have left in any state, stays as it is.
    if (!__atomic_compare_exchange_n(&pool, &seen, p, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
      free(p);
      return 0;
    }
  }
  return __atomic_exchange_n(&p->is_taken, 1, __ATOMIC_SEQ_CST) ? 0 : p;
}

static void share(Pool* p, Job* job, int helpers) {
  hire(p, helpers < MOST_HELPERS ? helpers : MOST_HELPERS);
  p->job = job;
  __atomic_store_n(&p->most, helpers, __ATOMIC_SEQ_CST);
  __atomic_store_n(&p->state, OPEN, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&p->turn, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&p->sleeping, __ATOMIC_SEQ_CST)) {
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
  }
  work(job);
  __atomic_fetch_and(&p->state, ~OPEN, __ATOMIC_SEQ_CST);
  for (int spins = 0; __atomic_load_n(&p->state, __ATOMIC_SEQ_CST); spins++)
    spins < SPINS ? relax() : (void)sched_yield();
  __atomic_store_n(&p->is_taken, 0, __ATOMIC_SEQ_CST);
}

// Do the work on n items, with several threads if this process's are free. Return 0, or the number
// of one that failed, from 1.
static int work_on(int (*one)(void*, int), void* all, int n, int threads) {
  Job job = {one, all, n, 0, 0};
  int helpers = (threads < n ? threads : n) - 1;
  Pool* p = helpers > 0 ? take_pool() : 0;
  if (p) share(p, &job, helpers);
  else work(&job);
  return job.failed;
}

#endif
