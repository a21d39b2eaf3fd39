/* SPDX-License-Identifier: Apache-2.0 */
/* scenarios.c: the table of scenarios: each side of put, seal, abort, get, handoff, adopt, delete, open, close, address and gc. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scenario.h"

/* Keys too long for a file name: hashed names, with sidecars where the object carries another key. */
#define X50   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X300  X50 X50 X50 X50 X50 X50
#define LONG1 "long-1-" X300
#define LONG2 "long-2-" X300

#define TINY(seed)          \
	{                   \
		(seed), 900 \
	}
#define MID(seed)              \
	{                      \
		(seed), 200000 \
	}
#define LARGE(seed)             \
	{                       \
		(seed), 3000000 \
	}
#define EMPTY(seed)       \
	{                 \
		(seed), 0 \
	}

#define LEASE_MS 300u

static int size_of(const char *key)
{
	return (int)strlen(key);
}
#define KEY(k) (k), (size_t)size_of(k)

/* ---- setups ------------------------------------------------------------------------------------------------------- */

static void must(struct world *w, const char *what, int rc)
{
	if (rc < 0)
		world_fail(w, "prepare: %s: %s", what, shmstore_strerror(rc));
}

/* Leaves a file of the size that the scenario puts in the pool. */
static void setup_pool(struct world *w)
{
	struct content c = w->sc->content;
	c.seed = 77;
	must(w, "put", content_put(w->s, KEY("pool"), c, 0));
	must(w, "delete", shmstore_delete(w->s, KEY("pool")));
}

static void setup_pool_tiny(struct world *w)
{
	must(w, "put", content_put(w->s, KEY("pool"), (struct content)MID(77), 0));
	must(w, "delete", shmstore_delete(w->s, KEY("pool")));
}

/* An object in a recycled file that is too large for it, and so many after it that the next put takes its slot. */
static void setup_slots(struct world *w)
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

static void setup_view_a(struct world *w)
{
	must(w, "get", shmstore_get(w->s, KEY("a"), 0, &w->view));
}

static void setup_writer(struct world *w)
{
	const uint64_t size = w->sc->content.size; /* TINY: one buffer */
	must(w, "create", shmstore_create(w->s, KEY(w->sc->key), 32, &size, 1, w->sc->op_flags, &w->writer));
	if (w->writer)
		content_fill_writer(w->writer, w->sc->content);
}

static void take_ticket(struct world *w, struct shmstore_ticket *t)
{
	w->shared->out = *t;
	w->shared->out_expiry_ms = world_now_boot_ms() + LEASE_MS;
	w->shared->have_out = true;
}

static void setup_handoff(struct world *w)
{
	struct shmstore_ticket t;
	int rc = shmstore_handoff(w->s, KEY("a"), LEASE_MS, &t);
	must(w, "handoff", rc);
	if (rc == 0)
		take_ticket(w, &t);
}

static void setup_address(struct world *w)
{
	must(w, "address", shmstore_set_address(w->s, "tcp://127.0.0.1:1"));
}

/* A long key whose object carries another key: a sidecar. */
static void setup_long_alias(struct world *w)
{
	setup_view_a(w);
	if (!w->view)
		return;
	struct iovec iov[2];
	size_t n = shmstore_view_n_buffers(w->view), header_size;
	for (size_t i = 0; i < n && i < 2; i++) {
		uint64_t size;
		iov[i].iov_base = shmstore_view_buffer(w->view, i, &size);
		iov[i].iov_len = size;
	}
	const void *header = shmstore_view_header(w->view, &header_size);
	must(w, "alias", shmstore_put(w->s, KEY(LONG1), header, header_size, iov, n, 0));
	w->view = shmstore_view_unref(w->view);
}

static void setup_everything(struct world *w)
{
	setup_pool(w);
	setup_address(w);
	setup_view_a(w);
	setup_handoff(w);
}

/* ---- runs --------------------------------------------------------------------------------------------------------- */

static int run_put(struct world *w)
{
	return content_put(w->s, KEY(w->sc->key), w->sc->content, w->sc->op_flags);
}

static int run_put_view(struct world *w)
{
	struct iovec iov[2];
	size_t n = shmstore_view_n_buffers(w->view), header_size;
	for (size_t i = 0; i < n && i < 2; i++) {
		uint64_t size;
		iov[i].iov_base = shmstore_view_buffer(w->view, i, &size);
		iov[i].iov_len = size;
	}
	const void *header = shmstore_view_header(w->view, &header_size);
	return shmstore_put(w->s, KEY(w->sc->key), header, header_size, iov, n, w->sc->op_flags);
}

static int run_create_seal(struct world *w)
{
	return content_create(w->s, KEY(w->sc->key), w->sc->content, w->sc->op_flags);
}

static int run_create_abort(struct world *w)
{
	const uint64_t sizes[1] = {w->sc->content.size};
	struct shmstore_writer *writer = NULL;
	int rc = shmstore_create(w->s, KEY(w->sc->key), 32, sizes, 1, 0, &writer);
	if (rc == 0)
		memset(shmstore_writer_buffer(writer, 0, NULL), 1, (size_t)sizes[0]);
	shmstore_abort(writer);
	return rc;
}

static int run_seal(struct world *w)
{
	struct shmstore_writer *writer = w->writer;
	w->writer = NULL;
	return shmstore_seal(writer);
}

static int run_get(struct world *w)
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

static int run_handoff(struct world *w)
{
	struct shmstore_ticket t;
	int rc = shmstore_handoff(w->s, KEY(w->sc->key), LEASE_MS, &t);
	if (rc == 0)
		take_ticket(w, &t);
	return rc;
}

static int run_adopt(struct world *w)
{
	return shmstore_adopt(w->s, KEY(w->sc->key), &w->shared->in, w->sc->op_flags);
}

static int run_delete(struct world *w)
{
	return shmstore_delete(w->s, KEY(w->sc->key));
}

static int run_close(struct world *w)
{
	struct shmstore *s = w->s;
	w->s = NULL;
	return shmstore_close(s);
}

static int run_open(struct world *w)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = w->sc->op_flags;
	options.keep = w->sc->flags & KEEP;
	options.label = "scenario";
	return shmstore_open(w->p, VICTIM, &options, &w->s);
}

static int run_open_readonly(struct world *w)
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

static int run_address(struct world *w)
{
	return shmstore_set_address(w->s, w->sc->key);
}

static int run_peer_find(struct world *w)
{
	char name[SHMSTORE_NAME_MAX + 1];
	return shmstore_peer_find(w->p, "tcp://127.0.0.1:1", name, sizeof(name));
}

static int run_gc(struct world *w)
{
	return shmstore_partition_gc(w->p, 0, NULL);
}

static int run_usage(struct world *w)
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

static int run_list(struct world *w)
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

static void partition_path(const struct world *w, char *ret, size_t size)
{
	snprintf(ret, size, "%s/second", w->mount);
}

static int run_partition(struct world *w)
{
	char path[256];
	partition_path(w, path, sizeof(path));
	return shmstore_partition_open(path, SHMSTORE_CREATE, &w->p);
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

#define A_STAYS                   \
	{                         \
		VICTIM, "a", 1, 1 \
	}

const struct scenario scenarios[] = {
	/* put */
	{.name = "put-tiny",
	 .run = run_put,
	 .pre = {{"a", MID(1)}},
	 .key = "b",
	 .content = TINY(2),
	 .keys = {A_STAYS, {VICTIM, "b", 0, 2}}},
	{.name = "put-empty",
	 .run = run_put,
	 .pre = {{"a", MID(1)}},
	 .key = "b",
	 .content = EMPTY(2),
	 .keys = {A_STAYS, {VICTIM, "b", 0, 2}}},
	{.name = "put-large",
	 .run = run_put,
	 .flags = NO_RECYCLE,
	 .pre = {{"a", MID(1)}},
	 .key = "b",
	 .content = LARGE(2),
	 .op_flags = SHMSTORE_CHECKSUM,
	 .keys = {A_STAYS, {VICTIM, "b", 0, 2}}},
	{.name = "put-kept",
	 .run = run_put,
	 .flags = KEEP,
	 .pre = {{"a", MID(1)}},
	 .key = "b",
	 .content = MID(2),
	 .keys = {A_STAYS, {VICTIM, "b", 0, 2}}},
	{.name = "put-recycled",
	 .run = run_put,
	 .flags = WANT_RECYCLED,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_pool,
	 .key = "b",
	 .content = MID(2),
	 .keys = {A_STAYS, {VICTIM, "b", 0, 2}}},
	{.name = "put-slots",
	 .run = run_put,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_slots,
	 .n_more = 14,
	 .key = "b",
	 .content = MID(2),
	 .keys = {A_STAYS, {VICTIM, "slack", 50, 50}, {VICTIM, "slot-3", 63, 63}, {VICTIM, "b", 0, 2}}},
	{.name = "put-replace",
	 .run = run_put,
	 .pre = {{"a", MID(1)}, {"b", MID(3)}},
	 .key = "b",
	 .content = TINY(2),
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {A_STAYS, {VICTIM, "b", 3, 2}}},
	{.name = "put-replace-recycled",
	 .run = run_put,
	 .flags = WANT_RECYCLED,
	 .pre = {{"a", MID(1)}, {"b", MID(3)}},
	 .setup = setup_pool,
	 .key = "b",
	 .content = MID(2),
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {A_STAYS, {VICTIM, "b", 3, 2}}},
	{.name = "put-replace-no-pool",
	 .run = run_put,
	 .flags = NO_RECYCLE,
	 .pre = {{"a", MID(1)}, {"b", MID(3)}},
	 .key = "b",
	 .content = MID(2),
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {A_STAYS, {VICTIM, "b", 3, 2}}},
	{.name = "put-exists",
	 .run = run_put,
	 .pre = {{"a", MID(1)}},
	 .key = "a",
	 .content = MID(2),
	 .want_rc = -EEXIST,
	 .keys = {A_STAYS}},
	{.name = "put-alias",
	 .run = run_put_view,
	 .flags = WANT_ALIAS,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_view_a,
	 .key = "b",
	 .keys = {A_STAYS, {VICTIM, "b", 0, 1}}},
	{.name = "put-alias-replace",
	 .run = run_put_view,
	 .flags = WANT_ALIAS,
	 .pre = {{"a", MID(1)}, {"b", MID(3)}},
	 .setup = setup_view_a,
	 .key = "b",
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {A_STAYS, {VICTIM, "b", 3, 1}}},
	{.name = "put-alias-long",
	 .run = run_put_view,
	 .flags = WANT_ALIAS,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_view_a,
	 .key = LONG2,
	 .keys = {A_STAYS, {VICTIM, LONG2, 0, 1}}},
	{.name = "put-alias-long-replace",
	 .run = run_put_view,
	 .flags = WANT_ALIAS,
	 .pre = {{"a", MID(1)}, {LONG2, TINY(3)}},
	 .setup = setup_view_a,
	 .key = LONG2,
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {A_STAYS, {VICTIM, LONG2, 3, 1}}},
	{.name = "put-long",
	 .run = run_put,
	 .pre = {{"a", MID(1)}},
	 .key = LONG1,
	 .content = TINY(2),
	 .keys = {A_STAYS, {VICTIM, LONG1, 0, 2}}},
	{.name = "put-long-over-sidecar",
	 .run = run_put,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_long_alias,
	 .key = LONG1,
	 .content = TINY(2),
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {A_STAYS, {VICTIM, LONG1, 1, 2}}},
	{.name = "put-full",
	 .run = run_put,
	 .flags = NEARLY_FULL,
	 .pre = {{"a", TINY(1)}},
	 .setup = setup_pool_tiny,
	 .key = "b",
	 .content = LARGE(2),
	 .want_rc = -ENOSPC,
	 .keys = {A_STAYS, {VICTIM, "b", 0, 0}}},
	/* create */
	{.name = "create-seal",
	 .run = run_create_seal,
	 .pre = {{"a", MID(1)}},
	 .key = "b",
	 .content = MID(2),
	 .keys = {A_STAYS, {VICTIM, "b", 0, 2}}},
	{.name = "create-seal-recycled",
	 .run = run_create_seal,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_pool,
	 .key = "b",
	 .content = MID(2),
	 .keys = {A_STAYS, {VICTIM, "b", 0, 2}}},
	{.name = "create-seal-replace",
	 .run = run_create_seal,
	 .pre = {{"a", MID(1)}, {"b", MID(3)}},
	 .key = "b",
	 .content = LARGE(2),
	 .op_flags = SHMSTORE_REPLACE | SHMSTORE_CHECKSUM,
	 .keys = {A_STAYS, {VICTIM, "b", 3, 2}}},
	{.name = "create-full",
	 .run = run_create_seal,
	 .flags = NEARLY_FULL,
	 .pre = {{"a", TINY(1)}},
	 .key = "b",
	 .content = LARGE(2),
	 .want_rc = -ENOSPC,
	 .keys = {A_STAYS, {VICTIM, "b", 0, 0}}},
	{.name = "seal",
	 .run = run_seal,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_writer,
	 .key = LONG2,
	 .content = TINY(2),
	 .keys = {A_STAYS, {VICTIM, LONG2, 0, 2}}},
	{.name = "seal-exists",
	 .run = run_seal,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_writer,
	 .key = "a",
	 .content = TINY(2),
	 .want_rc = -EEXIST,
	 .keys = {A_STAYS}},
	{.name = "create-abort",
	 .run = run_create_abort,
	 .pre = {{"a", MID(1)}},
	 .key = "b",
	 .content = TINY(2),
	 .keys = {A_STAYS, {VICTIM, "b", 0, 0}}},
	/* get */
	{.name = "get", .run = run_get, .pre = {{"a", MID(1)}}, .key = "a", .keys = {A_STAYS}},
	{.name = "get-cow",
	 .run = run_get,
	 .pre = {{LONG1, TINY(1)}},
	 .key = LONG1,
	 .op_flags = SHMSTORE_COW | SHMSTORE_VERIFY,
	 .keys = {{VICTIM, LONG1, 1, 1}}},
	{.name = "list",
	 .run = run_list,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_long_alias,
	 .key = "a",
	 .keys = {A_STAYS, {VICTIM, LONG1, 1, 1}}},
	/* handoff and adopt */
	{.name = "handoff",
	 .run = run_handoff,
	 .flags = TICKET_OUT,
	 .pre = {{"a", MID(1)}},
	 .key = "a",
	 .keys = {A_STAYS}},
	{.name = "handoff-long",
	 .run = run_handoff,
	 .flags = TICKET_OUT,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_long_alias,
	 .key = LONG1,
	 .keys = {A_STAYS, {VICTIM, LONG1, 1, 1}}},
	{.name = "handoff-delete",
	 .run = run_delete,
	 .flags = TICKET_OUT,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_handoff,
	 .key = "a",
	 .keys = {{VICTIM, "a", 1, 0}}},
	{.name = "handoff-close",
	 .run = run_close,
	 .flags = TICKET_OUT | CONSUMES,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_handoff,
	 .keys = {{VICTIM, "a", 1, 0}}},
	{.name = "adopt",
	 .run = run_adopt,
	 .flags = TICKET_IN,
	 .pre = {{"a", MID(1)}},
	 .key = "t",
	 .op_flags = SHMSTORE_VERIFY,
	 .keys = {A_STAYS, {VICTIM, "t", 0, 101}}},
	{.name = "adopt-long",
	 .run = run_adopt,
	 .flags = TICKET_IN,
	 .pre = {{"a", MID(1)}},
	 .key = LONG1,
	 .keys = {A_STAYS, {VICTIM, LONG1, 0, 101}}},
	{.name = "adopt-replace",
	 .run = run_adopt,
	 .flags = TICKET_IN,
	 .pre = {{"a", MID(1)}},
	 .key = "a",
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {{VICTIM, "a", 1, 101}}},
	{.name = "adopt-last",
	 .run = run_adopt,
	 .flags = TICKET_IN | TICKET_LAST | KEEP,
	 .pre = {{"a", MID(1)}},
	 .key = LONG1,
	 .keys = {A_STAYS, {VICTIM, LONG1, 0, 104}}},
	{.name = "adopt-last-replace",
	 .run = run_adopt,
	 .flags = TICKET_IN | TICKET_LAST | KEEP,
	 .pre = {{"a", MID(1)}, {"b", MID(3)}},
	 .key = "b",
	 .op_flags = SHMSTORE_REPLACE,
	 .keys = {A_STAYS, {VICTIM, "b", 3, 104}}},
	{.name = "adopt-exists",
	 .run = run_adopt,
	 .flags = TICKET_IN,
	 .pre = {{"a", MID(1)}},
	 .key = "a",
	 .want_rc = -EEXIST,
	 .keys = {A_STAYS}},
	/* delete */
	{.name = "delete-to-pool",
	 .run = run_delete,
	 .pre = {{"a", MID(1)}, {"b", MID(2)}},
	 .key = "b",
	 .keys = {A_STAYS, {VICTIM, "b", 2, 0}}},
	{.name = "delete-no-pool",
	 .run = run_delete,
	 .flags = NO_RECYCLE,
	 .pre = {{"a", MID(1)}, {"b", MID(2)}},
	 .key = "b",
	 .keys = {A_STAYS, {VICTIM, "b", 2, 0}}},
	{.name = "delete-viewed",
	 .run = run_delete,
	 .pre = {{"a", MID(1)}, {"b", MID(2)}},
	 .setup = setup_view_a,
	 .key = "a",
	 .keys = {{VICTIM, "a", 1, 0}, {VICTIM, "b", 2, 2}}},
	{.name = "delete-long",
	 .run = run_delete,
	 .pre = {{"a", MID(1)}, {LONG2, MID(2)}},
	 .key = LONG2,
	 .keys = {A_STAYS, {VICTIM, LONG2, 2, 0}}},
	{.name = "delete-sidecar",
	 .run = run_delete,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_long_alias,
	 .key = LONG1,
	 .keys = {A_STAYS, {VICTIM, LONG1, 1, 0}}},
	/* open */
	{.name = "open", .run = run_open, .flags = NO_STORE, .keys = {{VICTIM, "a", 0, 0}}},
	{.name = "open-sweeps",
	 .run = run_open,
	 .flags = NO_STORE | DEAD_STORE | DEAD_LEASE,
	 .dead = {{"d", MID(5)}, {LONG1, TINY(6)}},
	 .keys = {{DEAD, "d", 5, 0}, {DEAD, LONG1, 6, 0}}},
	{.name = "open-own-dead",
	 .run = run_open,
	 .flags = NO_STORE | DEAD_STORE | DEAD_IS_VICTIM,
	 .dead = {{"a", MID(1)}},
	 .keys = {{VICTIM, "a", 1, 0}}},
	{.name = "open-adopt",
	 .run = run_open,
	 .flags = NO_STORE | DEAD_STORE | DEAD_IS_VICTIM,
	 .dead = {{"a", MID(1)}, {LONG1, TINY(6)}},
	 .op_flags = SHMSTORE_OPEN_ADOPT,
	 .keys = {A_STAYS, {VICTIM, LONG1, 6, 6}}},
	{.name = "open-kept",
	 .run = run_open,
	 .flags = NO_STORE | DEAD_STORE | DEAD_IS_VICTIM | DEAD_KEEP | KEEP,
	 .dead = {{"a", MID(1)}, {"b", TINY(2)}},
	 .keys = {A_STAYS, {VICTIM, "b", 2, 2}}},
	{.name = "open-fresh",
	 .run = run_open,
	 .flags = NO_STORE | DEAD_STORE | DEAD_IS_VICTIM | DEAD_KEEP | KEEP,
	 .dead = {{"a", MID(1)}, {"b", TINY(2)}},
	 .op_flags = SHMSTORE_OPEN_FRESH,
	 .keys = {{VICTIM, "a", 1, 0}, {VICTIM, "b", 2, 0}}},
	{.name = "open-readonly", .run = run_open_readonly, .flags = NO_STORE, .keys = {{SURVIVOR, "s1", 101, 101}}},
	{.name = "partition", .run = run_partition, .flags = NO_STORE | OWN_PARTITION},
	/* close */
	{.name = "close",
	 .run = run_close,
	 .flags = CONSUMES,
	 .pre = {{"a", MID(1)}, {LONG1, TINY(2)}},
	 .keys = {{VICTIM, "a", 1, 0}, {VICTIM, LONG1, 2, 0}}},
	{.name = "close-busy",
	 .run = run_close,
	 .flags = CONSUMES | TICKET_OUT,
	 .pre = {{"a", MID(1)}, {"b", TINY(2)}},
	 .setup = setup_everything,
	 .content = MID(9),
	 .keys = {{VICTIM, "a", 1, 0}, {VICTIM, "b", 2, 0}}},
	{.name = "close-kept",
	 .run = run_close,
	 .flags = CONSUMES | KEEP,
	 .pre = {{"a", MID(1)}, {"b", TINY(2)}},
	 .setup = setup_pool,
	 .content = MID(9),
	 .keys = {A_STAYS, {VICTIM, "b", 2, 2}}},
	/* addresses */
	{.name = "address", .run = run_address, .pre = {{"a", MID(1)}}, .key = "tcp://127.0.0.1:2", .keys = {A_STAYS}},
	{.name = "address-replace",
	 .run = run_address,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_address,
	 .key = "tcp://127.0.0.1:2",
	 .keys = {A_STAYS}},
	{.name = "address-withdraw",
	 .run = run_address,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_address,
	 .key = "",
	 .keys = {A_STAYS}},
	{.name = "peer-find", .run = run_peer_find, .pre = {{"a", MID(1)}}, .setup = setup_address, .keys = {A_STAYS}},
	/* gc and books */
	{.name = "gc",
	 .run = run_gc,
	 .flags = NO_STORE | DEAD_STORE | DEAD_LEASE,
	 .dead = {{"d", MID(5)}, {LONG1, TINY(6)}, {"e", LARGE(7)}},
	 .keys = {{DEAD, "d", 5, 0}, {DEAD, LONG1, 6, 0}, {DEAD, "e", 7, 0}}},
	{.name = "gc-kept",
	 .run = run_gc,
	 .flags = DEAD_STORE | DEAD_KEEP | DEAD_LEASE,
	 .dead = {{"d", MID(5)}, {LONG1, TINY(6)}},
	 .pre = {{"a", MID(1)}},
	 .keys = {A_STAYS, {DEAD, "d", 5, 5}, {DEAD, LONG1, 6, 6}}},
	{.name = "usage",
	 .run = run_usage,
	 .pre = {{"a", MID(1)}},
	 .setup = setup_pool,
	 .content = MID(9),
	 .keys = {A_STAYS}},
};
const size_t n_scenarios = sizeof(scenarios) / sizeof(scenarios[0]);
