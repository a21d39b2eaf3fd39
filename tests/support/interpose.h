/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interpose.h: a libc function of this program, replaced: the library is linked statically into the
 * test, so its calls come here. Each test file defines the functions that it wants to fail, and
 * calls the real one through NEXT().
 */
#ifndef SHMSTORE_TEST_INTERPOSE_H
#define SHMSTORE_TEST_INTERPOSE_H

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* The address of the function, not a call: ISO C has no cast from data to function pointers. */
#define NEXT(type, name)                                         \
	__extension__({                                          \
		static type next_;                               \
		if (!next_) {                                    \
			void *p_ = dlsym(RTLD_NEXT, name);       \
			memcpy((void *)&next_, &p_, sizeof(p_)); \
		}                                                \
		next_;                                           \
	})

/*
 * libc's syscall(), with as many arguments as a call can have: of those that it was not given some
 * bytes of the stack are passed on, which the kernel ignores.
 */
__attribute__((no_sanitize("address"))) static inline long interpose_syscall(long number,
									     va_list ap)
{
	typedef long fn(long, ...);
	long a[6];

	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	return NEXT(fn *, "syscall")(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Armed with n, the n-th call from now on (from 1) is the one. */
static int interpose_countdown;
static inline int interpose_now(void)
{
	return interpose_countdown > 0 && --interpose_countdown == 0;
}

#endif
