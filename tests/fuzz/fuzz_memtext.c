/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_memtext.c: the readers of what the kernel says of memory, on arbitrary text: /proc/meminfo,
 * memory.stat of both versions, a limit, a number, memory.events, a process's status and its
 * cgroup's path. The first byte chooses.
 *
 * Nothing is read behind the text; an amount is known or 0; what is known is not negative; a sum of
 * such is within its total; a path stays below its root.
 */
#include <stdlib.h>
#include <string.h>

#include "memgroup.h"
#include "memtext.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_known, n_unknown;

static void report(void)
{
	fprintf(stderr, "accepted: %lu, unknown: %lu\n", n_known, n_unknown);
}

static void begin(void)
{
	static bool once;

	if (!once)
		atexit(report);
	once = true;
}

static void check(struct amount a)
{
	ENSURE(a.known ? a.bytes >= 0 : a.bytes == 0);
	n_known += a.known;
	n_unknown += !a.known;
}

static void check_use(struct memlimit_use use)
{
	use = memlimit_clamp(use);
	check(use.total);
	check(use.used);
	ENSURE(!use.used.known || !use.total.known || use.used.bytes <= use.total.bytes);
}

static void read_host(const char *text, size_t n)
{
	struct memhost_fields f;

	memhost_read(&f, text, n);
	for (int swap = 0; swap < 2; swap++)
		check_use(memhost_use(&f, swap));
}

static void read_cgroup(const char *text, size_t n, int version)
{
	struct memcgroup_files f = {.limit = amount_of(1 << 30), .current = amount_of(1 << 29)};

	memcgroup_read_stat(&f, version, text, n);
	check(f.inactive_file);
	check(f.active_file);
	for (int swap = 0; swap < 2; swap++)
		check_use(memcgroup_use(&f, version, swap));
}

static void read_path(const char *text, size_t n, int version)
{
	char path[64];

	memset(path, 'x', sizeof(path));
	if (!shms_memgroup_path(text, n, version, path, sizeof(path))) {
		n_unknown++;
		return;
	}
	n_known++;
	ENSURE(memchr(path, '\0', sizeof(path)) && path[0] == '/');
	ENSURE(!strstr(path, "/../") &&
	       (strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/..") != 0));
	while (shms_memgroup_parent(path))
		ENSURE(path[0] == '/');
	ENSURE(strcmp(path, "/") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const events[] = {"low", "high", "max", "oom", "oom_kill"};
	size_t n = size ? size - 1 : 0;
	char *text;

	begin();
	if (!size)
		return 0;
	text = malloc(n ? n : 1); /* of exactly its size: a read behind it is seen */
	ENSURE(text);
	memcpy(text, data + 1, n);
	switch (data[0] % 8) {
	case 0:
		read_host(text, n);
		break;
	case 1:
	case 2:
		read_cgroup(text, n, data[0] % 8);
		break;
	case 3:
	case 4:
		read_path(text, n, data[0] % 8 - 2);
		break;
	case 5:
		check(memproc_private(text, n));
		break;
	case 6:
		for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
			check(memtext_field(text, n, events[i]));
		break;
	default:
		check(memcgroup_read_limit(text, n));
		check(memtext_number(text, n));
	}
	free(text);
	return 0;
}
