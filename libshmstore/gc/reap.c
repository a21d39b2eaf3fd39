/* SPDX-License-Identifier: Apache-2.0 */
/* reap.c: gc of one store, for a caller that knows that its owner died and where it was: no walk,
 * no look at any other store. Steps, order and locks are those of gc (gc.c, gcstore.c). */
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "detail.h"
#include "gcaction.h"
#include "inodes.h"
#include "lease.h"
#include "page.h"
#include "partition.h"
#include "segfile.h"
#include "seglook.h"

static int first_expiry(struct shms_gc *g, struct shms_gc_target *t, int dirfd, const char *name,
			void *arg)
{
	uint64_t *first = arg, expiry;

	(void)g;
	(void)t;
	(void)dirfd;
	if (shms_lease_parse(name, &expiry) && expiry < *first)
		*first = expiry;
	return 0;
}

/* how soon a segment with leases is looked at again: it has one end for all of them */
#define LEASED_AGAIN_MS 10000u

static int first_segment(struct shms_gc *g, struct shms_gc_target *t, int dirfd, const char *name,
			 void *arg)
{
	uint64_t *first = arg, again = g->now_ms + LEASED_AGAIN_MS;
	struct shms_seglook l;

	(void)t;
	if (shms_seglook_open(dirfd, name, false, &l) < 0)
		return 0;
	if (again < *first && shms_segment_promised(&l.segment, g->now_ms))
		*first = again;
	shms_seglook_close(&l);
	return 0;
}

static int reap(struct shms_gc *g, struct shms_gc_target *t, uint64_t *ret_expiry_ms)
{
	_locked_ int lock = shms_page_lock(t->fd);
	int r;

	if (lock < 0)
		return lock;
	r = shms_gc_locked_store(g, t, &lock);
	/* Kept or not, nobody answers at its address. */
	if (r == 0 && t->page.address[0])
		r = shms_gc_peer_of(g, t->page.address, t->c->below);
	*ret_expiry_ms = UINT64_MAX;
	if (r == 0)
		r = shms_gc_each_name(g, t, SHMS_DIR_HANDOFF, first_expiry, ret_expiry_ms);
	if (r == 0)
		r = shms_gc_each_name(g, t, SHMS_DIR_SEGMENTS, first_segment, ret_expiry_ms);
	return r;
}

/* The part of path below the partition; NULL: it is not there. */
static const char *below(const struct shmstore_partition *p, const char *path)
{
	size_t n = strlen(p->path);

	return strncmp(path, p->path, n) == 0 && path[n] == '/' && path[n + 1] ? path + n + 1
									       : NULL;
}

uint64_t shmstore_lease_clock_ms(void)
{
	return shms_now_boot_ms();
}

int shmstore_partition_reap(struct shmstore_partition *p, const char *path, unsigned flags,
			    int (*fn)(const struct shmstore_gc_action *action, void *arg),
			    void *arg, struct shmstore_gc_report *ret, uint64_t *ret_expiry_ms)
{
	struct shms_gc g = SHMS_GC_INIT(p, fn, arg);
	struct shms_gc_target t = SHMS_GC_TARGET_NULL;
	struct shms_gc_candidate c = {.store = true};
	uint64_t expiry_ms = UINT64_MAX;
	int r;

	if (!p || !path || (flags & ~(SHMSTORE_GC_DRY_RUN | SHMSTORE_GC_LEASES)))
		return !p || !path
			       ? shms_detail_null(!p ? "p" : "path")
			       : shms_detail_flags(flags, SHMSTORE_GC_DRY_RUN | SHMSTORE_GC_LEASES);
	if (!below(p, path))
		return shms_detail(-EPERM, NULL, "%.256s is not in the partition %s", path,
				   p->path);
	c.below = strdup(below(p, path));
	g.end_leases = (flags & SHMSTORE_GC_LEASES) != 0;
	if (flags & SHMSTORE_GC_DRY_RUN)
		g.gone = shms_inodes_new();
	if (!c.below || (flags & SHMSTORE_GC_DRY_RUN && !g.gone))
		r = -ENOMEM;
	else
		r = shms_gc_tier_open(&g);
	if (r == 0)
		r = shms_gc_target_open(&g, &c, &t);
	if (r == 0)
		r = reap(&g, &t, &expiry_ms);
	shms_gc_target_close(&t);
	shms_tierfind_close(&g.find);
	shms_inodes_free(g.gone);
	free(c.below);
	if (r == 0 && ret)
		*ret = g.report;
	if (r == 0 && ret_expiry_ms)
		*ret_expiry_ms = shms_boot_ms_here(expiry_ms);
	return r;
}
