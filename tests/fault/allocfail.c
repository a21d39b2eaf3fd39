/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocfail.c: see allocfail.h. glibc lets a program define malloc and friends, and keeps its own
 * under __libc_ names. Counters are relaxed atomics: the tests that read them have one thread.
 */
#include "allocfail.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static _Atomic unsigned long n_asked, fail_at;
static _Atomic bool fail_all, armed;
static _Atomic long n_live;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define ALLOCFAIL 1
#else
#define ALLOCFAIL 0
#endif

bool allocfail_works(void)
{
	return ALLOCFAIL;
}

void allocfail_arm(unsigned long n, bool all)
{
	n_asked = 0;
	fail_at = n;
	fail_all = all;
	armed = true;
}

unsigned long allocfail_disarm(void)
{
	armed = false;
	return n_asked;
}

long allocfail_live(void)
{
	return n_live;
}

#if ALLOCFAIL
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *p);

/* The tree is built with hidden visibility; libc must see these. */
#define PUBLIC __attribute__((visibility("default")))
PUBLIC void *malloc(size_t size);
PUBLIC void *calloc(size_t n, size_t size);
PUBLIC void *realloc(void *p, size_t size);
PUBLIC void *memalign(size_t align, size_t size);
PUBLIC void *aligned_alloc(size_t align, size_t size);
PUBLIC int posix_memalign(void **ret, size_t align, size_t size);
PUBLIC void free(void *p);

static bool refused(void)
{
	if (!armed)
		return false;
	unsigned long n = ++n_asked;
	if (fail_at == 0 || (fail_all ? n < fail_at : n != fail_at))
		return false;
	errno = ENOMEM;
	return true;
}

static void *counted(void *p)
{
	if (p)
		n_live++;
	return p;
}

void *malloc(size_t size)
{
	return refused() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return refused() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
	if (size > 0 && refused())
		return NULL;
	void *q = __libc_realloc(p, size);
	if (!p)
		return counted(q);
	if (size == 0 && !q)
		n_live--;
	return q;
}

void *memalign(size_t align, size_t size)
{
	return refused() ? NULL : counted(__libc_memalign(align, size));
}

void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	void *p = memalign(align, size);
	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}

void free(void *p)
{
	if (p)
		n_live--;
	__libc_free(p);
}
#endif
