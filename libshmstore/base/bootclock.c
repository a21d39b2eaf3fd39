/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bootclock.c: CLOCK_BOOTTIME without the offset that a time namespace adds to it. The kernel tells
 * the offset in /proc/self/timens_offsets; there is no clock that goes on steadily and has none. It
 * is asked for once in a process: the offset cannot change any more when a process is in the
 * namespace, and a child may be in another one than its parent, so that it asks again.
 *
 * The file tells of the namespace that children will be in. For a process that unshared its time
 * and has no child yet that is not its own: what is in the host's namespace, by its number, has no
 * offset whatever the file says.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"

#define UNKNOWN INT64_MIN
#define INITIAL "time:[4026531834]" /* PROC_TIME_INIT_INO of the kernel's include/linux/proc_ns.h */

static _Atomic int64_t offset_ns = UNKNOWN;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget(void)
{
	atomic_store_explicit(&offset_ns, UNKNOWN, memory_order_relaxed);
}

static void at_fork(void)
{
	pthread_atfork(NULL, NULL, forget);
}

static bool in_initial(void)
{
	char text[64];
	ssize_t n = readlink("/proc/self/ns/time", text, sizeof(text) - 1);

	if (n <= 0)
		/* no such namespaces in this kernel, or no /proc: then the
		 * file is not there, either */
		return true;
	text[n] = '\0';
	return strcmp(text, INITIAL) == 0;
}

/* The offset of our clock from the host's. */
static int64_t read_offset_ns(void)
{
	char text[256];
	const char *line;
	long long seconds;
	long ns;

	if (in_initial() || shms_read_text("/proc/self/timens_offsets", text, sizeof(text)) <= 0)
		return 0;
	line = strstr(text, "boottime");
	if (!line || sscanf(line, "boottime %lld %ld", &seconds, &ns) != 2)
		return 0;
	return (int64_t)seconds * 1000000000 + ns;
}

static int64_t offset(void)
{
	int64_t ns = atomic_load_explicit(&offset_ns, memory_order_relaxed);

	if (ns != UNKNOWN)
		return ns;
	pthread_once(&once, at_fork);
	ns = read_offset_ns();
	atomic_store_explicit(&offset_ns, ns, memory_order_relaxed);
	return ns;
}

uint64_t shms_now_boot_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)((int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec - offset());
}

uint64_t shms_now_boot_ms(void)
{
	return shms_now_boot_ns() / 1000000;
}

/* When the clock was asked last, by a clock that is cheap and stands still while the host
 * sleeps, and what it said. */
static _Atomic uint64_t asked_at, said;

uint64_t shms_lately_boot_ms(void)
{
	struct timespec ts;
	uint64_t at, now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	at = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	/* acquire: the answer is of that time, or of a later one. */
	if (at - atomic_load_explicit(&asked_at, memory_order_acquire) < SHMS_BOOT_LATE_MS)
		return atomic_load_explicit(&said, memory_order_relaxed);
	now = shms_now_boot_ms();
	atomic_store_explicit(&said, now, memory_order_relaxed);
	atomic_store_explicit(&asked_at, at, memory_order_release);
	return now;
}

uint64_t shms_boot_ms_here(uint64_t host_ms)
{
	int64_t here = (int64_t)host_ms + offset() / 1000000;

	return host_ms == UINT64_MAX ? host_ms : here > 0 ? (uint64_t)here : 0;
}
