/* SPDX-License-Identifier: Apache-2.0 */
/* storm_books.c: what must hold of the storm's partition: while all stand still, at rest, and in
 * the end. Each step runs in a child. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "owndaemon.h"
#include "sandbox.h"
#include "storm.h"
#include "storm_run.h"
#include "tiermake.h"

static int say_holder(const struct shmstore_holder *h, void *arg)
{
	(void)arg;
	printf("     %s pid %d inode %llu bytes %llu%s %s\n",
	       h->kind == SHMSTORE_HOLD_GHOST ? "ghost" : "inflight", (int)h->pid,
	       (unsigned long long)h->inode, (unsigned long long)h->bytes,
	       h->first ? "" : " (again)", h->path ? h->path : "");
	return 0;
}

/* The tier's own equation, against the files on the disk. */
static int check_tier(struct run *r, const struct shmstore_usage *u)
{
	uint64_t on_disk = r->options->disk ? sandbox_tier_blocks(r->options->disk) : 0;
	if (u->tier == on_disk && u->tier == u->tier_demoted + u->tier_clean + u->tier_orphans)
		return 0;
	return storm_fail(
		&r->st,
		"the tier's books: %llu = demoted %llu + clean %llu + orphans %llu, on disk %llu",
		(unsigned long long)u->tier, (unsigned long long)u->tier_demoted,
		(unsigned long long)u->tier_clean, (unsigned long long)u->tier_orphans,
		(unsigned long long)on_disk);
}

/*
 * All stand still: the books must close over live views, writers and pools. On a mount with huge
 * pages the kernel's khugepaged holds the file that it looks at, and a file whose last user was
 * killed meanwhile stays allocated until it lets go: nobody's, for some milliseconds, or longer
 * where a busy host gives that thread of the lowest priority no processor. While all stand still
 * only the kernel can take such a residual away, so it is looked at again: what a store lost stays.
 */
int storm_reconcile_step(struct run *r)
{
	struct shmstore_partition *p = NULL;
	struct shmstore_usage u = {0};
	int rc = shmstore_partition_open(r->st.path, 0, &p);

	for (unsigned i = 0; rc == 0 && i < SAME_TRIES; i++) {
		rc = shmstore_partition_reconcile(p, NULL, NULL, &u);
		if (rc < 0 || u.residual == 0)
			break;
		storm_outcome->n_late += i == 0;
		nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
	}
	if (rc < 0)
		return storm_fail(&r->st, "reconcile: %d (%s)", rc, shmstore_strerror(rc));
	if (u.residual != 0) {
		shmstore_partition_reconcile(p, say_holder, NULL, &u);
		fflush(stdout);
		return storm_fail(&r->st,
				  "residual %lld: used %llu linked %llu ghosts %llu pool %llu "
				  "inflight %llu foreign %llu",
				  (long long)u.residual, (unsigned long long)u.used,
				  (unsigned long long)u.linked, (unsigned long long)u.ghosts,
				  (unsigned long long)u.pool, (unsigned long long)u.inflight,
				  (unsigned long long)u.foreign);
	}
	shmstore_partition_unref(p);
	return check_tier(r, &u);
}

struct ledgers {
	int64_t worst;
	char what[256];
};

static int look_at_ledger(const struct shmstore_store_books *b, void *arg)
{
	struct ledgers *l = arg;
	int64_t drift = (int64_t)(b->store->counters.linked_bytes - b->linked),
		names = (int64_t)(b->store->counters.linked_n - b->n_objects);

	/* A dead one's ledger is nobody's; who opens the store counts anew. */
	if (b->store->alive != SHMSTORE_ALIVE || (!drift && !names))
		return 0;
	if (llabs(drift) >= llabs(l->worst))
		snprintf(l->what, sizeof(l->what),
			 "store %s: the ledger says %lld bytes, %lld objects; a walk %llu, %llu",
			 b->store->name, (long long)b->store->counters.linked_bytes,
			 (long long)b->store->counters.linked_n, (unsigned long long)b->linked,
			 (unsigned long long)b->n_objects);
	l->worst = llabs(drift) >= llabs(l->worst) && drift ? drift : l->worst ? l->worst : names;
	return 0;
}

int storm_ledger_step(struct run *r)
{
	struct shmstore_partition *p = NULL;
	struct ledgers l = {0};
	int rc = shmstore_partition_open(r->st.path, 0, &p);

	for (unsigned i = 0; rc == 0 && i < SAME_TRIES; i++) {
		l = (struct ledgers){0};
		rc = shmstore_partition_books(p, look_at_ledger, &l, NULL);
		if (rc < 0 || !l.worst)
			break;
		nanosleep(&(struct timespec){.tv_nsec = r->options->daemon ? 50000000 : 1000000},
			  NULL);
	}
	shmstore_partition_unref(p);
	if (rc < 0)
		return storm_fail(&r->st, "books: %d (%s)", rc, shmstore_strerror(rc));
	storm_outcome->drift =
		llabs(l.worst) > llabs(storm_outcome->drift) ? l.worst : storm_outcome->drift;
	return l.worst ? storm_fail(&r->st, "at rest, %s", l.what) : 0;
}

/* By its user; as is the worker. */
int storm_drop_kept(struct run *r)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = NULL;
	struct shmstore *s = NULL;
	char name[16];
	int rc;

	storm_name(storm_as, name);
	options.flags = SHMSTORE_OPEN_FRESH;
	rc = shmstore_partition_open(r->st.path, 0, &p);
	for (uint64_t until = storm_now_ms() + SETTLE_MS; rc == 0;) {
		rc = shmstore_open(p, name, &options, &s);
		if (rc != -EBUSY || storm_now_ms() > until)
			break;
		rc = 0;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	if (rc == 0)
		rc = shmstore_close(s);
	shmstore_partition_unref(p);
	return rc < 0 ? storm_fail(&r->st, "dropping store %s: %d (%s)", name, rc,
				   shmstore_strerror(rc))
		      : 0;
}

/* Each user has gc done, as far as it may; root's is the last word. */
int storm_gc_step(struct run *r)
{
	struct shmstore_partition *p = NULL;
	int rc = shmstore_partition_open(r->st.path, 0, &p);

	if (rc == 0)
		rc = shmstore_partition_gc(p, 0, NULL);
	shmstore_partition_unref(p);
	return rc < 0 ? storm_fail(&r->st, "gc by user %u: %d", storm_uid(r->options, storm_as), rc)
		      : 0;
}

/* Users' inboxes, made when they get something for the first time, are stores that stay. */
static uint64_t n_inboxes(struct run *r)
{
	char path[300];
	struct dirent *e;
	uint64_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/inbox", r->partition);
	dir = opendir(path);
	while (dir && (e = readdir(dir)) != NULL)
		n += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

int storm_settle_step(struct run *r)
{
	struct shmstore_partition *p = NULL;
	struct shmstore_usage u;
	struct shmstore_gc_report report;
	int rc = shmstore_partition_open(r->st.path, 0, &p);
	if (rc < 0)
		return storm_fail(&r->st, "partition: %d", rc);
	for (uint64_t until = storm_now_ms() + SETTLE_MS;;) {
		rc = shmstore_partition_gc(p, 0, NULL);
		if (rc == 0)
			rc = shmstore_partition_usage(p, 0, &u);
		if (rc < 0)
			return storm_fail(&r->st, "gc: %d (%s)", rc, shmstore_strerror(rc));
		if (u.n_leases == 0)
			break;
		if (storm_now_ms() > until)
			return storm_fail(&r->st, "%llu leases never end",
					  (unsigned long long)u.n_leases);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	/* A packed object's lease may have ended after gc looked at it. */
	rc = shmstore_partition_gc(p, 0, NULL);
	if (rc == 0)
		rc = shmstore_partition_gc(p, 0, &report);
	if (rc < 0 || report.n_stores || report.n_leases || report.n_objects || report.freed)
		return storm_fail(&r->st, "a second gc still did something (%d)", rc);
	rc = shmstore_partition_reconcile(p, NULL, NULL, &u);
	if (rc < 0 || u.residual || u.ghosts || u.inflight || u.pool || u.foreign || u.n_objects ||
	    u.n_stores != n_inboxes(r))
		return storm_fail(&r->st,
				  "books at the end (%d): residual %lld ghosts %llu inflight %llu "
				  "pool %llu stores %llu",
				  rc, (long long)u.residual, (unsigned long long)u.ghosts,
				  (unsigned long long)u.inflight, (unsigned long long)u.pool,
				  (unsigned long long)u.n_stores);
	shmstore_partition_unref(p);
	return u.tier ? storm_fail(&r->st, "%llu bytes of tier files are left",
				   (unsigned long long)u.tier)
		      : 0;
}
