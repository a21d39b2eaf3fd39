/* SPDX-License-Identifier: Apache-2.0 */
/*
 * candidates.c: what could be demoted, by one walk.
 *
 * Model: objects, each with a list of its names, and stores. A set of inodes finds an object again
 * by another name, or by the name of its clean copy, which comes after the store's objects. Names
 * of other objects are not entered: an inode that lacks names in the count is no candidate.
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
#include "cleanup.h"
#include "demote.h"
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
	uint64_t own_inode, only;
	struct shms_inodes *inodes; /* of the candidates */
	int64_t youngest;           /* what was used later is not taken */
};

/* ---- too many -------------------------------------------------------------------------------- */

static int by_use(const void *a, const void *b)
{
	int64_t x = ((const struct shms_candidate *)a)->used_ns,
		y = ((const struct shms_candidate *)b)->used_ns;

	return (x > y) - (x < y);
}

static int note_inode(const struct finding *f, uint64_t inode, size_t candidate)
{
	struct shms_inode *i = f->inodes ? shms_inodes_get(f->inodes, inode) : NULL;

	if (!i)
		return -ENOMEM;
	i->at = (uint32_t)candidate;
	return 0;
}

static void free_names(struct shms_candidate *o)
{
	struct shms_candidate_name *n;

	while ((n = o->names)) {
		o->names = n->next;
		free(n);
	}
}

/* Of all objects those go that were used after the one in the middle. */
static int cut(struct finding *f)
{
	struct shms_candidates *c = f->c;
	int64_t half;
	int r = 0;

	qsort(c->v, c->n, sizeof(*c->v), by_use);
	half = c->v[c->n / 2].used_ns;
	while (c->v[c->n - 1].used_ns > half)
		free_names(&c->v[--c->n]);
	c->cut = true;
	shms_inodes_free(f->inodes);
	f->inodes = shms_inodes_new();
	for (size_t i = 0; i < c->n && r == 0; i++)
		r = note_inode(f, c->v[i].inode, i);
	/* Where all are of one moment, what is there must do. */
	f->youngest = c->n < SHMS_CANDIDATES_MAX ? half + 1 : half;
	return r;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static int on_store(const struct shms_walk_store *s, void *arg)
{
	struct finding *f = arg;
	struct shms_candidates *c = f->c;
	struct shms_candidate_store *store;
	struct stat st;

	if (SHMS_GROW(c->stores, c->stores_size, c->n_stores, 1) < 0)
		return -ENOMEM;
	store = &c->stores[c->n_stores];
	*store = (struct shms_candidate_store){.below = strdup(s->below),
					       .inode = s->st.st_ino,
					       .own = s->st.st_ino == f->own_inode,
					       .objects_fd = -1,
					       .clean_fd = -1};
	if (!store->below)
		return -ENOMEM;
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

	if (SHMS_GROW(c->v, c->v_size, c->n, 1) < 0 || note_inode(f, st->st_ino, c->n) < 0)
		return -ENOMEM;
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
	size_t size = strlen(name) + 1;
	struct shms_candidate_name *n = malloc(sizeof(*n) + size);

	if (!n)
		return -ENOMEM;
	n->store = (uint32_t)f->c->n_stores - 1;
	memcpy(n->name, name, size);
	n->next = o->names;
	o->names = n;
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
	if (f->only ? f->only != e->st->st_ino
		    : user < 0 || e->store->st.st_uid != e->st->st_uid || used >= f->youngest)
		return 0;
	if (!store->takes_part)
		return 0;
	if (e->st->st_nlink > 1)
		o = find(f, e->st->st_ino);
	if (!o && f->c->n >= SHMS_CANDIDATES_MAX) {
		r = cut(f);
		if (r < 0 || used >= f->youngest)
			return r;
	}
	if (!o)
		r = new_candidate(f, e->st, user < 0 ? 0 : (uint32_t)user, &o);
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
			 size_t n_users, uint64_t own_inode, uint64_t only,
			 struct shms_candidates *ret)
{
	struct shms_candidates c = {.p = p};
	struct finding f = {.c = &c,
			    .users = users,
			    .n_users = n_users,
			    .own_inode = own_inode,
			    .only = only,
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

/* ---- their stores, open ---------------------------------------------------------------------- */

#define OPEN_MAX 64u /* stores; where more are wanted, those go that nobody uses at the moment */

static void close_idle(struct shms_candidates *c)
{
	for (size_t i = 0; i < c->n_stores; i++) {
		struct shms_candidate_store *s = &c->stores[i];

		if (s->n_use || s->objects_fd < 0)
			continue;
		s->objects_fd = shms_close_fd(s->objects_fd);
		s->clean_fd = shms_close_fd(s->clean_fd);
		c->n_open--;
	}
}

/* The directory that the walk met, and no other that stands in its place now. */
static int open_store(struct shms_candidates *c, struct shms_candidate_store *s)
{
	_fd_ int dir = shms_open_beneath(c->p->fd, s->below, O_RDONLY | O_DIRECTORY);
	_fd_ int objects = -1, clean = -1;
	struct stat st;

	if (dir < 0)
		return dir;
	if (fstat(dir, &st) < 0 || st.st_ino != s->inode)
		return -ENOENT;
	objects = shms_open_dir(dir, SHMS_DIR_OBJECTS);
	if (objects < 0)
		return objects;
	clean = shms_open_dir(dir, SHMS_DIR_CLEAN);
	if (clean < 0)
		return clean;
	s->objects_fd = shms_take_fd(&objects);
	s->clean_fd = shms_take_fd(&clean);
	c->n_open++;
	return 0;
}

int shms_candidates_open(struct shms_candidates *c, uint32_t store,
			 const struct shms_candidate_store **ret)
{
	struct shms_candidate_store *s = &c->stores[store];
	int r = 0;

	if (s->objects_fd < 0) {
		if (c->n_open >= OPEN_MAX)
			close_idle(c);
		r = open_store(c, s);
	}
	if (r < 0)
		return r;
	s->n_use++;
	*ret = s;
	return 0;
}

void shms_candidates_close(struct shms_candidates *c, uint32_t store)
{
	c->stores[store].n_use--;
}

int shms_candidates_names(struct shms_candidates *c, size_t i, struct shmstore *s,
			  struct shms_demote *d)
{
	const struct shms_candidate *o = &c->v[i];
	const struct shms_candidate_store *store;
	int r;

	d->n_names = 0;
	d->names = calloc(o->n_names, sizeof(*d->names));
	if (!d->names)
		return -ENOMEM;
	for (const struct shms_candidate_name *n = o->names; n; n = n->next) {
		r = shms_candidates_open(c, n->store, &store);
		if (r < 0)
			return r;
		d->names[d->n_names++] = (struct shms_demote_name){.objects_fd = store->objects_fd,
								   .clean_fd = store->clean_fd,
								   .name = n->name,
								   .s = store->own ? s : NULL};
	}
	return 0;
}

void shms_candidates_names_end(struct shms_candidates *c, size_t i, struct shms_demote *d)
{
	const struct shms_candidate_name *n = c->v[i].names;

	for (; d->n_names; d->n_names--, n = n->next)
		shms_candidates_close(c, n->store);
	free(d->names);
	d->names = NULL;
}

void shms_candidates_deinit(struct shms_candidates *c)
{
	close_idle(c);
	for (size_t i = 0; i < c->n; i++)
		free_names(&c->v[i]);
	for (size_t i = 0; i < c->n_stores; i++)
		free(c->stores[i].below);
	free(c->v);
	free(c->stores);
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
	for (const struct shms_candidate_name *n = o->names->next; n; n = n->next) {
		if (n->store != o->names->store)
			return NULL;
	}
	return &c->stores[o->names->store];
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

	for (const struct shms_candidate_name *n = o->names; n; n = n->next) {
		const struct shms_candidate_store *s = &w->c->stores[n->store];
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
