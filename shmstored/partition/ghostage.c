/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghostage.c: a table of holds, by inode and pid. The kernel does not tell when a file lost
 * its last name, so an age is counted from the survey that met the hold first: too young by at
 * most the time between two surveys. A tmpfs gives an inode number once, so the pair is not
 * taken for another one later on.
 */
#include "ghostage.h"

#include <errno.h>
#include <stdlib.h>

#include "hash.h"

struct hold_key {
	uint64_t inode, pid;
};

struct hold {
	struct hold_key key;
	uint64_t since_ns;
	bool seen, told;
	UT_hash_handle hh;
};

struct ghostage {
	struct hold *holds;
};

int ghostage_new(struct ghostage **ret)
{
	struct ghostage *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	*ret = g;
	return 0;
}

static struct hold *find(const struct ghostage *g, uint64_t inode, pid_t pid)
{
	struct hold_key key = {.inode = inode, .pid = (uint64_t)pid};
	struct hold *h;

	HASH_FIND(hh, g->holds, &key, sizeof(key), h);
	return h;
}

static struct hold *add(struct ghostage *g, uint64_t inode, pid_t pid, uint64_t now_ns)
{
	struct hold *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->key = (struct hold_key){.inode = inode, .pid = (uint64_t)pid};
	h->since_ns = now_ns;
	HASH_ADD(hh, g->holds, key, sizeof(h->key), h);
	if (!h->hh.tbl) {
		free(h);
		return NULL;
	}
	return h;
}

/* Forgets those that were not seen; all: every one. */
static void forget(struct ghostage *g, bool all)
{
	struct hold *h, *next;

	HASH_ITER(hh, g->holds, h, next)
	{
		if (!all && h->seen)
			continue;
		HASH_DEL(g->holds, h);
		free(h);
	}
}

struct ghostage *ghostage_free(struct ghostage *g)
{
	if (g)
		forget(g, true);
	free(g);
	return NULL;
}

void ghostage_begin(struct ghostage *g)
{
	for (struct hold *h = g->holds; h; h = h->hh.next)
		h->seen = false;
}

uint64_t ghostage_see(struct ghostage *g, uint64_t inode, pid_t pid, uint64_t now_ns)
{
	struct hold *h = find(g, inode, pid);

	if (!h)
		h = add(g, inode, pid, now_ns);
	if (!h)
		return now_ns;
	h->seen = true;
	return h->since_ns;
}

void ghostage_end(struct ghostage *g)
{
	forget(g, false);
}

bool ghostage_is_old(struct ghostage *g, uint64_t inode, pid_t pid, uint64_t now_ns,
		     uint64_t age_ns)
{
	struct hold *h = find(g, inode, pid);

	if (!h || h->told || now_ns - h->since_ns < age_ns)
		return false;
	h->told = true;
	return true;
}
