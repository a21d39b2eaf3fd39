/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorscopy.c: copies of an actor that lives here, on other daemons: when its state is saved, and
 * to whom it is sent (ckptplan.h decides).
 *
 * The state is an object that the place put into its store and handed on. The daemon opens its file
 * by that lease, takes the lease away, and lets the actor go on. The file lives as long as the
 * descriptor does, which is until the last peer has it. It is read, and never mapped: its owner may
 * cut it.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "actors.h"
#include "beneath.h"
#include "config.h"
#include "host.h"
#include "log.h"
#include "member.h"
#include "wire.h"

static struct ckpt_config configured(const struct config_copies *c)
{
	struct ckpt_config k = ckpt_defaults;

	k.num = c->num;
	k.strategy = (enum ckpt_strategy)c->strategy;
	k.frequency_ms = c->frequency_ns / ACTORS_MS;
	k.retry = c->retry;
	k.reserve = c->reserve;
	k.selection = CKPT_RESOURCE;
	if (c->selection && strcmp(c->selection, "random") == 0)
		k.selection = CKPT_RANDOM;
	if (c->selection && strncmp(c->selection, "fixed:", 6) == 0) {
		k.selection = CKPT_FIXED;
		k.fixed = c->selection + 6;
	}
	return k;
}

int actors_copy_begin(struct actors_one *k)
{
	k->copy = calloc(1, sizeof(*k->copy));
	if (!k->copy)
		return -ENOMEM;
	k->copy->fd = -1;
	k->copy->dirty = true;
	return 0;
}

static void forget_state(struct actors_copy *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	free(c->peers);
	c->peers = NULL;
	c->n_peers = 0;
}

void actors_copy_end(struct actors_one *k)
{
	if (!k->copy)
		return;
	forget_state(k->copy);
	free(k->copy);
	k->copy = NULL;
}

bool actors_copied(const struct actors_one *k)
{
	return k->of->host->peers && actors_options(k)->on;
}

/* Where it is begun again a place here keeps its first state, and, where copies
 * are made, each later one. */
static bool wants_here(const struct actors_one *k)
{
	return k->restarts &&
	       (!k->kept || (k->copy->dirty && actors_options(k)->on && !k->kept->coming.is));
}

uint64_t actors_copy_tick(struct actors_one *k, uint64_t now_ms)
{
	static struct ckpt_peer peers[CKPT_PEERS]; /* the loop's thread only */
	struct actors_copy *c = k->copy;
	uint64_t period = actors_options(k)->frequency_ns / ACTORS_MS;
	bool away = c && c->dirty && actors_copied(k), here = c && wants_here(k);

	if ((!away && !here) || c->fd >= 0 || k->core->state != ACTOR_ACTIVE || !k->at)
		return UINT64_MAX;
	if (now_ms < c->next_ms)
		return c->next_ms;
	if ((!away || !actors_peers_list(k->of, k->key.uid, peers)) &&
	    (!here || !actors_keep_place(k)))
		return now_ms + period;
	c->next_ms = now_ms + period;
	(void)actor_save(k->core, now_ms);
	return c->next_ms;
}

/* ---- the state's file ------------------------------------------------------------------------ */

/* The lease's name, if the path is that of a lease in this store. NULL: it is not. */
static const char *lease_of(const struct member *m, const char *path)
{
	size_t n = strlen(m->path);
	uint64_t expiry;

	if (strncmp(path, m->path, n) != 0 || strncmp(path + n, "/handoff/", 9) != 0)
		return NULL;
	path += n + 9;
	return !strchr(path, '/') && shms_lease_parse(path, &expiry) ? path : NULL;
}

/* Opens the file, and takes its lease away, unless that stays for a place here. -errno. */
static int take_file(const struct member *m, const char *lease, bool stays, uint32_t uid,
		     uint64_t *ret_size)
{
	int dir = actors_handoff(m), fd;
	struct stat st;

	if (dir < 0)
		return dir;
	fd = beneath_open(dir, lease, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 &&
	    (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != uid || st.st_size <= 0)) {
		close(fd);
		fd = -EPERM;
	}
	if (fd >= 0) {
		if (!stays)
			(void)unlinkat(dir, lease, 0);
		*ret_size = (uint64_t)st.st_size;
	}
	close(dir);
	return fd;
}

/* text: the state's partition, and the ticket of its lease. */
static int open_state(const struct actors_one *k, const char *text, bool stays,
		      struct shmstore_ticket *ret, uint64_t *ret_size)
{
	const struct member *m = k->at ? k->at->conn->member : NULL;
	const char *ticket = strchr(text, '\n'), *lease;

	if (!m || !ticket || shmstore_ticket_parse(ticket + 1, ret) < 0)
		return -EBADMSG;
	lease = lease_of(m, ret->path);
	return lease ? take_file(m, lease, stays, k->key.uid, ret_size) : -EBADMSG;
}

void actors_copy_revoke(const struct actors_one *k)
{
	struct shmstore_ticket ticket;
	uint64_t size;
	int fd = k->ticket ? open_state(k, k->ticket, false, &ticket, &size) : -1;

	if (fd >= 0)
		close(fd);
}

bool actors_copy_saved(struct actors_one *k, const char *text)
{
	struct actors_copy *c = k->copy;
	bool here = c && k->core->stays && wants_here(k) && actors_keep_place(k);
	bool away = !here || actors_copied(k);
	struct shmstore_ticket ticket;
	uint64_t size;
	int fd = c ? open_state(k, text, here, &ticket, &size) : -EBADMSG;

	if (fd < 0) {
		log_say(LOG_WARNING, LOG_FIELDS(.object = k->key.name, .error = fd),
			"an actor of user %u was saved, and is not copied: its state is no file of "
			"its store, or it is gone",
			k->key.uid);
		return false;
	}
	forget_state(c);
	c->fd = fd;
	c->size = size;
	c->dirty = false;
	c->saved_ms = loop_clock_ms();
	c->meta = (struct actors_say_state){.version = k->last_version,
					    .header_size = ticket.header_size,
					    .buffer_size = ticket.buffer_size,
					    .said = k->said,
					    .uid = k->key.uid};
	memcpy(c->meta.name, k->key.name, sizeof(c->meta.name));
	memcpy(c->meta.parent, k->parent, sizeof(c->meta.parent));
	if (here)
		actors_keep_here(k, &c->meta, text);
	if (!away)
		forget_state(c);
	return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The actor that a bulk transfer copies, by name: it may be gone when the transfer ends. */
struct sending {
	struct actors *of;
	uint32_t uid;
	char name[WIRE_ACTOR_NAME + 1], to[PEERS_NAME + 1];
	uint64_t version;
	bool moves; /* it is not a copy: the actor goes there */
};

static void send_next(struct actors_one *k);

/* The state has come to the daemon where the actor moves, if it still does. */
static void arrived(const struct sending *s, struct actors_one *k, bool ok)
{
	bool waited = k && k->core && k->goes_far && k->core->state == ACTOR_TRANSFERRING &&
		      k->last_version == s->version;

	if (waited) {
		forget_state(k->copy);
		(void)actor_done(k->core, k->step, ok, loop_clock_ms());
		actors_touch(k);
	} else if (k && k->core && ok) {
		actors_copy_recall(k, s->to);
	}
}

static void on_sent(void *arg, int result)
{
	struct sending *s = arg;
	struct actors_one *k =
		s->of->host->draining ? NULL : actors_one_find(s->of, s->uid, s->name);

	if (s->moves) {
		arrived(s, k, result == 0);
	} else if (k && k->copy && k->copy->fd >= 0 && k->copy->meta.version == s->version) {
		if (result < 0)
			log_say(LOG_NOTICE, LOG_FIELDS(.object = s->name, .error = result),
				"a copy of an actor of user %u was not taken by another daemon",
				s->uid);
		(void)ckpt_cast_result(&k->copy->cast, result == 0);
		send_next(k);
		actors_touch(k);
	}
	free(s);
}

static int send_to(struct actors_one *k, const char *peer)
{
	struct peer *p = peers_find(k->of->host->peers, peer);
	struct sending *s = p ? malloc(sizeof(*s)) : NULL;
	char meta[sizeof(k->copy->meta) + WIRE_ACTOR_OPTIONS + 1];
	int r, n;

	if (!s)
		return p ? -ENOMEM : -EPIPE;
	*s = (struct sending){.of = k->of,
			      .uid = k->key.uid,
			      .version = k->copy->meta.version,
			      .moves = k->goes_far};
	memcpy(s->name, k->key.name, sizeof(s->name));
	strcpy(s->to, peer_name(p)); /* of one size */
	memcpy(meta, &k->copy->meta, sizeof(k->copy->meta));
	n = (int)sizeof(k->copy->meta) + actors_options_write(k, meta + sizeof(k->copy->meta));
	r = peer_send_bulk(p, ACTORS_STATE, meta, (size_t)n, k->copy->fd, k->copy->size, on_sent,
			   s);
	if (r < 0)
		free(s);
	return r;
}

static void send_next(struct actors_one *k)
{
	struct actors_copy *c = k->copy;
	size_t i;

	while (ckpt_cast_next(&c->cast, &i)) {
		if (send_to(k, c->peers[i].name) == 0)
			return;
		(void)ckpt_cast_result(&c->cast, false);
	}
	if (c->cast.n_missed) {
		/* who missed it gets a later one, also if nothing runs until then */
		c->dirty = true;
		log_say(LOG_WARNING, LOG_FIELDS(.object = k->key.name),
			"%u copies of an actor of user %u were missed: other daemons did not take "
			"them",
			c->cast.n_missed, k->key.uid);
	}
	forget_state(c);
}

void actors_copy_send(struct actors_one *k)
{
	static struct ckpt_peer peers[CKPT_PEERS]; /* the loop's thread only */
	struct actors_copy *c = k->copy;
	int r;

	if (!c || c->fd < 0)
		return;
	c->n_peers = actors_peers_list(k->of, k->key.uid, peers);
	c->peers = malloc((c->n_peers ? c->n_peers : 1) * sizeof(*peers));
	if (!c->peers) {
		forget_state(c);
		return;
	}
	memcpy(c->peers, peers, c->n_peers * sizeof(*peers));
	c->cast.config = configured(actors_options(k));
	c->cast.config.seed = c->meta.version;
	r = ckpt_cast_begin(&c->cast, c->peers, c->n_peers, c->meta.version, c->size,
			    loop_clock_ms());
	c->next_ms = c->cast.next_ms;
	if (r < 0)
		log_say(LOG_ERR, LOG_FIELDS(.object = k->key.name, .error = 0),
			"an actor of user %u is not copied: there are fewer other daemons than "
			"peers.num wants",
			k->key.uid);
	if (r < 0 || !c->cast.choice.n)
		c->dirty = true; /* again, when others may have room */
	if (r > 0)
		send_next(k);
	else
		forget_state(c);
}

bool actors_copy_depart(struct actors_one *k, const char *daemon)
{
	strcpy(k->to_daemon, daemon); /* a name of this size */
	if (!k->copy || !actors_copy_saved(k, k->ticket))
		return false;
	k->copy->dirty = true; /* if it comes home */
	return send_to(k, daemon) == 0;
}

void actors_copy_recall(struct actors_one *k, const char *daemon)
{
	struct peer *p = peers_find(k->of->host->peers, daemon);

	if (k->goes_far && k->copy)
		forget_state(k->copy);
	if (!p)
		return;
	actors_say(k, p, ACTORS_DEAD, &(struct actors_say){.ended = 1});
	actors_say(k, p, ACTORS_LIVE, &(struct actors_say){.version = k->version});
}
