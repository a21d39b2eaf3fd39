/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onethread.h: is this process's only thread asking? Then nobody cancels it, nobody forks beside
 * it, and what guards against that can be left out. The C library knows (2.32 and later); elsewhere
 * the answer is no. A thread that is started makes it no before it runs.
 */
#ifndef SHMS_ONETHREAD_H
#define SHMS_ONETHREAD_H

#include <features.h>

#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#define SHMS_ONE_THREAD (__libc_single_threaded != 0)
#endif
#endif
#ifndef SHMS_ONE_THREAD
#define SHMS_ONE_THREAD 0
#endif

#endif
