/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c: see verify.h. Each step runs in a forked child that has never used the library: what
 * it finds is what is there. */
#include "verify.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandbox.h"

#define N_SURVIVING 3 /* objects of the survivor */
#define DEADLINE_MS 5000u

const char *const verify_path_name[VERIFY_N_PATHS] = {"gc", "reopen", "adopt"};

static int in_child(struct world *w, int (*step)(struct world *w, int path, const int *rc),
		    int path, const int *rc)
{
	pid_t pid = fork();
	if (pid < 0)
		return world_fail(w, "fork: %m");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(step(w, path, rc) < 0 ? 1 : 0);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return world_fail(w, "waitpid: %m");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return world_fail(w, "verifier ended with status 0x%x and no word", status);
}

static int count_one(const struct shmstore_object_info *info, void *arg)
{
	if (info->error == 0)
		++*(unsigned *)arg;
	else
		*(unsigned *)arg += 1000;
	return 0;
}

/* Store s holds exactly what was seen of it (or nothing). */
static int check_as_seen(struct world *w, struct shmstore *s, const char *store, bool nothing)
{
	unsigned expected = 0, n = 0;
	for (size_t i = 0; i < 6 && w->sc->keys[i].key; i++) {
		const struct expect *e = &w->sc->keys[i];
		if (strcmp(e->store, store) != 0)
			continue;
		uint64_t seen = nothing ? 0 : w->shared->seen[i];
		expected += seen ? 1 : 0;
		struct content c = {0, 0};
		const char *why = NULL;
		int rc = content_get(s, e->key, strlen(e->key), &c, &why);
		if (rc == -ENOENT && !seen)
			continue;
		if (rc < 0 || c.seed != seen)
			return world_fail(w, "%s/%.12s again: %d %s, seed %llu, was %llu", store,
					  e->key, rc, why ? why : "", (unsigned long long)c.seed,
					  (unsigned long long)seen);
	}
	if (!nothing && strcmp(store, scenario_subject(w->sc)) == 0)
		expected += w->sc->n_more;
	int rc = shmstore_foreach(s, count_one, &n);
	if (rc < 0 || n != expected)
		return world_fail(w, "%s: lists %u objects of %u (%d)", store, n, expected, rc);
	return 0;
}

static int reopen(struct world *w, const char *store, unsigned flags, bool nothing)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = flags;
	struct shmstore *s = NULL;
	int rc = shmstore_open(w->p, store, &options, &s);
	if (rc < 0)
		return world_fail(w, "opening %s again: %s", store, shmstore_strerror(rc));
	if (check_as_seen(w, s, store, nothing) < 0 || world_check_works(w, s) < 0)
		return -1;
	rc = shmstore_close(s);
	return rc < 0 ? world_fail(w, "closing %s again: %s", store, shmstore_strerror(rc)) : 0;
}

/* After gc, without opening: a kept store is as it was, any other is gone or has only leases
 * left. */
static int check_after_gc(struct world *w, const char *store, bool kept)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = SHMSTORE_OPEN_READONLY;
	struct shmstore *s = NULL;
	int rc = shmstore_open(w->p, store, &options, &s);
	if (rc == -ENOENT && !kept)
		return 0;
	if (rc == -ENOENT && kept) {
		for (size_t i = 0; i < 6 && w->sc->keys[i].key; i++)
			if (strcmp(w->sc->keys[i].store, store) == 0 && w->shared->seen[i])
				return world_fail(w, "gc removed the kept store %s", store);
		return 0;
	}
	if (rc < 0)
		return world_fail(w, "looking at %s after gc: %s", store, shmstore_strerror(rc));
	struct shmstore_usage u;
	rc = shmstore_partition_usage(w->p, 0, &u);
	if (!kept && (rc < 0 || u.n_leases == 0))
		return world_fail(w, "gc left the dead store %s, which has no lease", store);
	rc = check_as_seen(w, s, store, !kept);
	shmstore_close(s);
	return rc;
}

static int look_at_partition(struct world *w)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/second", w->mount);
	struct shmstore_partition *p = NULL;
	int rc = shmstore_partition_open(path, SHMSTORE_CREATE, &p);
	if (rc < 0)
		return world_fail(w, "opening the partition again: %s", shmstore_strerror(rc));
	struct shmstore *s = NULL;
	rc = shmstore_open(p, VICTIM, NULL, &s);
	if (rc < 0)
		return world_fail(w, "opening a store in it: %s", shmstore_strerror(rc));
	if (world_check_works(w, s) < 0)
		return -1;
	rc = shmstore_close(s);
	shmstore_partition_unref(p);
	sandbox_wipe(path);
	if (rmdir(path) < 0)
		return world_fail(w, "rmdir: %m");
	return rc < 0 ? world_fail(w, "closing it: %s", shmstore_strerror(rc)) : 0;
}

/* The survivor's ticket: used up, or good for us. After a call that failed it must be good
 * still. */
static int adopt_leftover(struct world *w, const int *victim_rc)
{
	struct shmstore *s = NULL;
	int rc = shmstore_open(w->p, "third", NULL, &s);
	if (rc < 0)
		return world_fail(w, "opening a third store: %s", shmstore_strerror(rc));
	bool last = w->sc->flags & TICKET_LAST, victims = false;
	uint64_t seed = w->sc->flags & (TICKET_LAST | TICKET_SHARED) ? 104 : 101;
	for (size_t i = 0; last && i < 6 && w->sc->keys[i].key; i++)
		victims |= w->shared->seen[i] == 104;
	rc = shmstore_adopt(s, "t", 1, &w->shared->in, SHMSTORE_VERIFY);
	if (rc == 0) {
		struct content c = {0, 0};
		const char *why = NULL;
		rc = content_get(s, "t", 1, &c, &why);
		if (rc < 0 || c.seed != seed)
			return world_fail(w, "third store: adopted object: %d %s", rc,
					  why ? why : "");
	} else if (rc != -ESTALE ||
		   (victim_rc && *victim_rc < 0 && !(w->sc->flags & TICKET_TAKEN))) {
		return world_fail(w, "third store: adopt: %s", shmstore_strerror(rc));
	} else if (last && !victims) {
		return world_fail(w,
				  "the object is lost: neither its lease nor the victim holds it");
	}
	rc = shmstore_close(s);
	return rc < 0 ? world_fail(w, "closing the third store: %s", shmstore_strerror(rc)) : 0;
}

static int look(struct world *w, int path, const int *rc)
{
	const struct scenario *sc = w->sc;
	if (sc->flags & OWN_PARTITION)
		return look_at_partition(w);
	int opened = shmstore_partition_open(w->path, 0, &w->p);
	if (opened < 0)
		return world_fail(w, "verifier: partition: %s", shmstore_strerror(opened));
	if (world_check_keys(w, rc) < 0)
		return -1;
	const char *subject = scenario_subject(sc);
	bool kept = sc->flags & (strcmp(subject, VICTIM) == 0 ? KEEP : DEAD_KEEP);
	int bad = 0;
	switch (path) {
	case VERIFY_GC:
		opened = shmstore_partition_gc(w->p, 0, NULL);
		bad = opened < 0 ? world_fail(w, "gc: %s", shmstore_strerror(opened))
				 : check_after_gc(w, subject, kept);
		if (bad == 0)
			bad = reopen(w, subject, 0, !kept);
		break;
	case VERIFY_REOPEN:
		bad = reopen(w, subject, 0, !kept);
		break;
	case VERIFY_ADOPT:
		bad = reopen(w, subject, SHMSTORE_OPEN_ADOPT, false);
		break;
	default:
		break;
	}
	if (bad == 0 && (sc->flags & TICKET_IN))
		bad = adopt_leftover(w, rc);
	shmstore_partition_unref(w->p);
	return bad;
}

int verify_look(struct world *w, enum verify_path path, const int *rc)
{
	return in_child(w, look, (int)path, rc);
}

static int ticket_step(struct world *w, int path, const int *rc)
{
	(void)path;
	int opened = shmstore_partition_open(w->path, 0, &w->p);
	if (opened < 0)
		return world_fail(w, "verifier: partition: %s", shmstore_strerror(opened));
	int bad = adopt_leftover(w, rc);
	shmstore_partition_unref(w->p);
	return bad;
}

int verify_ticket(struct world *w, const int *rc)
{
	return in_child(w, ticket_step, 0, rc);
}

/* ---- settled --------------------------------------------------------------------------------- */

static int drop_kept(struct world *w, const char *store)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = SHMSTORE_OPEN_FRESH;
	struct shmstore *s = NULL;
	int rc = shmstore_open(w->p, store, &options, &s);
	if (rc < 0)
		return world_fail(w, "opening the kept store %s afresh: %s", store,
				  shmstore_strerror(rc));
	rc = shmstore_close(s);
	return rc < 0 ? world_fail(w, "dropping the kept store %s: %s", store,
				   shmstore_strerror(rc))
		      : 0;
}

struct plan {
	struct world *w;
	unsigned n;
};

static int on_action(const struct shmstore_gc_action *action, void *arg)
{
	struct plan *plan = arg;
	if (action->what != SHMSTORE_GC_KEPT) {
		plan->n++;
		world_fail(plan->w, "a second gc still does something: %s (%s)", action->path,
			   action->evidence);
	}
	return 0;
}

static int on_holder(const struct shmstore_holder *holder, void *arg)
{
	return world_fail(arg, "pid %d (%s) holds %llu bytes of %s", (int)holder->pid,
			  holder->command, (unsigned long long)holder->bytes,
			  holder->path ? holder->path : "?");
}

/* A demoted object of the survivor's has its memory until its view goes; it is a ghost where it
 * could not be made a resident. */
static bool ghosts_may_be(const struct world *w)
{
	return (w->sc->flags & TIER) && (w->sc->flags & FRESH);
}

/* Says what is wrong with the books, whose tier_ terms are an equation of their own. 0 or -1. */
static int check_books(struct world *w, const struct shmstore_usage *u)
{
	uint64_t n = N_SURVIVING + (w->sc->flags & TICKET_SHARED ? 1 : 0);
	bool ghosts = u->ghosts && !ghosts_may_be(w), pool = u->pool && !survivor_packs(w->sc);
	if (u->residual || ghosts || u->inflight || pool || u->foreign || u->n_leases ||
	    u->n_stores != 1 || u->n_objects != n)
		return world_fail(w,
				  "books: residual %lld ghosts %llu inflight %llu pool %llu "
				  "foreign %llu leases %llu stores "
				  "%llu objects %llu",
				  (long long)u->residual, (unsigned long long)u->ghosts,
				  (unsigned long long)u->inflight, (unsigned long long)u->pool,
				  (unsigned long long)u->foreign, (unsigned long long)u->n_leases,
				  (unsigned long long)u->n_stores,
				  (unsigned long long)u->n_objects);
	uint64_t on_disk = w->disk ? sandbox_tier_blocks(w->disk) : 0;
	if (u->tier != on_disk || u->tier != u->tier_demoted + u->tier_clean || u->tier_orphans)
		return world_fail(w,
				  "the tier's books: %llu = demoted %llu + clean %llu + orphans "
				  "%llu, on disk %llu",
				  (unsigned long long)u->tier, (unsigned long long)u->tier_demoted,
				  (unsigned long long)u->tier_clean,
				  (unsigned long long)u->tier_orphans, (unsigned long long)on_disk);
	return 0;
}

/* Memory that a dead process's io_uring held is free a moment after its death. The holders of the
 * rest are looked up only at the end. */
static int wait_for_memory(struct world *w, struct shmstore_usage *ret)
{
	for (uint64_t until = world_now_boot_ms() + DEADLINE_MS; world_now_boot_ms() <= until;) {
		int rc = shmstore_partition_reconcile(w->p, NULL, NULL, ret);
		if (rc < 0 ||
		    (!ret->inflight && (!ret->ghosts || ghosts_may_be(w)) && !ret->residual))
			return rc;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return shmstore_partition_reconcile(w->p, ghosts_may_be(w) ? NULL : on_holder, w, ret);
}

static int settled(struct world *w, int path, const int *unused)
{
	(void)path, (void)unused;
	int rc = shmstore_partition_open(w->path, 0, &w->p);
	if (rc < 0)
		return world_fail(w, "settling: partition: %s", shmstore_strerror(rc));
	if (((w->sc->flags & KEEP) && drop_kept(w, VICTIM) < 0) ||
	    ((w->sc->flags & DEAD_KEEP) && drop_kept(w, DEAD) < 0))
		return -1;
	struct shmstore_usage u;
	uint64_t until = world_now_boot_ms() + DEADLINE_MS;
	for (;;) {
		struct shmstore_gc_report report;
		rc = shmstore_partition_gc(w->p, 0, &report);
		if (rc < 0)
			return world_fail(w, "settling: gc: %s", shmstore_strerror(rc));
		rc = shmstore_partition_usage(w->p, 0, &u);
		if (rc < 0)
			return world_fail(w, "settling: usage: %s", shmstore_strerror(rc));
		if (u.n_leases == 0)
			break;
		if (world_now_boot_ms() > until)
			return world_fail(w, "%llu leases never end",
					  (unsigned long long)u.n_leases);
		/* a lease's end is only a time */
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	struct plan plan = {.w = w};
	struct shmstore_gc_report report;
	/* A packed object's lease may have ended between that gc and the sum. */
	rc = shmstore_partition_gc(w->p, 0, &report);
	if (rc < 0)
		return world_fail(w, "settling: gc: %s", shmstore_strerror(rc));
	rc = shmstore_partition_gc_plan(w->p, 0, on_action, &plan, &report);
	if (rc < 0 || plan.n || report.n_stores || report.n_leases || report.n_objects ||
	    report.freed)
		return world_fail(w, "second gc: %d, %llu stores %llu leases %llu objects", rc,
				  (unsigned long long)report.n_stores,
				  (unsigned long long)report.n_leases,
				  (unsigned long long)report.n_objects);
	rc = wait_for_memory(w, &u);
	if (rc < 0)
		return world_fail(w, "reconcile: %d", rc);
	if (check_books(w, &u) < 0)
		return -1;
	shmstore_partition_unref(w->p);
	return 0;
}

int verify_settled(struct world *w)
{
	return in_child(w, settled, 0, NULL);
}

static int note_pool(struct world *w, int path, const int *unused)
{
	(void)path, (void)unused;
	struct shmstore_usage u;
	int rc = shmstore_partition_open(w->path, 0, &w->p);
	if (rc == 0)
		rc = shmstore_partition_usage(w->p, 0, &u);
	if (rc < 0)
		return world_fail(w, "the pool: %s", shmstore_strerror(rc));
	w->shared->pool = u.pool;
	shmstore_partition_unref(w->p);
	return 0;
}

int verify_pool(struct world *w)
{
	return in_child(w, note_pool, 0, NULL);
}
