/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.c: the machinery of scenario.h. The scenarios themselves are in scenarios.c,
 * packed_scenarios.c and tier_scenarios.c. */
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandbox.h"
#include "tracer.h"

#define NEARLY_FULL_LEFT (256u << 10)
#define TIER_IO          "SHMSTORE_TIER_IO"

int world_fail(struct world *w, const char *format, ...)
{
	if (w->shared->message[0] == '\0') {
		va_list args;
		va_start(args, format);
		vsnprintf(w->shared->message, sizeof(w->shared->message), format, args);
		va_end(args);
	}
	return -1;
}

uint64_t world_now_boot_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

const char *scenario_subject(const struct scenario *sc)
{
	return (sc->flags & DEAD_STORE) && !(sc->flags & DEAD_IS_VICTIM) && (sc->flags & NO_STORE)
		       ? DEAD
		       : VICTIM;
}

const struct scenario *scenario_at(size_t i)
{
	if (i < n_scenarios)
		return &scenarios[i];
	i -= n_scenarios;
	if (i < n_packed_scenarios)
		return &packed_scenarios[i];
	i -= n_packed_scenarios;
	return i < n_tier_scenarios ? &tier_scenarios[i] : NULL;
}

int scenario_put(struct shmstore *s, const struct object *o)
{
	size_t size = strlen(o->key);
	int rc = content_put(s, o->key, size, o->content, o->where == PINNED ? SHMSTORE_PIN : 0);
	if (rc == 0 && (o->where == DEMOTED || o->where == CLEAN))
		rc = shmstore_demote(s, o->key, size, 0);
	if (rc == 0 && o->where == CLEAN)
		rc = shmstore_promote(s, o->key, size, 0);
	return rc;
}

/* ---- outside the victim ---------------------------------------------------------------------- */

/* A process that opens a store, fills it and dies without a word. */
static void die_in_a_store(struct world *w)
{
	const struct scenario *sc = w->sc;
	struct shmstore_partition *p = NULL;
	struct shmstore *s = NULL;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.keep = sc->flags & DEAD_KEEP;
	options.pack_max = sc->flags & PACKED ? PACK_MAX : 0;
	if (shmstore_partition_open(w->path, 0, &p) < 0 ||
	    shmstore_open(p, sc->flags & DEAD_IS_VICTIM ? VICTIM : DEAD, &options, &s) < 0)
		_exit(1);
	for (size_t i = 0; i < 3 && sc->dead[i].key; i++)
		if (scenario_put(s, &sc->dead[i]) < 0)
			_exit(2);
	for (unsigned i = 0; (sc->flags & IS_READ) && i < sc->n_more; i++) {
		char key[16];
		snprintf(key, sizeof(key), "more-%u", i);
		if (content_put(s, key, strlen(key), (struct content){i, 10}, 0) < 0)
			_exit(6);
	}
	if (sc->flags & DEAD_LEASE) {
		struct shmstore_ticket t;
		if (shmstore_handoff_flags(s, sc->dead[0].key, strlen(sc->dead[0].key), 1,
					   sc->flags & TIER ? SHMSTORE_AS_IS : 0, &t) < 0)
			_exit(3);
		for (uint64_t until = world_now_boot_ms() + 2; world_now_boot_ms() <= until;)
			usleep(500);
	}
	if ((sc->flags & DEAD_RENAMED) && content_rename(s, sc->dead[1].key, sc->key) < 0)
		_exit(5);
	/* One object in the pool, one view: both go with us. */
	struct shmstore_view *v = NULL;
	const char *viewed = sc->dead[sc->dead[0].where == DEMOTED ? 1 : 0].key; /* where it is */
	if (content_put(s, "x", 1, (struct content){99, 70000}, 0) < 0 ||
	    shmstore_delete(s, "x", 1) < 0 || shmstore_get(s, viewed, strlen(viewed), 0, &v) < 0)
		_exit(4);
	_exit(0);
}

static void filler_path(const struct world *w, char *ret, size_t size)
{
	snprintf(ret, size, "%s/filler", w->mount);
}

static int fill_up(struct world *w)
{
	char path[256];
	filler_path(w, path, sizeof(path));
	struct statfs fs;
	if (statfs(w->mount, &fs) < 0)
		return world_fail(w, "statfs: %m");
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return world_fail(w, "%s: %m", path);
	int rc = posix_fallocate(fd, 0, (off_t)fs.f_bfree * (off_t)fs.f_bsize - NEARLY_FULL_LEFT);
	close(fd);
	return rc == 0 ? 0 : world_fail(w, "filling up: %s", strerror(rc));
}

int scenario_before(struct world *w)
{
	struct shared *sh = w->shared;
	setenv(TIER_IO, "plain", 1); /* every call is seen; TIER_RING unsets it */
	sh->armed = sh->ran = sh->have_out = false;
	sh->rc = 0;
	sh->message[0] = '\0';
	memset(sh->seen, 0, sizeof(sh->seen));
	if (w->sc->flags & DEAD_STORE) {
		pid_t pid = fork();
		if (pid == 0)
			die_in_a_store(w);
		int status = -1;
		if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
			return world_fail(w, "the dead store could not be made (status %x)",
					  status);
	}
	return w->sc->flags & NEARLY_FULL ? fill_up(w) : 0;
}

void scenario_after(struct world *w)
{
	if (!(w->sc->flags & NEARLY_FULL))
		return;
	char path[256];
	filler_path(w, path, sizeof(path));
	unlink(path);
}

/* ---- the victim ------------------------------------------------------------------------------ */

int scenario_prepare(struct world *w)
{
	const struct scenario *sc = w->sc;
	content_reserve(4u << 20);
	if (sc->flags & TIER_RING)
		unsetenv(TIER_IO);
	if (sc->flags & OWN_PARTITION) {
		w->shared->armed = true;
		return 0;
	}
	int rc = shmstore_partition_open(w->path, 0, &w->p);
	if (rc < 0)
		return world_fail(w, "prepare: partition: %s", shmstore_strerror(rc));
	if (!(sc->flags & NO_STORE)) {
		struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
		options.keep = sc->flags & KEEP;
		options.pack_max = sc->flags & PACKED ? PACK_MAX : 0;
		if (sc->flags & NO_RECYCLE)
			options.recycle_max = 0;
		rc = shmstore_open(w->p, VICTIM, &options, &w->s);
		if (rc < 0)
			return world_fail(w, "prepare: open: %s", shmstore_strerror(rc));
	}
	for (size_t i = 0; i < 4 && sc->pre[i].key; i++) {
		rc = scenario_put(w->s, &sc->pre[i]);
		if (rc < 0)
			return world_fail(w, "prepare: put %.20s: %s %s", sc->pre[i].key,
					  shmstore_strerror(rc), shmstore_error_detail());
	}
	if (sc->setup)
		sc->setup(w);
	w->shared->armed = w->shared->message[0] == '\0';
	return w->shared->armed ? 0 : -1;
}

int scenario_run(struct world *w)
{
	if (w->on_begin)
		w->on_begin();
	tracer_begin();
	int rc = w->sc->run(w);
	tracer_end();
	if (w->on_end)
		w->on_end();
	w->shared->rc = rc;
	w->shared->ran = true;
	return rc;
}

int scenario_release(struct world *w)
{
	if (w->sc->undo)
		w->sc->undo(w);
	shmstore_abort(w->writer);
	w->writer = NULL;
	w->view = shmstore_view_unref(w->view);
	int rc = shmstore_close(w->s);
	w->s = NULL;
	w->p = shmstore_partition_unref(w->p);
	return rc;
}

struct way {
	struct shmstore_counters counters;
	bool found;
};

static int find_way(const struct shmstore_store_info *info, void *arg)
{
	struct way *way = arg;
	if (strcmp(info->name, VICTIM) != 0)
		return 0;
	way->counters = info->counters;
	way->found = true;
	return 1;
}

bool scenario_took_its_way(struct world *w)
{
	if (w->sc->want_where) {
		int where = shmstore_locate(w->s, w->sc->key, strlen(w->sc->key));
		if (where != w->sc->want_where)
			return world_fail(w, "%.12s is at %d afterwards, not at %d", w->sc->key,
					  where, w->sc->want_where) == 0;
	}
	struct shmstore_usage u;
	if ((w->sc->flags & WANT_MOVED) &&
	    (shmstore_partition_usage(w->p, 0, &u) < 0 || u.stranded >= 1u << 20))
		return world_fail(w, "%llu bytes are stranded still",
				  (unsigned long long)u.stranded) == 0;
	if (!(w->sc->flags & (WANT_RECYCLED | WANT_ALIAS)))
		return true;
	struct way way = {.found = false};
	int rc = shmstore_partition_stores(w->p, find_way, &way);
	if (rc < 0 || !way.found)
		return world_fail(w, "no counters of %s: %s", VICTIM, shmstore_strerror(rc)) == 0;
	if ((w->sc->flags & WANT_RECYCLED) && way.counters.recycled_n == 0)
		return world_fail(w, "nothing was recycled") == 0;
	if ((w->sc->flags & WANT_ALIAS) && way.counters.alias_n == 0)
		return world_fail(w, "no alias was made") == 0;
	return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_key(struct world *w, struct shmstore *s, const struct expect *e, const int *rc,
		     uint64_t *ret_seen)
{
	struct content c = {0, 0};
	const char *why = NULL;
	int got = s ? content_get(s, e->key, strlen(e->key), &c, &why) : -ENOENT;
	*ret_seen = got == 0 ? c.seed : 0;
	if (got == -EILSEQ)
		return world_fail(w, "%s/%.12s: wrong bytes: %s", e->store, e->key, why);
	if (got < 0 && got != -ENOENT)
		return world_fail(w, "%s/%.12s: get: %d %s", e->store, e->key, got,
				  shmstore_error_detail());
	bool ok = *ret_seen == e->before || *ret_seen == e->after;
	if (rc)
		ok = *ret_seen == (*rc < 0 ? e->before : e->after);
	if (!ok)
		return world_fail(w,
				  "%s/%.12s: holds seed %llu, not %llu (before) or %llu (after)%s",
				  e->store, e->key, (unsigned long long)*ret_seen,
				  (unsigned long long)e->before, (unsigned long long)e->after,
				  rc ? (*rc < 0 ? "; call failed" : "; call worked") : "");
	return 0;
}

int world_check_keys(struct world *w, const int *rc)
{
	int bad = 0;
	for (size_t i = 0; i < 6 && w->sc->keys[i].key; i++) {
		const struct expect *e = &w->sc->keys[i];
		struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
		options.flags = SHMSTORE_OPEN_READONLY;
		struct shmstore *s = NULL;
		int opened = shmstore_open(w->p, e->store, &options, &s);
		if (opened < 0 && opened != -ENOENT)
			return world_fail(w, "looking at store %s: %d", e->store, opened);
		if (check_key(w, s, e, rc, &w->shared->seen[i]) < 0)
			bad = -1;
		shmstore_close(s);
	}
	return bad;
}

int world_check_works(struct world *w, struct shmstore *s)
{
	static const struct content c = {4242, 100000};
	struct content got;
	int rc = content_put(s, "works?", 6, c, SHMSTORE_REPLACE);
	if (rc < 0)
		return world_fail(w, "works? put: %s", shmstore_strerror(rc));
	rc = content_get(s, "works?", 6, &got, NULL);
	if (rc < 0 || got.seed != c.seed)
		return world_fail(w, "works? get: %d", rc);
	rc = shmstore_delete(s, "works?", 6);
	return rc < 0 ? world_fail(w, "works? delete: %s", shmstore_strerror(rc)) : 0;
}
