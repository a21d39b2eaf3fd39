/* SPDX-License-Identifier: Apache-2.0 */
/* actions.c: see actions.h. They act on the world's store with the
 * scenario's key, content and flags. */
#include "actions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "survivor.h"
#include "tier_actions.h"

/* ---- setups ---------------------------------------------------------------------------------- */

void must(struct world *w, const char *what, int rc)
{
	if (rc < 0)
		world_fail(w, "prepare: %s: %s", what, shmstore_strerror(rc));
}

/* Leaves a file of the size that the scenario puts in the pool. */
void setup_pool(struct world *w)
{
	struct content c = w->sc->content;
	c.seed = 77;
	must(w, "put", content_put(w->s, KEY("pool"), c, 0));
	must(w, "delete", shmstore_delete(w->s, KEY("pool")));
}

void setup_pool_tiny(struct world *w)
{
	must(w, "put", content_put(w->s, KEY("pool"), (struct content)MID(77), 0));
	must(w, "delete", shmstore_delete(w->s, KEY("pool")));
}

/* An object in a recycled file that is too large for it, and so many after it that
 * the next put takes its slot. */
void setup_slots(struct world *w)
{
	struct content c = MID(77), less = {50, 170000};
	char key[16];

	must(w, "put", content_put(w->s, KEY("pool"), c, 0));
	must(w, "delete", shmstore_delete(w->s, KEY("pool")));
	must(w, "put", content_put(w->s, KEY("slack"), less, 0));
	for (unsigned i = 0; i < 15; i++) {
		snprintf(key, sizeof(key), "slot-%u", i);
		must(w, "put", content_put(w->s, KEY(key), (struct content){60 + i, 70000}, 0));
	}
}

void setup_view_a(struct world *w)
{
	must(w, "get", shmstore_get(w->s, KEY("a"), 0, &w->view));
}

void setup_writer(struct world *w)
{
	const uint64_t size = w->sc->content.size; /* TINY: one buffer */
	must(w, "create",
	     shmstore_create(w->s, KEY(w->sc->key), 32, &size, 1, w->sc->op_flags, &w->writer));
	if (w->writer)
		content_fill_writer(w->writer, w->sc->content);
}

void take_ticket(struct world *w, struct shmstore_ticket *t)
{
	w->shared->out = *t;
	w->shared->out_expiry_ms = world_now_boot_ms() + LEASE_MS;
	w->shared->have_out = true;
}

void setup_handoff(struct world *w)
{
	struct shmstore_ticket t;
	int rc = shmstore_handoff(w->s, KEY("a"), LEASE_MS, &t);
	must(w, "handoff", rc);
	if (rc == 0)
		take_ticket(w, &t);
}

void setup_address(struct world *w)
{
	must(w, "address", shmstore_set_address(w->s, "tcp://127.0.0.1:1"));
}

/* A long key whose object carries another key: a sidecar. */
void setup_long_alias(struct world *w)
{
	setup_view_a(w);
	if (!w->view)
		return;
	must(w, "alias", content_put_view(w->s, w->view, KEY(LONG1), 0));
	w->view = shmstore_view_unref(w->view);
}

/* The object has another key than its own, which is deleted. */
void setup_renamed(struct world *w)
{
	must(w, "rename", content_rename(w->s, "a", w->sc->key));
}

void setup_everything(struct world *w)
{
	setup_pool(w);
	setup_address(w);
	setup_view_a(w);
	setup_handoff(w);
}

void setup_stranded(struct world *w)
{
	char key[16];

	for (unsigned i = 0; i < STRANDED; i++) {
		snprintf(key, sizeof(key), "more-%u", i);
		must(w, "put", content_put(w->s, KEY(key), (struct content){i + 1, 100}, 0));
	}
	for (unsigned i = 0; i < STRANDED; i++) {
		snprintf(key, sizeof(key), "more-%u", i);
		must(w, "delete", i % STRANDED_EVERY ? shmstore_delete(w->s, KEY(key)) : 0);
	}
	setup_asked(w);
}

void setup_reader(struct world *w)
{
	survivor_reads_on(w->survivor, w);
}

/* ---- runs ------------------------------------------------------------------------------------ */

int run_put(struct world *w)
{
	return content_put(w->s, KEY(w->sc->key), w->sc->content, w->sc->op_flags);
}

int run_put_view(struct world *w)
{
	return content_put_view(w->s, w->view, KEY(w->sc->key), w->sc->op_flags);
}

int run_create_seal(struct world *w)
{
	return content_create(w->s, KEY(w->sc->key), w->sc->content, w->sc->op_flags);
}

int run_create_abort(struct world *w)
{
	const uint64_t sizes[1] = {w->sc->content.size};
	struct shmstore_writer *writer = NULL;
	int rc = shmstore_create(w->s, KEY(w->sc->key), 32, sizes, 1, 0, &writer);
	if (rc == 0)
		memset(shmstore_writer_buffer(writer, 0, NULL), 1, (size_t)sizes[0]);
	shmstore_abort(writer);
	return rc;
}

int run_seal(struct world *w)
{
	struct shmstore_writer *writer = w->writer;
	w->writer = NULL;
	return shmstore_seal(writer);
}

int run_get(struct world *w)
{
	struct shmstore_view *v = NULL;
	int rc = shmstore_get(w->s, KEY(w->sc->key), w->sc->op_flags, &v);
	if (rc < 0)
		return rc;
	struct content c;
	const char *why = content_check(v, &c);
	if (why)
		world_fail(w, "get: wrong bytes: %s", why);
	shmstore_view_unref(v);
	return 0;
}

int run_handoff(struct world *w)
{
	struct shmstore_ticket t;
	int rc = shmstore_handoff(w->s, KEY(w->sc->key), LEASE_MS, &t);
	if (rc == 0)
		take_ticket(w, &t);
	return rc;
}

int run_adopt(struct world *w)
{
	return shmstore_adopt(w->s, KEY(w->sc->key), &w->shared->in, w->sc->op_flags);
}

int run_delete(struct world *w)
{
	return shmstore_delete(w->s, KEY(w->sc->key));
}

int run_close(struct world *w)
{
	struct shmstore *s = w->s;
	w->s = NULL;
	return shmstore_close(s);
}

int run_open(struct world *w)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = w->sc->op_flags;
	options.keep = w->sc->flags & KEEP;
	options.pack_max = w->sc->flags & PACKED ? PACK_MAX : 0;
	options.label = "scenario";
	return shmstore_open(w->p, VICTIM, &options, &w->s);
}

int run_open_readonly(struct world *w)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = SHMSTORE_OPEN_READONLY;
	struct shmstore *s = NULL;
	int rc = shmstore_open(w->p, SURVIVOR, &options, &s);
	if (rc < 0)
		return rc;
	struct content c;
	const char *why = NULL;
	rc = content_get(s, KEY("s1"), &c, &why);
	if (rc == -EILSEQ)
		world_fail(w, "get: wrong bytes: %s", why);
	int closed = shmstore_close(s);
	return rc < 0 ? rc : closed;
}

int run_address(struct world *w)
{
	return shmstore_set_address(w->s, w->sc->key);
}

int run_peer_find(struct world *w)
{
	char name[SHMSTORE_NAME_MAX + 1];
	return shmstore_peer_find(w->p, "tcp://127.0.0.1:1", name, sizeof(name));
}

int run_gc(struct world *w)
{
	return shmstore_partition_gc(w->p, 0, NULL);
}

int run_usage(struct world *w)
{
	struct shmstore_usage u;
	struct shmstore_store_usage su;
	int rc = shmstore_partition_usage(w->p, SHMSTORE_USAGE_FULL, &u);
	return rc < 0 ? rc : shmstore_usage(w->s, &su);
}

static int count_one(const struct shmstore_object_info *info, void *arg)
{
	(void)info;
	++*(unsigned *)arg;
	return 0;
}

int run_list(struct world *w)
{
	unsigned n = 0;
	int rc = shmstore_contains(w->s, KEY(w->sc->key));
	if (rc < 0)
		return rc;
	rc = shmstore_foreach(w->s, count_one, &n);
	if (rc == 0 && n != 2)
		world_fail(w, "foreach: %u objects of 2", n);
	return rc;
}

struct listed {
	unsigned n;
	bool hidden; /* the list said that there is something that it cannot read */
};

static int list_one(const struct shmstore_object_info *info, void *arg)
{
	struct listed *l = arg;
	l->n++;
	l->hidden |= info->error == -EPERM;
	return 0;
}

int run_list_dead(struct world *w)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = SHMSTORE_OPEN_READONLY;
	struct shmstore *s = NULL;
	struct listed l = {0};
	int rc = shmstore_open(w->p, DEAD, &options, &s);
	if (rc < 0)
		return rc;
	rc = shmstore_foreach(s, list_one, &l);
	if (rc == 0 && l.n != 3 && !l.hidden)
		world_fail(w, "foreach: %u objects of 3", l.n);
	int closed = shmstore_close(s);
	return rc < 0 ? rc : closed;
}

int run_read(struct world *w)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = SHMSTORE_OPEN_READONLY;
	struct shmstore *s = NULL;
	struct shmstore_view *v = NULL;
	struct listed l = {0};
	struct content c;
	int rc = shmstore_open(w->p, SURVIVOR, &options, &s);
	if (rc < 0)
		return rc;
	rc = shmstore_get(s, KEY("s1"), 0, &v);
	if (rc == 0)
		rc = content_get(s, KEY("s2"), &c, NULL);
	if (rc == 0)
		rc = shmstore_contains(s, KEY("none"));
	if (rc == 0)
		rc = shmstore_foreach(s, list_one, &l);
	if (rc == 0 && l.n != 3 && !l.hidden)
		world_fail(w, "foreach: %u objects of 3", l.n);
	if (v && (content_check(v, &c) || c.seed != 101))
		world_fail(w, "a view of s1 has other bytes");
	shmstore_view_unref(v);
	int closed = shmstore_close(s);
	return rc < 0 ? rc : closed;
}

static void partition_path(const struct world *w, char *ret, size_t size)
{
	snprintf(ret, size, "%s/second", w->mount);
}

int run_partition(struct world *w)
{
	char path[256];
	partition_path(w, path, sizeof(path));
	return shmstore_partition_open(path, SHMSTORE_CREATE, &w->p);
}
