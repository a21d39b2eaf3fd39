/* SPDX-License-Identifier: Apache-2.0 */
/*
 * candidates.c: what could be demoted, by one walk.
 *
 * Model: flat arrays that grow by doubling: objects, names (a list per object, by index),
 * stores, and the names' text. A set of inodes finds an object again by another name, or by the
 * name of its clean copy, which comes after the store's objects. Names of other objects are not
 * entered: an inode that lacks names in the count is no candidate.
 *
 * Memory is bounded: at SHMS_CANDIDATES_MAX objects the half used most recently is thrown
 * out, and from then on nothing as recent is taken. Objects may change at any moment; the
 * demotion looks again (demote.h).
 */
#include "candidates.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "alloc.h"
#include "inodes.h"
#include "name.h"
#include "page.h"
#include "partition.h"
#include "sys.h"
#include "walk.h"

#define SAMPLES 8u /* tier files of a store that are looked at */

struct finding {
	struct shms_candidates *c;
	const struct shms_evict_user *users;
	size_t n_users;
	uint64_t own_inode;
	struct shms_inodes *inodes; /* of the candidates */
	int64_t youngest;           /* what was used later is not taken */
};

/* ---- arrays ---------------------------------------------------------------------------------- */

#define GROW(c, array, n, more) SHMS_GROW((c)->array, (c)->array##_size, (c)->n, (more))

static int add_text(struct shms_candidates *c, const char *text, uint32_t *ret)
{
	size_t size = strlen(text) + 1;
	int r = GROW(c, text, n_text, size);

	if (r < 0)
		return r;
	memcpy(c->text + c->n_text, text, size);
	*ret = (uint32_t)c->n_text;
	c->n_text += size;
	return 0;
}

/* ---- too many -------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* The time before which half of them were used last. */
static int middle(const struct shms_candidates *c, int64_t *ret)
{
	int64_t *times = calloc(c->n, sizeof(*times));

	if (!times)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++)
		times[i] = c->v[i].used_ns;
	qsort(times, c->n, sizeof(*times), by_time);
	*ret = times[c->n / 2];
	free(times);
	return 0;
}

static int note_inode(const struct finding *f, uint64_t inode, size_t candidate)
{
	struct shms_inode *i = f->inodes ? shms_inodes_get(f->inodes, inode) : NULL;

	if (!i)
		return -ENOMEM;
	i->at = (uint32_t)candidate;
	return 0;
}

/* Copies object i and its names to the end of "to". */
static int keep(struct finding *f, struct shms_candidates *to, const struct shms_candidates *from,
		size_t i)
{
	struct shms_candidate one = from->v[i];
	uint32_t at = one.first;
	int r = GROW(to, v, n, 1);

	one.first = 0;
	for (; at && r == 0; at = from->names[at - 1].next) {
		struct shms_candidate_name name = from->names[at - 1];
		const char *text = shms_candidates_text(from, name.name);

		r = GROW(to, names, n_names, 1);
		if (r == 0)
			r = add_text(to, text, &name.name);
		if (r < 0)
			break;
		name.next = one.first;
		to->names[to->n_names++] = name;
		one.first = (uint32_t)to->n_names;
	}
	if (r == 0)
		r = note_inode(f, one.inode, to->n);
	if (r == 0)
		to->v[to->n++] = one;
	return r;
}

static int cut(struct finding *f)
{
	struct shms_candidates *c = f->c, old = *c;
	int64_t half;
	int r = middle(&old, &half);

	if (r < 0)
		return r;
	c->v = NULL;
	c->names = NULL;
	c->text = NULL;
	c->n = c->n_names = c->n_text = c->v_size = c->names_size = c->text_size = 0;
	c->cut = true;
	shms_inodes_free(f->inodes);
	f->inodes = shms_inodes_new();
	for (size_t i = 0; i < c->n_stores && r == 0; i++)
		r = add_text(c, shms_candidates_text(&old, c->stores[i].below),
			     &c->stores[i].below);
	for (size_t i = 0; i < old.n && r == 0; i++) {
		if (old.v[i].used_ns <= half)
			r = keep(f, c, &old, i);
	}
	/* Where all are of one moment, what is there must do. */
	f->youngest = c->n < SHMS_CANDIDATES_MAX ? half + 1 : half;
	free(old.v);
	free(old.names);
	free(old.text);
	return r;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static int on_store(const struct shms_walk_store *s, void *arg)
{
	struct finding *f = arg;
	struct shms_candidates *c = f->c;
	struct shms_candidate_store *store;
	struct stat st;
	int r = GROW(c, stores, n_stores, 1);

	if (r < 0)
		return r;
	store = &c->stores[c->n_stores];
	*store = (struct shms_candidate_store){.inode = s->st.st_ino,
					       .own = s->st.st_ino == f->own_inode};
	r = add_text(c, s->below, &store->below);
	if (r < 0)
		return r;
	c->n_stores++;
	if (s->fd < 0)
		return 0;
	store->takes_part = fstatat(s->fd, SHMS_DIR_CLEAN, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			    S_ISDIR(st.st_mode);
	if (fstatat(s->fd, "objects", &st, AT_SYMLINK_NOFOLLOW) == 0)
		store->used_ns = shms_stat_ns(&st.st_mtim);
	return 0;
}

static int user_of(const struct finding *f, uid_t uid)
{
	for (size_t i = 0; i < f->n_users; i++) {
		if (f->users[i].uid == uid)
			return (int)i;
	}
	return -1;
}

static struct shms_candidate *find(const struct finding *f, uint64_t inode)
{
	const struct shms_inode *i = shms_inodes_find(f->inodes, inode);

	return i ? &f->c->v[i->at] : NULL;
}

static int new_candidate(struct finding *f, const struct stat *st, uint32_t user,
			 struct shms_candidate **ret)
{
	struct shms_candidates *c = f->c;
	int r = GROW(c, v, n, 1);

	if (r == 0)
		r = note_inode(f, st->st_ino, c->n);
	if (r < 0)
		return r;
	c->v[c->n] = (struct shms_candidate){
		.inode = st->st_ino,
		.bytes = shms_blocks(st),
		.used_ns = shms_stat_ns(&st->st_ctim),
		.n_links = st->st_nlink,
		.user = user,
		.pinned = st->st_mode & S_ISVTX,
	};
	if (st->st_nlink > 1)
		c->v[c->n].n_residents =
			(uint32_t)shms_residents_count(&f->users[user].residents, st->st_ino);
	*ret = &c->v[c->n++];
	return 0;
}

static int add_name(struct finding *f, struct shms_candidate *o, const char *name)
{
	struct shms_candidates *c = f->c;
	struct shms_candidate_name *n;
	int r = GROW(c, names, n_names, 1);

	if (r < 0)
		return r;
	n = &c->names[c->n_names];
	*n = (struct shms_candidate_name){.store = (uint32_t)c->n_stores - 1, .next = o->first};
	r = add_text(c, name, &n->name);
	if (r < 0)
		return r;
	o->first = (uint32_t)++c->n_names;
	o->n_names++;
	return 0;
}

static int on_object(struct finding *f, const struct shms_walk_entry *e)
{
	struct shms_candidate_store *store = &f->c->stores[f->c->n_stores - 1];
	struct shms_candidate *o = NULL;
	int user = user_of(f, e->st->st_uid), r = 0;
	int64_t used = shms_stat_ns(&e->st->st_ctim);

	if (e->st->st_nlink == 1)
		store->uss += shms_blocks(e->st);
	if (used > store->used_ns)
		store->used_ns = used;
	if (user < 0 || e->store->st.st_uid != e->st->st_uid || !store->takes_part ||
	    used >= f->youngest)
		return 0;
	if (e->st->st_nlink > 1)
		o = find(f, e->st->st_ino);
	if (!o && f->c->n >= SHMS_CANDIDATES_MAX) {
		r = cut(f);
		if (r < 0 || used >= f->youngest)
			return r;
	}
	if (!o)
		r = new_candidate(f, e->st, (uint32_t)user, &o);
	return r < 0 ? r : add_name(f, o, e->name);
}

/* How much smaller the store's objects became. */
static void sample(struct finding *f, const struct shms_walk_entry *e)
{
	struct shms_candidate_store *store = &f->c->stores[f->c->n_stores - 1];
	int user = user_of(f, e->stub->uid);
	char name[SHMS_TIER_NAME];
	struct stat st;

	if (user < 0 || store->n_sampled >= SAMPLES)
		return;
	store->n_sampled++;
	shms_tier_file_name(e->stub->id, name);
	if (fstatat(f->users[user].t->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	store->stored += (uint64_t)st.st_size;
	store->original += e->stub->header_size + e->stub->buffer_size;
}

/* A clean copy: of the object of that name, which the walk has met before. */
static void on_clean(struct finding *f, const struct shms_walk_entry *e)
{
	char name[sizeof(SHMS_DIR_OBJECTS) + SHMS_NAME_SIZE];
	struct shms_candidate *o;
	struct stat st;

	snprintf(name, sizeof(name), SHMS_DIR_OBJECTS "/%s", e->name);
	if (fstatat(e->store->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	o = find(f, st.st_ino);
	if (o)
		o->n_clean++;
}

static int on_entry(const struct shms_walk_entry *e, void *arg)
{
	struct finding *f = arg;

	if (!e->store)
		return 0;
	if (e->place == SHMS_PLACE_OBJECT)
		return on_object(f, e);
	if (e->place == SHMS_PLACE_CLEAN)
		on_clean(f, e);
	if (e->stub)
		sample(f, e);
	return 0;
}

int shms_candidates_find(struct shmstore_partition *p, const struct shms_evict_user *users,
			 size_t n_users, uint64_t own_inode, struct shms_candidates *ret)
{
	struct shms_candidates c = {0};
	struct finding f = {.c = &c,
			    .users = users,
			    .n_users = n_users,
			    .own_inode = own_inode,
			    .inodes = shms_inodes_new(),
			    .youngest = INT64_MAX};
	struct shms_walk w = {
		.flags = SHMS_WALK_ENTRIES, .store = on_store, .entry = on_entry, .arg = &f};
	int r = f.inodes ? shms_walk_run(&w, p) : -ENOMEM;

	shms_inodes_free(f.inodes);
	if (r < 0)
		shms_candidates_deinit(&c);
	else
		*ret = c;
	return r;
}

void shms_candidates_deinit(struct shms_candidates *c)
{
	free(c->v);
	free(c->names);
	free(c->stores);
	free(c->text);
	*c = (struct shms_candidates){0};
}

/* ---- as the policy sees them ----------------------------------------------------------------- */

/*
 * A store's fair share is the partition divided by the number of stores that hold anything. An
 * object of several stores has the weight of the lightest of them: a hog that links what a modest
 * neighbour works with does not make it a better victim. It shrinks as its stores' other objects
 * did, the least of them; where nothing is known yet it is taken not to shrink.
 */

/* Where all names of an object are in one store: that one. */
static const struct shms_candidate_store *only_store(const struct shms_candidates *c,
						     const struct shms_candidate *o)
{
	const struct shms_candidate_name *first = &c->names[o->first - 1];

	for (uint32_t at = first->next; at; at = c->names[at - 1].next) {
		if (c->names[at - 1].store != first->store)
			return NULL;
	}
	return &c->stores[first->store];
}

static bool complete(const struct shms_candidate *o)
{
	return o->n_names && o->n_names + o->n_residents == o->n_links;
}

/* The walk did not count objects with several names in one store as that store's own. */
static void count_uss(struct shms_candidates *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct shms_candidate_store *store;

		if (!complete(&c->v[i]) || c->v[i].n_links == 1)
			continue;
		store = only_store(c, &c->v[i]);
		if (store)
			c->stores[store - c->stores].uss += c->v[i].bytes;
	}
}

static uint32_t ratio(const struct shms_candidate_store *s)
{
	if (!s->original || s->stored >= s->original)
		return SHMS_VICTIM_ONE;
	return (uint32_t)(s->stored * SHMS_VICTIM_ONE / s->original);
}

static uint64_t since(int64_t now_ns, int64_t then_ns)
{
	return now_ns > then_ns ? (uint64_t)(now_ns - then_ns) : 0;
}

struct weighing {
	const struct shms_candidates *c;
	uint64_t share;
	int64_t now_ns;
};

static struct shms_victim victim(const struct weighing *w, size_t i)
{
	const struct shms_candidate *o = &w->c->v[i];
	struct shms_victim v = {
		.id = i,
		.bytes = o->bytes,
		.age_ns = since(w->now_ns, o->used_ns),
		.n_names = o->n_names,
		.weight = UINT32_MAX,
		.clean = o->n_clean > 0,
	};

	for (uint32_t at = o->first; at; at = w->c->names[at - 1].next) {
		const struct shms_candidate_store *s = &w->c->stores[w->c->names[at - 1].store];
		uint32_t weight = shms_victim_weight(&(struct shms_victim_store){
			s->uss, w->share, since(w->now_ns, s->used_ns)});

		if (weight < v.weight)
			v.weight = weight;
		if (ratio(s) > v.ratio)
			v.ratio = ratio(s);
		v.near = v.near || s->own;
	}
	return v;
}

int shms_weigh(struct shms_candidates *c, uint64_t size, int64_t now_ns, struct shms_victim **ret,
	       size_t *ret_n)
{
	struct weighing w = {.c = c, .now_ns = now_ns};
	uint64_t n_stores = 0;
	size_t n = 0;
	struct shms_victim *v = calloc(c->n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	count_uss(c);
	for (size_t i = 0; i < c->n_stores; i++)
		n_stores += c->stores[i].uss > 0;
	w.share = n_stores ? size / n_stores : 0;
	for (size_t i = 0; i < c->n; i++) {
		if (complete(&c->v[i]) && !c->v[i].pinned)
			v[n++] = victim(&w, i);
	}
	*ret = v;
	*ret_n = n;
	return 0;
}
