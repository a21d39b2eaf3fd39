/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profilepeers.c: see door.h. A user's view is a profile made of the own one and of those
 * of all other daemons. It is made anew when one of these comes, and fed with the own one
 * meanwhile.
 *
 * The profiles of a daemon stay when its link is down. None is written to a file: a
 * daemon that starts has its own profile, and gets the others'.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "config.h"
#include "door.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "peers.h"
#include "profiles.h"

#define TEXT_MAX (16u << 20)
#define ORIGINS  256u /* profiles of other daemons that are kept */

/* Another daemon's measurements of one user's tasks. */
struct origin {
	struct origin *next;
	char peer[PEERS_NAME + 1];
	uint32_t uid;
	struct profile *profile;
};

struct unsent {
	struct unsent *next;
	uint32_t uid;
};

struct profilepeers {
	struct host *host;
	struct profiles *profiles;
	struct peers_service service;
	struct loop_op timer;
	struct origin *origins;
	struct unsent *unsent;
	unsigned n_sending;
	bool closing;
};

struct meta {
	uint32_t uid, reserved;
};

/* ---- the view -------------------------------------------------------------------------------- */

static void look_again(struct profilepeers *pp, uint32_t uid)
{
	const struct profile *own = profiles_find(pp->profiles, uid);
	struct profile *view = profile_new(pp->host->config->profile.max_kinds);
	int r = view ? 0 : -ENOMEM;

	if (r == 0 && own)
		r = profile_merge(view, own);
	for (const struct origin *o = pp->origins; o && r == 0; o = o->next)
		if (o->uid == uid)
			r = profile_merge(view, o->profile);
	if (r == 0)
		r = profiles_set_view(pp->profiles, uid, view);
	if (r < 0) {
		profile_free(view);
		log_say(LOG_WARNING, LOG_FIELDS(.error = r),
			"what other daemons know of tasks of user %u is not used for now: out of "
			"memory, or too many users",
			uid);
	}
}

void profilepeers_changed(const struct host *h, uint32_t uid, bool anew)
{
	struct profilepeers *pp = h->profilepeers;
	struct unsent *u = pp ? pp->unsent : NULL;

	if (!pp)
		return;
	while (u && u->uid != uid)
		u = u->next;
	if (!u && (u = malloc(sizeof(*u))) != NULL) {
		u->uid = uid;
		LL_PREPEND(pp->unsent, u);
	}
	if (anew && pp->origins)
		look_again(pp, uid);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void on_sent(void *arg, int result)
{
	struct profilepeers *pp = arg;

	pp->n_sending--;
	if (result < 0 && result != -EPIPE)
		log_say(LOG_NOTICE, LOG_FIELDS(.error = result),
			"another daemon did not take a profile");
	if (pp->closing && !pp->n_sending && !pp->timer.busy)
		free(pp);
}

/* The user's own profile as a file. -errno. */
static int make_file(const struct profilepeers *pp, uint32_t uid, uint64_t *ret_size)
{
	const struct profile *own = profiles_find(pp->profiles, uid);
	size_t n = 0;
	char *text = own ? profile_text(own, &n) : NULL;
	int fd = text ? memfd_create("profile", MFD_CLOEXEC) : -1;

	if (fd >= 0 && write(fd, text, n) != (ssize_t)n) {
		close(fd);
		fd = -1;
	}
	*ret_size = n;
	free(text);
	return fd;
}

/* to NULL: to all. */
static void send_profile(struct profilepeers *pp, uint32_t uid, struct peer *to)
{
	struct meta m = {.uid = uid};
	uint64_t size;
	int fd = make_file(pp, uid, &size);

	for (struct peer *p = peers_next(pp->host->peers, NULL); fd >= 0 && p;
	     p = peers_next(pp->host->peers, p))
		if ((!to || p == to) && peer_speaks_for(p, uid) &&
		    peer_send_bulk(p, PEERS_PROFILES, &m, sizeof(m), fd, size, on_sent, pp) == 0)
			pp->n_sending++;
	if (fd >= 0)
		close(fd);
}

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct profilepeers *pp = CONTAINER_OF(op, profilepeers, timer);
	struct unsent *u;

	if (pp->closing) {
		if (!pp->n_sending)
			free(pp);
		return;
	}
	/* Transfers under way to slow daemons end first. */
	while (result >= 0 && !pp->n_sending && (u = pp->unsent) != NULL) {
		pp->unsent = u->next;
		send_profile(pp, u->uid, NULL);
		free(u);
	}
	loop_timer(pp->host->loop, &pp->timer, loop_clock() + pp->host->config->peers.sync_ns, 0);
}

static void on_up(struct peers_service *s, struct peer *p)
{
	struct profilepeers *pp = CONTAINER_OF(s, profilepeers, service);
	uint32_t uid = 0;

	for (; (uid = profiles_next(pp->profiles, uid)) != UINT32_MAX; uid++)
		send_profile(pp, uid, p);
}

/* ---- taking ---------------------------------------------------------------------------------- */

static int on_begin(UNUSED struct peers_service *s, struct peer *p, const struct peers_bulk *b,
		    int *ret_fd)
{
	struct meta m;

	if (b->n_meta != sizeof(m) || b->size > TEXT_MAX)
		return -EPROTO;
	memcpy(&m, b->meta, sizeof(m));
	if (!peer_speaks_for(p, m.uid))
		return -EPERM;
	*ret_fd = memfd_create("profile", MFD_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

/* The origin's, made if there is none. NULL: there are too many, or no memory. */
static struct origin *get_origin(struct profilepeers *pp, const char *peer, uint32_t uid)
{
	struct origin *o = pp->origins;
	unsigned n = 0;

	for (; o && (o->uid != uid || strcmp(o->peer, peer) != 0); o = o->next)
		n++;
	if (o || n == ORIGINS)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	strcpy(o->peer, peer); /* of one size */
	o->uid = uid;
	o->profile = profile_new(pp->host->config->profile.max_kinds);
	if (!o->profile) {
		free(o);
		return NULL;
	}
	LL_PREPEND(pp->origins, o);
	return o;
}

static int take(struct profilepeers *pp, const struct peer *p, const struct peers_bulk *b, int fd)
{
	struct meta m;
	struct origin *o;
	const char *why = "";
	char *text = malloc(b->size + 1);
	int r = -ENOMEM;

	memcpy(&m, b->meta, sizeof(m));
	o = get_origin(pp, peer_name(p), m.uid);
	if (text && o)
		r = pread(fd, text, b->size, 0) == (ssize_t)b->size
			    ? profile_load(o->profile, text, b->size, false, &why)
			    : -EIO;
	free(text);
	if (r == 0)
		look_again(pp, m.uid);
	else
		log_say(LOG_WARNING, LOG_FIELDS(.object = peer_name(p), .error = r),
			"what another daemon knows of tasks of user %u is refused: %s", m.uid, why);
	return r;
}

static void on_arrived(struct peers_service *s, struct peer *p, const struct peers_bulk *b, int fd)
{
	int r = take(CONTAINER_OF(s, profilepeers, service), p, b, fd);

	close(fd);
	peer_answer(p, b->id, r);
}

/* ---- its life -------------------------------------------------------------------------------- */

int profilepeers_new(struct host *h, struct profilepeers **ret)
{
	struct profilepeers *pp;

	*ret = NULL;
	if (!h->peers || !h->profiles)
		return 0;
	pp = calloc(1, sizeof(*pp));
	if (!pp)
		return -ENOMEM;
	pp->host = h;
	pp->profiles = h->profiles;
	pp->timer.fn = on_timer;
	pp->service = (struct peers_service){.first = PEERS_PROFILES,
					     .last = PEERS_PROFILES,
					     .up = on_up,
					     .begin = on_begin,
					     .arrived = on_arrived};
	peers_add(h->peers, &pp->service);
	loop_timer(h->loop, &pp->timer, loop_clock() + h->config->peers.sync_ns, 0);
	*ret = pp;
	return 0;
}

struct profilepeers *profilepeers_free(struct profilepeers *pp)
{
	struct origin *o;
	struct unsent *u;

	if (!pp)
		return NULL;
	peers_remove(pp->host->peers, &pp->service);
	while ((o = pp->origins) != NULL) {
		LL_DELETE(pp->origins, o);
		profile_free(o->profile);
		free(o);
	}
	while ((u = pp->unsent) != NULL) {
		LL_DELETE(pp->unsent, u);
		free(u);
	}
	pp->closing = true;
	if (pp->timer.busy)
		loop_cancel(pp->host->loop, &pp->timer); /* on_timer() frees */
	else if (!pp->n_sending)
		free(pp);
	return NULL;
}
