/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorskeep.c: copies of actors, kept by places of their users here: of those that live under
 * other daemons, and of those that live here and are begun again when their process dies.
 *
 * Of an actor that lives here the place takes the state as in a move (FETCH). From another daemon a
 * copy arrives as the file of an object. It is made without a name in the place's own store, as
 * that user's, gets a lease there when it is whole, and the place takes it as it takes a state in a
 * move (FETCH). So the copy is an ordinary object: it counts as its user's, the place checks it as
 * it checks all of them, and it goes with the place. Nothing is left by a kill of ours: a file
 * without a name is nothing, and a lease ends by its time.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "actors.h"
#include "beneath.h"
#include "config.h"
#include "host.h"
#include "member.h"

#define FETCH_MS UINT64_C(10000)

static void answer_sender(struct actors_one *k, int result)
{
	struct peer *p = peers_find(k->of->host->peers, k->kept->coming.peer);

	k->kept->coming.is = false;
	if (p)
		peer_answer(p, k->kept->coming.id, result);
}

void actors_keep_forget(struct actors_one *k)
{
	bool was = k->kept->version || k->kept->wanted;

	if (k->kept->coming.is)
		answer_sender(k, -ESTALE);
	free(k->kept);
	k->kept = NULL;
	if (was)
		actors_say(k, NULL, ACTORS_GONE, NULL);
	if (k->recovering && !k->core && k->asks_here)
		actors_far_ask(k);
}

/* ---- arriving -------------------------------------------------------------------------------- */

static bool is_right(const struct actors_say_state *m)
{
	return memchr(m->name, '\0', sizeof(m->name)) && actors_is_name(m->name) &&
	       memchr(m->parent, '\0', sizeof(m->parent)) &&
	       (!*m->parent || actors_is_name(m->parent)) && m->version &&
	       m->version < UINT64_MAX >> 1 && m->said.level <= ACTOR_ALWAYS &&
	       !(m->said.flags & ~ACTORS_FLAGS);
}

/* The user's place that has the most room for it. NULL: none has. */
static struct actors_guest *find_place(const struct actors *a, uint32_t uid, uint64_t bytes)
{
	struct actors_guest *g, *best = NULL;
	uint64_t most = 0;

	DL_FOREACH(a->guests, g)
	{
		uint64_t room = *g->place && g->conn->peer.uid == uid && g->conn->member
					? actors_guest_room(g)
					: 0;

		if (room < bytes || room <= most)
			continue;
		best = g;
		most = room;
	}
	return best;
}

int actors_handoff(const struct member *m)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/handoff", m->path + strlen(m->account->path) + 1);
	return beneath_open(m->account->fd, path, O_RDONLY | O_DIRECTORY);
}

/* Where O_TMPFILE is refused, a lease that nobody was told of and that ends soon: gc
 * takes it away like any other. */
static int make_unnamed(int dir)
{
	char lease[SHMS_LEASE_NAME_SIZE];
	int r, fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400);

	if (fd >= 0 ||
	    (errno != EISDIR && errno != EOPNOTSUPP && errno != EPERM && errno != ENOSYS))
		return fd < 0 ? -errno : fd;
	r = leasename_make(shmstore_lease_clock_ms() + 2 * FETCH_MS, lease);
	fd = r < 0 ? r
		   : openat(dir, lease, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0400);
	return r == 0 && fd < 0 ? -errno : fd;
}

/* A file without a name in the place's store, its user's. -errno. */
static int make_file(const struct actors_guest *g)
{
	const struct conn_peer *who = &g->conn->peer;
	struct stat st;
	int dir = actors_handoff(g->conn->member), fd;

	if (dir < 0)
		return dir;
	fd = fstat(dir, &st) < 0 || st.st_uid != who->uid ? -EPERM : make_unnamed(dir);
	close(dir);
	if (fd >= 0 && who->uid != geteuid() && fchown(fd, who->uid, who->gid) < 0) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

static int make_kept(struct actors *a, const struct actors_say_state *m, struct actors_one **ret)
{
	struct actors_one *k = actors_one_find(a, m->uid, m->name);

	if (k && (k->core || k->claims || (k->kept && (k->kept->coming.is || k->kept->loading))))
		return -EEXIST;
	k = k ? k : actors_one_heard(a, m->uid, m->name);
	if (k && !k->kept)
		k->kept = calloc(1, sizeof(*k->kept));
	*ret = k;
	return k && k->kept ? 0 : -ENOMEM;
}

int actors_keep_begin(struct peers_service *s, struct peer *p, const struct peers_bulk *b,
		      int *ret_fd)
{
	struct actors *a = CONTAINER_OF(s, actors, service);
	struct actors_say_state m;
	struct actors_guest *g;
	struct actors_one *k;
	int r;

	if (b->type != ACTORS_STATE || b->n_meta < sizeof(m) ||
	    b->n_meta > sizeof(m) + WIRE_ACTOR_OPTIONS || a->host->draining)
		return -EPROTO;
	memcpy(&m, b->meta, sizeof(m));
	if (!is_right(&m) || !peer_speaks_for(p, m.uid))
		return -EPERM;
	r = make_kept(a, &m, &k);
	if (r < 0)
		return r;
	g = k->kept->place ? k->kept->place : find_place(a, m.uid, b->size);
	if (!g || actors_guest_room(g) < b->size) {
		actors_touch(k);
		return -ENOSPC;
	}
	*ret_fd = make_file(g);
	actors_touch(k); /* where nothing came of it, it goes with the next sweep */
	return *ret_fd < 0 ? *ret_fd : 0;
}

/* The place is to take the state. */
static void fetch(struct actors_one *k, struct actors_guest *g, const struct actors_say_state *m,
		  const char *text)
{
	k->kept->step = k->kept->step < ACTORS_KEEP_STEPS ? ACTORS_KEEP_STEPS : k->kept->step + 1;
	k->kept->place = g;
	k->kept->deadline_ms = loop_clock_ms() + FETCH_MS;
	k->kept->coming.is = true;
	k->kept->coming.meta = *m;
	k->kept->coming.bytes = m->header_size + m->buffer_size;
	k->said = m->said;
	actors_guest_order(g, k,
			   &(struct wire_actor_order){.what = WIRE_ACTOR_FETCH,
						      .step = k->kept->step,
						      .version = m->version},
			   text);
}

struct actors_guest *actors_keep_place(const struct actors_one *k)
{
	static struct ckpt_peer places[CKPT_PEERS]; /* the loop's thread only */
	const struct ckpt_peer *to;

	if (k->kept)
		return k->kept->place;
	to = ckpt_destination(places, actors_places(k, false, places), k->bytes ? k->bytes : 1);
	return to ? actors_guest_place(k->of, k->key.uid, to->name) : NULL;
}

void actors_keep_here(struct actors_one *k, const struct actors_say_state *m, const char *text)
{
	struct actors_guest *g = actors_keep_place(k);
	char all[WIRE_TEXT_MAX];

	if (!k->kept && g)
		k->kept = calloc(1, sizeof(*k->kept));
	if (!k->kept)
		return;
	snprintf(all, sizeof(all), "%s\n%s", m->parent, text);
	k->kept->coming.peer[0] = '\0';
	fetch(k, g, m, all);
}

/* Gives the file a name, and the place an order to take it. 0, -errno. */
static int offer(struct actors_one *k, struct actors_guest *g, const struct actors_say_state *m,
		 int fd)
{
	const struct member *member = g->conn->member;
	char lease[SHMS_LEASE_NAME_SIZE], proc[40], text[WIRE_TEXT_MAX],
		ticket_text[SHMSTORE_TICKET_TEXT];
	struct shmstore_ticket ticket = {.header_size = m->header_size,
					 .buffer_size = m->buffer_size};
	int dir = actors_handoff(member), n, r = dir < 0 ? dir : 0;

	if (r == 0)
		r = leasename_make(shmstore_lease_clock_ms() + 2 * FETCH_MS, lease);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (r == 0 && linkat(AT_FDCWD, proc, dir, lease, AT_SYMLINK_FOLLOW) < 0)
		r = -errno;
	if (dir >= 0)
		close(dir);
	n = r == 0 ? snprintf(ticket.path, sizeof(ticket.path), "%s/handoff/%s", member->path,
			      lease)
		   : 0;
	if (n >= (int)sizeof(ticket.path))
		r = -ENAMETOOLONG;
	if (r == 0)
		r = shmstore_ticket_format(&ticket, ticket_text, sizeof(ticket_text));
	if (r < 0)
		return r;
	n = snprintf(text, sizeof(text), "%s\n%s\n%s", m->parent, member->account->path,
		     ticket_text);
	if (n >= (int)(sizeof(text) - 2 * sizeof(m->name)))
		return -ENAMETOOLONG;
	fetch(k, g, m, text);
	return 0;
}

void actors_keep_arrived(struct peers_service *s, struct peer *p, const struct peers_bulk *b,
			 int fd)
{
	struct actors *a = CONTAINER_OF(s, actors, service);
	struct actors_say_state m;
	char options[WIRE_ACTOR_OPTIONS + 1] = "", why[CONFIG_WHY];
	struct actors_guest *g;
	struct actors_one *k = NULL;
	int r;

	memcpy(&m, b->meta, sizeof(m));
	memcpy(options, b->meta + sizeof(m), b->n_meta - sizeof(m));
	r = make_kept(a, &m, &k); /* anything may have happened meanwhile */
	if (r == 0)
		/* those of a later version are not ours */
		(void)actors_options_read(k, options, why);
	g = r < 0 ? NULL : k->kept->place ? k->kept->place : find_place(a, m.uid, 1);
	if (r == 0)
		r = g ? offer(k, g, &m, fd) : -ENOSPC;
	if (r == 0) {
		k->kept->coming.id = b->id;
		k->kept->coming.bytes = b->size;
		strcpy(k->kept->coming.peer, peer_name(p)); /* a daemon's name fits */
	} else {
		peer_answer(p, b->id, r);
	}
	close(fd);
	if (k)
		actors_touch(k);
}

/* ---- kept ------------------------------------------------------------------------------------ */

void actors_keep_drop(struct actors_one *k)
{
	if (!k->kept)
		return;
	if (k->kept->place)
		actors_guest_drop(k->kept->place, k, k->kept->version);
	actors_keep_forget(k);
}

void actors_keep_left(struct actors_one *k, const struct actors_guest *g)
{
	if (k->kept && k->kept->place == g)
		actors_keep_forget(k);
}

bool actors_keep_recover(struct actors_one *k, uint64_t version)
{
	struct actors_kept *kept = k->kept;

	if (k->core || k->claims)
		return true; /* it is here; LIVE was said */
	/* None has version 0, whatever a peer says. */
	if (!kept || !kept->version || kept->version != version)
		return false;
	if (kept->loading)
		return true;
	if (kept->coming.is) { /* a newer one, which the place may have by now */
		kept->wanted = true;
		return true;
	}
	kept->loading = true;
	kept->step = kept->step < ACTORS_KEEP_STEPS ? ACTORS_KEEP_STEPS : kept->step + 1;
	kept->deadline_ms =
		loop_clock_ms() + (kept->meta.said.step_ms ? kept->meta.said.step_ms : FETCH_MS);
	actors_guest_order(kept->place, k,
			   &(struct wire_actor_order){.what = WIRE_ACTOR_LOAD,
						      .step = kept->step,
						      .version = kept->version},
			   NULL);
	return true;
}

static void came(struct actors_one *k, bool ok)
{
	struct actors_kept *kept = k->kept;

	if (ok) {
		kept->version = kept->coming.meta.version;
		kept->bytes = kept->coming.bytes;
		kept->meta = kept->coming.meta;
		strcpy(k->parent, kept->meta.parent);
		actors_say(k, NULL, ACTORS_COPY,
			   &(struct actors_say){.version = kept->version, .bytes = kept->bytes});
	}
	answer_sender(k, ok ? 0 : -EIO);
	if (!ok && k->core)
		actors_copy_revoke(k);
	if (!kept->version) {
		kept->place = NULL;
		actors_keep_drop(k);
	} else if (kept->wanted) {
		kept->wanted = false;
		(void)actors_keep_recover(k, kept->version);
	}
}

/* ---- recovery -------------------------------------------------------------------------------- */

int actors_keep_done(struct actors_one *k, const struct wire_actor_done *w)
{
	struct actors_kept *kept = k->kept;
	bool ok = w->how == WIRE_ACTOR_OK;

	if (!kept || w->step != kept->step)
		return -ESTALE;
	if (kept->coming.is)
		came(k, ok);
	else if (!kept->loading)
		return -ESTALE;
	else if (ok)
		return ACTORS_LOADED;
	else
		actors_keep_drop(k);
	return 0;
}

/* It is nowhere: for how long? */
static uint64_t alone(struct actors_one *k, uint64_t now_ms)
{
	struct actors_kept *kept = k->kept;
	uint64_t patience = k->of->host->config->peers.recover_ns / ACTORS_MS, due;
	const struct ckpt_copy *best;

	if (!kept->alone_ms)
		kept->alone_ms = now_ms;
	due = kept->alone_ms + patience;
	if (now_ms < due)
		return due;
	/* The best copy of those whose daemons are up begins; if that comes to nothing it is
	 * somebody else's turn. */
	kept->alone_ms = now_ms;
	best = actors_far_best(k, true);
	if (best && strcmp(best->peer, peers_own_name(k->of->host->peers)) == 0)
		(void)actors_keep_recover(k, kept->version);
	return now_ms + patience;
}

uint64_t actors_keep_tick(struct actors_one *k, uint64_t now_ms)
{
	struct actors_kept *kept = k->kept;

	if (!kept)
		return UINT64_MAX;
	if ((kept->coming.is || kept->loading) && now_ms >= kept->deadline_ms) {
		if (kept->coming.is)
			came(k, false);
		else
			actors_keep_drop(k);
		return k->kept ? now_ms : UINT64_MAX;
	}
	if (kept->coming.is || kept->loading)
		return kept->deadline_ms;
	if (k->core || *k->far || k->claims || k->recovering || !kept->version) {
		kept->alone_ms = 0;
		return UINT64_MAX;
	}
	return alone(k, now_ms);
}
