/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holdertable.c: the answers that a scan of /proc allows, once a walk has said which inodes have
 * names after all, and which slots have views.
 */

#include <errno.h>
#include <stdlib.h>

#include "alloc.h"
#include "books.h"
#include "holders.h"
#include "pack.h"
#include "segfile.h"
#include "seglook.h"
#include "sys.h"

/* ---- packed objects -------------------------------------------------------------------------- */

/*
 * Which processes have views of packed objects that no store has by name, or are putting one?
 *
 * The slot says which place has views: a bit of it. A place is of a store, not of a process: its
 * record has the pid of the process that opened the store. If that process maps the segment, it is
 * the one. If it does not, it is dead, or of another pid namespace, and the place is kept by
 * children that it had; these are among the processes that map the segment and are in no record.
 * The same processes may have views beside a living parent, if children's lock of the place is
 * taken. A place whose byte nobody has locked is a dead process's, whose bits somebody will clear:
 * nobody holds anything by it. Only the process in the owner's record puts objects, no child of it.
 */

/* One process that maps the segment at hand. */
struct user {
	size_t hold;   /* of the segment */
	bool recorded; /* some place is its own */
};

struct place {
	pid_t pid;     /* of its record; 0: nobody has the place */
	bool locked;   /* by that process, or by its children */
	bool children; /* beside it children have views */
	bool maps;     /* that process maps the segment */
};

struct looking {
	struct shms_holders *h;
	const struct shms_seglook *l;
	struct user *users;
	size_t n_users;
	bool all_recorded;
	struct place places[SHMS_SEGMENT_WORDS_MAX * SHMS_SEG_HOLDERS_A_WORD];
};

/* ---- places ---------------------------------------------------------------------------------- */

static void read_places(struct looking *k)
{
	const struct shms_segment *g = &k->l->segment;

	for (unsigned i = 0; i < shms_segment_holders(g); i++) {
		struct shms_segrecord *record = shms_segment_record(g, i);
		uint64_t state = shms_segword_load(&record->state);
		struct place *p = &k->places[i];

		if (state != SHMS_SEGRECORD_ACTIVE && state != SHMS_SEGRECORD_KEPT)
			continue;
		p->pid = (pid_t)record->pid;
		p->locked = shms_seglock_taken(k->l->fd, i);
		p->children = shms_seglock_taken(k->l->fd, SHMS_SEGLOCK_CHILDREN + i);
	}
}

/* Notes that this process maps the segment. Is it in a record? */
static bool is_recorded(struct looking *k, pid_t pid)
{
	bool is = false;

	for (unsigned i = 0; i < shms_segment_holders(&k->l->segment); i++) {
		k->places[i].maps = k->places[i].maps || k->places[i].pid == pid;
		is = is || k->places[i].pid == pid;
	}
	return is;
}

static int find_users(struct looking *k)
{
	const struct shms_holders *h = k->h;

	size_t size = 0;

	read_places(k);
	k->all_recorded = true;
	for (size_t i = 0; i < h->n_holds; i++) {
		struct user u = {.hold = i};

		if (h->holds[i].ghost || h->holds[i].ino != k->l->inode)
			continue;
		if (SHMS_GROW(k->users, size, k->n_users, 1) < 0)
			return -ENOMEM;
		u.recorded = is_recorded(k, h->holds[i].pid);
		k->all_recorded = k->all_recorded && u.recorded;
		k->users[k->n_users++] = u;
	}
	return 0;
}

/* Has that process what the place has? */
static bool is_of(const struct looking *k, const struct place *p, const struct user *u)
{
	if (!p->locked)
		return false;
	if (k->h->holds[u->hold].pid == p->pid)
		return true;
	if (p->maps)
		return p->children && !u->recorded;
	return !u->recorded || k->all_recorded;
}

/* ---- objects --------------------------------------------------------------------------------- */

static int copy_key(const struct shms_seglook *l, const struct shms_segunnamed *o,
		    struct shms_packedhold *hold)
{
	hold->key = malloc(o->object->key_size + 1ul);
	if (!hold->key)
		return -ENOMEM;
	hold->key_size = o->object->key_size;
	/* A long key's bytes may be another object's by now; of a file that was cut it has none. */
	if (shms_seglook_key(l, o->object, hold->key) < 0 ||
	    (hold->key_size > SHMS_SEGPACKED_KEY && !shms_seglook_has(l, o->slot, o->generation))) {
		free(hold->key);
		hold->key = NULL;
	}
	return 0;
}

static int add_hold(struct looking *k, const struct shms_segunnamed *o, size_t user, bool first)
{
	const struct shms_pack_view v = {
		.segment = &k->l->segment, .slot = o->slot, .generation = o->generation};
	struct shms_holders *h = k->h;
	struct shms_packedhold *hold;
	int r = 0;

	if (SHMS_GROW(h->packed, h->packed_size, h->n_packed, 1) < 0)
		return -ENOMEM;
	hold = &h->packed[h->n_packed];
	*hold = (struct shms_packedhold){.hold = user,
					 .bytes = o->bytes,
					 .mapped = o->inflight ? o->bytes : o->object->buffer_size,
					 .generation = shms_pack_view_generation(&v),
					 .first = first,
					 .inflight = o->inflight};
	if (h->keys && !o->inflight)
		r = copy_key(k->l, o, hold);
	h->n_packed += r == 0;
	return r;
}

static bool has_view(const struct looking *k, const struct shms_segunnamed *o, const struct user *u)
{
	struct shms_segslot slot = shms_segslot_at(&k->l->segment, o->slot);
	bool has = false;

	for (unsigned place = 0; !has && place < shms_segment_holders(&k->l->segment); place++)
		has = shms_segword_part(shms_segslot_word(&slot, place),
					shms_segholder_view(place)) &&
		      is_of(k, &k->places[place], u);
	return has;
}

static bool is_putting(const struct looking *k, const struct user *u)
{
	const struct place *owner = &k->places[SHMS_SEG_OWNER];

	return owner->locked && k->h->holds[u->hold].pid == owner->pid;
}

static int on_unnamed(const struct shms_segunnamed *o, void *arg)
{
	struct looking *k = arg;
	bool first = true;
	int r = 0;

	for (size_t i = 0; r == 0 && i < k->n_users; i++) {
		const struct user *u = &k->users[i];

		if (o->inflight ? !is_putting(k, u) : !has_view(k, o, u))
			continue;
		r = add_hold(k, o, u->hold, first);
		first = false;
	}
	return r;
}

int shms_packedholds_segment(struct shms_holders *h, const struct shms_seglook *l, uint64_t now_ms)
{
	struct looking k = {.h = h, .l = l};
	int r = find_users(&k);

	if (r == 0 && k.n_users)
		r = shms_segsurvey_unnamed(l, now_ms, on_unnamed, &k);
	free(k.users);
	return r;
}

/* ---- the answers ----------------------------------------------------------------------------- */

static int each_packed(const struct shms_holders *h,
		       int (*fn)(const struct shmstore_holder *holder, void *arg), void *arg)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < h->n_packed; i++) {
		const struct shms_packedhold *hold = &h->packed[i];
		const struct shms_hold *m = &h->holds[hold->hold];
		const struct shmstore_holder out = {
			.size = sizeof(out),
			.kind = hold->inflight ? SHMSTORE_HOLD_INFLIGHT : SHMSTORE_HOLD_GHOST,
			.pid = m->pid,
			.uid = m->uid,
			.command = m->command,
			.inode = m->ino,
			.bytes = hold->bytes,
			.mapped = hold->mapped,
			.path = m->path,
			.key = hold->key,
			.key_size = hold->key ? hold->key_size : 0,
			.first = hold->first,
			.generation = hold->generation,
		};

		r = fn(&out, arg);
	}
	return r;
}

/* ---- inodes without a name ------------------------------------------------------------------- */

struct shms_holders *shms_holders_free(struct shms_holders *h)
{
	struct shms_ghost *g, *next;

	if (!h)
		return NULL;
	for (size_t i = 0; i < h->n_holds; i++)
		free(h->holds[i].path);
	free(h->holds);
	for (size_t i = 0; i < h->n_packed; i++)
		free(h->packed[i].key);
	free(h->packed);
	HASH_ITER(hh, h->ghosts, g, next)
	{
		HASH_DEL(h->ghosts, g);
		free(g->key);
		free(g);
	}
	free(h);
	return NULL;
}

void shms_holders_named(struct shms_holders *h, uint64_t ino)
{
	struct shms_ghost *g;

	if (h->n_unsure == 0)
		return;
	HASH_FIND(hh, h->ghosts, &ino, sizeof(ino), g);
	if (g && !g->exact && !g->named) {
		g->named = true;
		h->n_unsure--;
	}
}

bool shms_holders_pooled(struct shms_holders *h, const struct stat *st)
{
	uint64_t ino = st->st_ino;
	struct shms_ghost *g;

	HASH_FIND(hh, h->ghosts, &ino, sizeof(ino), g);
	if (!g || !g->read)
		return false;
	g->recycled = true;
	g->named = false;
	g->exact = true;
	g->published = true;
	g->bytes = shms_blocks(st);
	g->owned = true;
	g->uid = st->st_uid;
	return true;
}

static uint64_t bytes_of(const struct shms_ghost *g)
{
	return shms_whole_pages(g->bytes);
}

int shms_holders_add(const struct shms_holders *h, struct shmstore_usage *io,
		     struct shms_users *users)
{
	struct shmstore_user_books nobody = {0}, *user = &nobody;

	io->n_unreadable += h->n_unreadable;
	for (const struct shms_ghost *g = h->ghosts; g; g = g->hh.next) {
		if (g->named || !g->last_pid)
			continue;
		if (users)
			user = shms_users_get(users, g->uid);
		if (!user)
			return -ENOMEM;
		if (g->published) {
			io->ghosts += bytes_of(g);
			user->ghosts += bytes_of(g);
		} else {
			io->inflight += bytes_of(g);
			user->inflight += bytes_of(g);
		}
	}
	return 0;
}

int shms_holders_each(struct shms_holders *h,
		      int (*fn)(const struct shmstore_holder *holder, void *arg), void *arg)
{
	int r = 0;

	for (struct shms_ghost *g = h->ghosts; g; g = g->hh.next)
		g->reported = false;
	for (size_t i = 0; r == 0 && i < h->n_holds; i++) {
		struct shms_hold *hold = &h->holds[i];
		struct shms_ghost *g = hold->ghost;
		struct shmstore_holder out;

		if (!g || g->named || (g->recycled && !hold->reads))
			continue;
		out = (struct shmstore_holder){
			.size = sizeof(out),
			.kind = g->published ? SHMSTORE_HOLD_GHOST : SHMSTORE_HOLD_INFLIGHT,
			.pid = hold->pid,
			.uid = hold->uid,
			.command = hold->command,
			.inode = g->ino,
			.bytes = bytes_of(g),
			.mapped = hold->mapped,
			.n_fds = hold->n_fds,
			.path = hold->path,
			.key = g->published ? g->key : NULL,
			.key_size = g->published ? g->key_size : 0,
			.first = !g->reported,
		};
		g->reported = true;
		r = fn(&out, arg);
	}
	return r == 0 ? each_packed(h, fn, arg) : r;
}
