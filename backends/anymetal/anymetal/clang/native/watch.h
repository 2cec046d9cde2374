// A tick (SIGXCPU) for the thread that runs a kernel, which may be endless, and what its handler needs of the platform:
// the processor time, the stack pointer that was interrupted. Beside it the modes of floating-point arithmetic.
#pragma once

#define ANYMETAL_TICK 20000000 // nanoseconds

static uint64_t processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const uint8_t *interrupted_at(const void *context) {
    const ucontext_t *c = context;
#if defined(__linux__) && defined(__x86_64__)
    return (const uint8_t *)c->uc_mcontext.gregs[REG_RSP];
#elif defined(__linux__)
    return (const uint8_t *)c->uc_mcontext.sp;
#elif defined(__x86_64__)
    return (const uint8_t *)c->uc_mcontext->__ss.__rsp;
#else
    return (const uint8_t *)__darwin_arm_thread_state64_get_sp(c->uc_mcontext->__ss);
#endif
}

static uint64_t program_counter(const void *context) {
    const ucontext_t *c = context;
#if defined(__linux__) && defined(__x86_64__)
    return (uint64_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__linux__)
    return c->uc_mcontext.pc;
#elif defined(__x86_64__)
    return c->uc_mcontext->__ss.__rip;
#else
    return (uint64_t)__darwin_arm_thread_state64_get_pc(c->uc_mcontext->__ss);
#endif
}

#ifdef __linux__
#include <sys/syscall.h>
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static int is_main_thread(void) { return syscall(SYS_gettid) == getpid(); }

typedef int watch; // a timer of the kernel: those of the C library lie in librt on old systems

static int watch_begin(watch *w) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGXCPU};
    event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
    if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, w)) return 0;
    const struct itimerspec ticks = {{0, ANYMETAL_TICK}, {0, ANYMETAL_TICK}};
    syscall(SYS_timer_settime, *w, 0, &ticks, NULL);
    return 1;
}

static void watch_end(watch *w) { syscall(SYS_timer_delete, *w); }

// A tick of a launch that has just ended may still come.
static int is_tick(const siginfo_t *info, const void *running) {
    (void)running;
    return info->si_code == SI_TIMER;
}
#else
#include <errno.h>
#include <pthread.h>

static int is_main_thread(void) { return pthread_main_np(); }

typedef struct {
    pthread_t watcher, watched;
    pthread_mutex_t lock;
    pthread_cond_t over;
    int is_over;
} watch;

static void *watching(void *argument) {
    watch *w = argument;
    pthread_mutex_lock(&w->lock);
    while (!w->is_over) {
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_nsec += ANYMETAL_TICK;
        if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
        if (pthread_cond_timedwait(&w->over, &w->lock, &at) == ETIMEDOUT) pthread_kill(w->watched, SIGXCPU);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int watch_begin(watch *w) {
    *w = (watch){.watched = pthread_self(), .lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // an interrupt is for the thread that runs the kernel
    const int failed = pthread_create(&w->watcher, NULL, watching, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

static void watch_end(watch *w) {
    pthread_mutex_lock(&w->lock);
    w->is_over = 1;
    pthread_cond_signal(&w->over);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->watcher, NULL);
}

static int is_tick(const siginfo_t *info, const void *running) {
    (void)info;
    return running != NULL;
}
#endif

// Subnormal numbers are zero: inputs and results on x86-64, both by one bit on arm64.
#if defined(__x86_64__)
#define FLUSH_DENORMALS 0x8040u
static uint64_t floating_mode(void) { return __builtin_ia32_stmxcsr(); }
static void set_floating_mode(uint64_t mode) { __builtin_ia32_ldmxcsr((uint32_t)mode); }
#else
#define FLUSH_DENORMALS (UINT64_C(1) << 24)
static uint64_t floating_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static void set_floating_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#endif
