/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ramroom.c: see ramroom.h.
 *
 * The page cache of files is given back before anybody is killed; a tmpfs's pages are not in its
 * lists. Swap counts as far as it is free, on the host and by the cgroup's own limit. An unreadable
 * file limits nothing. Each level counts, up to the root of the tree that is mounted: a container
 * without a cgroup namespace sees its own cgroup there, under a path of the host that leads
 * nowhere.
 */
#include "ramroom.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memgroup.h"

#define BUDGET_PART 16u
#define BUDGET_MOST (INT64_C(256) << 20)
#define NARROW      (UINT64_C(1) << 30)
#define BYTES_A_NS  8u /* at most, by all others together */
/* of a limit: for what the kernel needs beside it, and for buffers of an eviction */
#define SPARED_PART 8u
#define SPARED_MOST (UINT64_C(64) << 20)
#define TEXT        16384u

/* A whole small file, ended by a zero. False: it is not there. */
static bool read_text(const char *directory, const char *name, char ret[TEXT])
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) < sizeof(path) &&
	       shms_read_text(path, ret, TEXT) >= 0;
}

/* "max", and what is no number: false. */
static bool number(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return end != text && errno == 0;
}

static bool read_number(const char *directory, const char *name, char text[TEXT], uint64_t *ret)
{
	return read_text(directory, name, text) && number(text, ret);
}

/* The number behind a word that begins a line; 0: it is not there. */
static uint64_t field(const char *text, const char *word)
{
	size_t n = strlen(word);
	uint64_t value;

	for (const char *at = text; (at = strstr(at, word)) != NULL; at += n) {
		if ((at == text || at[-1] == '\n') && (at[n] == ' ' || at[n] == ':') &&
		    number(at + n + strspn(at + n, ": "), &value))
			return value;
	}
	return 0;
}

static void least(struct shms_ramroom_look *io, uint64_t room, uint64_t limit, const char *path)
{
	size_t n;

	if (room >= io->room)
		return;
	io->room = room;
	io->limit = limit;
	n = strnlen(path, sizeof(io->path) - 1);
	memcpy(io->path, path, n);
	io->path[n] = '\0';
}

/* *ret_swap: bytes that are free on the host. */
static bool look_at_host(const char *proc, char text[TEXT], struct shms_ramroom_look *io,
			 uint64_t *ret_swap)
{
	char path[PATH_MAX];
	uint64_t available;

	*ret_swap = 0;
	if (!read_text(proc, "meminfo", text))
		return false;
	*ret_swap = field(text, "SwapFree") * 1024;
	available = field(text, "MemAvailable") * 1024;
	snprintf(path, sizeof(path), "%s/meminfo", proc);
	if (available)
		least(io, available + *ret_swap, field(text, "MemTotal") * 1024, path);
	return available != 0;
}

/* One cgroup of that version. */
static void look_at_group(const char *path, bool v1, char text[TEXT], uint64_t swap,
			  struct shms_ramroom_look *io)
{
	uint64_t limit, used, swap_limit, swap_used, cache, room;

	if (!read_number(path, v1 ? "memory.limit_in_bytes" : "memory.max", text, &limit) ||
	    !read_number(path, v1 ? "memory.usage_in_bytes" : "memory.current", text, &used))
		return;
	/* Nothing is left to be said where it lets in more than was found below. */
	if (shms_minus(limit, used) >= io->room || !read_text(path, "memory.stat", text))
		return;
	cache = field(text, v1 ? "total_inactive_file" : "inactive_file") +
		field(text, v1 ? "total_active_file" : "active_file");
	used = shms_minus(used, cache);
	room = shms_minus(limit, used);
	if (swap && !v1 && read_number(path, "memory.swap.max", text, &swap_limit) &&
	    read_number(path, "memory.swap.current", text, &swap_used))
		swap = shms_minus(swap_limit, swap_used) < swap ? shms_minus(swap_limit, swap_used)
								: swap;
	room += swap;
	if (v1 && read_number(path, "memory.memsw.limit_in_bytes", text, &swap_limit) &&
	    read_number(path, "memory.memsw.usage_in_bytes", text, &swap_used))
		room = shms_minus(swap_limit, shms_minus(swap_used, cache)) < room
			       ? shms_minus(swap_limit, shms_minus(swap_used, cache))
			       : room;
	least(io, room, limit, path);
}

/* Where the tree of that version is; both may be, and then memory is a
 * controller of one of them. */
static bool find_tree(const char *cgroup, bool v1, char ret[PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%s/%s", cgroup, v1 ? "memory" : "unified");
	if (access(ret, X_OK) == 0)
		return true;
	snprintf(ret, PATH_MAX, "%s", cgroup);
	return !v1 && access(ret, X_OK) == 0;
}

static void look_at_groups(const char *proc, const char *cgroup, char text[TEXT], uint64_t swap,
			   struct shms_ramroom_look *io)
{
	char path[PATH_MAX], tree[PATH_MAX], group[2 * PATH_MAX];
	bool v1;

	if (!read_text(proc, "self/cgroup", text))
		return;
	v1 = shms_memgroup_path(text, strlen(text), 1, path, sizeof(path)) &&
	     find_tree(cgroup, true, tree);
	if (!v1 && (!shms_memgroup_path(text, strlen(text), 2, path, sizeof(path)) ||
		    !find_tree(cgroup, false, tree)))
		return;
	do {
		snprintf(group, sizeof(group), "%s%s", tree, path[1] ? path : "");
		look_at_group(group, v1, text, swap, io);
	} while (shms_memgroup_parent(path));
}

bool shms_ramroom_look(const char *proc, const char *cgroup, struct shms_ramroom_look *ret)
{
	char *text = malloc(TEXT);
	uint64_t swap;

	*ret = (struct shms_ramroom_look){.room = UINT64_MAX};
	if (!text)
		return false;
	look_at_host(proc ? proc : "/proc", text, ret, &swap);
	look_at_groups(proc ? proc : "/proc", cgroup ? cgroup : "/sys/fs/cgroup", text, swap, ret);
	free(text);
	if (ret->room == UINT64_MAX)
		return false;
	ret->room = shms_minus(ret->room, ret->limit / SPARED_PART < SPARED_MOST
						  ? ret->limit / SPARED_PART
						  : SPARED_MOST);
	return true;
}

bool shms_ramroom_take_among(struct shms_ramroom *r, uint64_t bytes)
{
	struct shms_ramroom_look l;
	uint64_t room = shms_ramroom_look(NULL, NULL, &l) ? l.room : UINT64_MAX;
	int64_t budget =
		room / BUDGET_PART < BUDGET_MOST ? (int64_t)(room / BUDGET_PART) : BUDGET_MOST;

	atomic_store_explicit(&r->narrow, room < NARROW, memory_order_relaxed);
	atomic_store_explicit(&r->until_ns,
			      shms_now_mono_ns() +
				      (room < UINT64_MAX / 2 ? room / BYTES_A_NS : INT64_MAX),
			      memory_order_relaxed);
	atomic_store_explicit(&r->left, bytes <= room ? budget : 0, memory_order_relaxed);
	return bytes <= room;
}
