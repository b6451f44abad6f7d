// Lets a library that is compiled with a newer glibc and libstdc++ run with those of manylinux_2_28: what it would need
// of the newer ones is here, hidden.
// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <time.h>

// 2.32: "there is only one thread" spares libstdc++ an atomic count; it may always be no.
char __libc_single_threaded = 0;

// 2.29: exp and log have a version that does not set errno; the older one is the same function behind it.
double old_exp(double), old_log(double);
__asm__(".symver old_exp, exp@GLIBC_2.2.5");
__asm__(".symver old_log, log@GLIBC_2.2.5");
double exp(double x) { return old_exp(x); }
double log(double x) { return old_log(x); }

// 2.30: waits until a time of a given clock; the older one waits until a time of day.
int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
  struct timespec now, day;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &day);
  long long left = (until->tv_sec - now.tv_sec) * 1000000000LL + until->tv_nsec - now.tv_nsec;
  left = (left > 0 ? left : 0) + day.tv_nsec;
  const struct timespec end = {day.tv_sec + left / 1000000000, left % 1000000000};
  return pthread_cond_timedwait(condition, mutex, &end);
}

// GLIBCXX 3.4.29: C++20's str() of string streams; the older one takes and returns the same.
#define STRING_STREAM "St7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv"
void *old_str(void *result, const void *stream) __asm__("_ZNK" STRING_STREAM);
void *new_str(void *result, const void *stream) __asm__("_ZNKR" STRING_STREAM);
void *new_str(void *result, const void *stream) { return old_str(result, stream); }
