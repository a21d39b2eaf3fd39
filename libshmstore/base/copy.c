/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: large copies by one instruction.
 *
 * On a processor with fast short REP MOVSB (FSRM: Intel since Ice Lake, AMD since Zen 3) that instruction writes whole cache lines without
 * reading them first, and decides by itself what stays in the caches. The C library uses it up to the size of the second-level cache, and from
 * there on its own loops, whose choice depends on what size the shared cache says it has; in a virtual machine that may be any number.
 * Measured on an EPYC of family 26, memcpy() of glibc 2.36 beside REP MOVSB, in us: 1 MiB 16 and 15, 4 MiB 66 and 62, 16 MiB 469 and 362, 64 MiB
 * 3,164 and 2,382. The kernel copies in the same way, so a write() had this speed before.
 *
 * Only to addresses that are multiples of 64, which all buffers of objects are: with others some processors take a multiple of the time.
 * Rejected: stores past the caches (64 MiB as fast, up to 16 MiB 1.1 to 1.7 times slower, and the reader finds nothing in a cache).
 */
#include "copy.h"

#include <stdint.h>
#include <string.h>

/* Sanitizers see what memcpy() does, and nothing of an instruction. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__x86_64__) && !defined(SANITIZED)
#include <cpuid.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LARGE ((size_t)256 << 10) /* smaller ones the C library copies as fast */
#define ALIGN 64u

#define LEAF_FEATURES 7u
#define EDX_FSRM      (1u << 4)

enum {
	UNKNOWN,
	YES,
	NO
};

static bool fast(void)
{
	static _Atomic int known;
	int is = atomic_load_explicit(&known, memory_order_relaxed);
	unsigned a, b, c, d;

	/* Once: on a virtual machine the question goes to its host. */
	if (is == UNKNOWN) {
		is = __get_cpuid_count(LEAF_FEATURES, 0, &a, &b, &c, &d) && (d & EDX_FSRM) ? YES : NO;
		atomic_store_explicit(&known, is, memory_order_relaxed);
	}
	return is == YES;
}

void shms_copy(void *to, const void *from, size_t size)
{
	if (size < LARGE || (uintptr_t)to % ALIGN || !fast()) {
		memcpy(to, from, size);
		return;
	}
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}
#else
void shms_copy(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
}
#endif
