/* SPDX-License-Identifier: Apache-2.0 */
/* ledgermodel.c: see ledgermodel.h. */
#include "ledgermodel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "handle.h"
#include "name.h"
#include "recycle.h"

#define STORES  3
#define KEYS    10
#define TICKETS 6
#define LONGEST 400 /* bytes of a key that has a hashed name */
#define NAMES   4096

static const char *const store_names[STORES] = {"a", "b", "kept"};
static const char *const step_names[] = {
	"put",    "replace",    "seal",   "alias",  "handoff", "adopt",     "adopt by path",
	"delete", "delete all", "reopen", "demote", "promote", "give back", "get"};

struct world {
	uint64_t state, seed;
	int step, what;
	bool tier;
	struct shmstore *stores[STORES];
	struct shmstore_ticket tickets[TICKETS];
	int n_tickets;
	struct shmstore_view *held;
};

static uint64_t draw(struct world *w, uint64_t n)
{
	uint64_t z;

	w->state += 0x9E3779B97F4A7C15u;
	z = w->state;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return (z ^ (z >> 31)) % n;
}

/* ---- what the file system says ---- */

struct walked {
	uint64_t inodes[NAMES];
	size_t n;
	uint64_t linked_n, linked, pool_n, pool;
};

static bool met(struct walked *k, uint64_t inode)
{
	for (size_t i = 0; i < k->n; i++) {
		if (k->inodes[i] == inode)
			return true;
	}
	ENSURE(k->n < NAMES);
	k->inodes[k->n++] = inode;
	return false;
}

static void walk_part(const char *store, bool pool, struct walked *k)
{
	DIR *dir = opendir(scratch_store_path(store, pool ? "recycle" : "objects"));
	unsigned char key[SHMS_NAME_SIZE];
	struct dirent *e;
	struct stat st;
	size_t n;

	ENSURE(dir);
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.' &&
		    (!e->d_name[1] || (e->d_name[1] == '.' && !e->d_name[2])))
			continue;
		if (!pool && shms_name_decode(e->d_name, key, &n) == SHMS_NAME_SIDECAR)
			continue;
		ENSURE(fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
		*(pool ? &k->pool_n : &k->linked_n) += 1;
		if (S_ISREG(st.st_mode) && !met(k, st.st_ino))
			*(pool ? &k->pool : &k->linked) += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
}

static void check_store(const struct world *w, int i)
{
	struct shmstore_counters c;
	struct walked k = {.n = 0};

	shms_page_counters(w->stores[i]->page, &c);
	walk_part(store_names[i], false, &k);
	walk_part(store_names[i], true, &k);
	if (c.linked_bytes == k.linked && c.linked_n == k.linked_n && c.pool_bytes == k.pool &&
	    c.pool_n == k.pool_n && c.reserved_bytes == 0)
		return;
	fprintf(stderr,
		"seed %" PRIu64 ", step %d (%s), store %s: linked %" PRId64
		" by the ledger, %" PRIu64 " by the walk (names %" PRIu64 ", %" PRIu64
		"); pool %" PRId64 ", %" PRIu64 " (files %" PRIu64 ", %" PRIu64
		"); reserved %" PRIu64 "\n",
		w->seed, w->step, step_names[w->what], store_names[i], (int64_t)c.linked_bytes,
		k.linked, c.linked_n, k.linked_n, (int64_t)c.pool_bytes, k.pool, c.pool_n, k.pool_n,
		c.reserved_bytes);
	abort();
}

/* ---- the steps ---- */

static void open_one(struct world *w, int i)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	o.keep = i == STORES - 1;
	o.recycle_max = 24u << 20;
	ENSURE(shmstore_open(p, store_names[i], &o, &w->stores[i]) == 0);
	shmstore_partition_unref(p);
}

static size_t a_key(struct world *w, char key[LONGEST + 1])
{
	uint64_t n = draw(w, KEYS);

	if (n)
		return (size_t)snprintf(key, LONGEST, "k%" PRIu64, n);
	memset(key, 'x', LONGEST);
	return LONGEST;
}

static uint64_t a_size(struct world *w)
{
	switch (draw(w, 7)) {
	case 0:
		return 1 + draw(w, 200);
	case 1:
		return 1 + draw(w, 4096);
	case 2:
		return 4096 * draw(w, 10);
	case 3:
		return 1 + draw(w, 60000);
	case 4:
		return 60000 + draw(w, 20000);
	case 5:
		return 65536 + draw(w, 1 << 20);
	default:
		return (1 << 20) + draw(w, 5 << 20);
	}
}

static const char bytes[7 << 20];

static void do_put(struct world *w, struct shmstore *s, unsigned flags)
{
	uint64_t size = a_size(w), first = draw(w, size + 1);
	struct iovec iov[2];
	char key[LONGEST + 1];
	size_t n = a_key(w, key);
	int r;

	memcpy(&iov[0].iov_base, &(const char *){bytes}, sizeof(char *));
	iov[1].iov_base = iov[0].iov_base;
	iov[0].iov_len = first;
	iov[1].iov_len = size - first;
	r = shmstore_put(s, key, n, bytes, draw(w, 3) ? draw(w, 300) : draw(w, 9000), iov,
			 draw(w, 3), flags);
	ENSURE(r == 0 || r == -EEXIST);
}

static void do_seal(struct world *w, struct shmstore *s)
{
	uint64_t size = a_size(w);
	struct shmstore_writer *writer;
	char key[LONGEST + 1];
	size_t n = a_key(w, key);

	ENSURE(shmstore_create(s, key, n, draw(w, 300), &size, 1, draw(w, 2) ? SHMSTORE_REPLACE : 0,
			       &writer) == 0);
	if (draw(w, 5)) {
		int r = shmstore_seal(writer);

		ENSURE(r == 0 || r == -EEXIST);
	} else {
		shmstore_abort(writer);
	}
}

static void do_alias(struct world *w, struct shmstore *s)
{
	struct shmstore_view *v;
	struct iovec iov[3];
	char key[LONGEST + 1];
	size_t n = a_key(w, key), n_iov, metadata_size;
	const void *metadata;
	int r = shmstore_get(s, key, n, 0, &v);

	ENSURE(r == 0 || r == -ENOENT);
	if (r < 0)
		return;
	n_iov = shmstore_view_n_buffers(v);
	for (size_t i = 0; i < n_iov && i < 3; i++) {
		uint64_t size;
		const void *buffer = shmstore_view_buffer(v, i, &size);

		memcpy(&iov[i].iov_base, &buffer, sizeof(buffer));
		iov[i].iov_len = size;
	}
	metadata = shmstore_view_header(v, &metadata_size);
	n = a_key(w, key);
	r = shmstore_put(s, key, n, metadata, metadata_size, iov, n_iov,
			 draw(w, 2) ? SHMSTORE_REPLACE : 0);
	ENSURE(r == 0 || r == -EEXIST);
	if (draw(w, 4) == 0) {
		shmstore_view_unref(w->held);
		w->held = v;
	} else {
		shmstore_view_unref(v);
	}
}

static void do_handoff(struct world *w, struct shmstore *s)
{
	struct shmstore_ticket t;
	char key[LONGEST + 1];
	size_t n = a_key(w, key);
	int r = shmstore_handoff(s, key, n, 600000, &t);

	ENSURE(r == 0 || r == -ENOENT);
	if (r == 0)
		w->tickets[w->n_tickets < TICKETS ? w->n_tickets++ : (int)draw(w, TICKETS)] = t;
}

static void do_adopt(struct world *w, struct shmstore *s)
{
	char key[LONGEST + 1];
	size_t n = a_key(w, key);
	int i, r;

	if (!w->n_tickets)
		return;
	i = (int)draw(w, (uint64_t)w->n_tickets);
	r = shmstore_adopt(s, key, n, &w->tickets[i], draw(w, 2) ? SHMSTORE_REPLACE : 0);
	ENSURE(r == 0 || r == -EEXIST || r == -ESTALE);
	if (r != -EEXIST)
		w->tickets[i] = w->tickets[--w->n_tickets];
}

/* The path of an object in a peer's objects/ is a ticket too. */
static void do_adopt_path(struct world *w, struct shmstore *s)
{
	int from = (int)draw(w, STORES), r;
	struct shmstore_ticket t;
	char key[LONGEST + 1], name[SHMS_NAME_SIZE];
	size_t n = a_key(w, key);

	r = shmstore_handoff(w->stores[from], key, n, 1, &t);
	ENSURE(r == 0 || r == -ENOENT);
	if (r < 0 || n == LONGEST)
		return;
	ENSURE(shms_name_encode(key, n, name) == SHMS_NAME_PLAIN);
	snprintf(t.path, sizeof(t.path), "%s/objects/%s", shmstore_path(w->stores[from]), name);
	n = a_key(w, key);
	r = shmstore_adopt(s, key, n, &t, draw(w, 2) ? SHMSTORE_REPLACE : 0);
	ENSURE(r == 0 || r == -EEXIST || r == -ESTALE);
}

static void do_delete(struct world *w, struct shmstore *s, bool all)
{
	char key[LONGEST + 1];
	size_t n = a_key(w, key);

	if (!all) {
		int r = shmstore_delete(s, key, n);

		ENSURE(r == 0 || r == -ENOENT);
		return;
	}
	for (int i = 0; i < KEYS; i++) {
		if (i) {
			n = (size_t)snprintf(key, LONGEST, "k%d", i);
		} else {
			memset(key, 'x', LONGEST);
			n = LONGEST;
		}
		shmstore_delete(s, key, n);
	}
}

/* Of one store, or as an eviction of the whole partition does, which moves other stores' names. */
static void do_demote(struct world *w, struct shmstore *s)
{
	struct shmstore_evict evict = SHMSTORE_EVICT_INIT;
	struct shmstore_partition *p = scratch_partition();
	char key[LONGEST + 1];
	size_t n = a_key(w, key);
	int r;

	if (draw(w, 3)) {
		r = shmstore_demote(s, key, n, 0);
		ENSURE(r == 0 || r == -ENOENT || r == -EPERM);
	} else {
		evict.bytes = 1 + draw(w, 8 << 20);
		r = shmstore_partition_evict(p, &evict, NULL);
		ENSURE(r >= 0 || r == -ENOSPC);
	}
	shmstore_partition_unref(p);
}

static void do_promote(struct world *w, struct shmstore *s)
{
	char key[LONGEST + 1];
	size_t n = a_key(w, key);
	int r = shmstore_promote(s, key, n, 0);

	ENSURE(r == 0 || r == -ENOENT);
}

static void do_get(struct world *w, struct shmstore *s)
{
	struct shmstore_view *v;
	char key[LONGEST + 1];
	size_t n = a_key(w, key);
	int r = shmstore_get(s, key, n, 0, &v);

	ENSURE(r == 0 || r == -ENOENT);
	if (r == 0)
		shmstore_view_unref(v);
}

static void one_step(struct world *w)
{
	/* How often each comes: in the order of step_names. */
	static const uint64_t weights[] = {18, 12, 7, 14, 12, 14, 4, 14, 1, 1, 6, 4, 2, 3};
	int i = (int)draw(w, STORES);
	struct shmstore *s = w->stores[i];
	uint64_t sum = 0, at;

	for (size_t k = 0; k < sizeof(weights) / sizeof(weights[0]); k++)
		sum += weights[k];
	at = draw(w, sum);
	for (w->what = 0; at >= weights[w->what]; w->what++)
		at -= weights[w->what];
	if (w->what == 0 || w->what == 1)
		do_put(w, s, w->what ? SHMSTORE_REPLACE : 0);
	else if (w->what == 2)
		do_seal(w, s);
	else if (w->what == 3)
		do_alias(w, s);
	else if (w->what == 4)
		do_handoff(w, s);
	else if (w->what == 5)
		do_adopt(w, s);
	else if (w->what == 6)
		do_adopt_path(w, s);
	else if (w->what == 7 || w->what == 8)
		do_delete(w, s, w->what == 8);
	else if (w->what == 9) {
		ENSURE(shmstore_close(s) == 0);
		open_one(w, i);
	} else if (w->what == 10 && w->tier)
		do_demote(w, s);
	else if (w->what == 11 && w->tier)
		do_promote(w, s);
	else if (w->what == 12)
		shms_recycle_trim(s);
	else
		do_get(w, s);
}

void ledger_history(uint64_t seed, int steps, bool tier)
{
	struct world w = {.state = seed * 0x9E3779B97F4A7C15u, .seed = seed, .tier = tier};

	for (int i = 0; i < STORES; i++)
		open_one(&w, i);
	for (w.step = 0; w.step < steps; w.step++) {
		one_step(&w);
		for (int i = 0; i < STORES; i++)
			check_store(&w, i);
	}
	shmstore_view_unref(w.held);
	for (int i = 0; i < STORES; i++) {
		w.what = 8;
		do_delete(&w, w.stores[i], true);
		shms_recycle_trim(w.stores[i]);
		check_store(&w, i);
		ENSURE(w.stores[i]->ledger->linked_bytes == w.stores[i]->page->moved.bytes);
		ENSURE(shmstore_close(w.stores[i]) == 0);
	}
}

static uint64_t said(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

int ledger_histories(int n)
{
	return (int)said("SHMSTORE_HISTORIES", (uint64_t)n);
}

uint64_t ledger_seed(void)
{
	return said("SHMSTORE_SEED", 1);
}
