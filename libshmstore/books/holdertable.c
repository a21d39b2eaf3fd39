/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holdertable.c: the answers that a scan of /proc allows, once a walk has said which
 * inodes have names after all.
 */
#include "holdertable.h"

#include <errno.h>
#include <stdlib.h>

#include "books.h"
#include "holders.h"
#include "hostpage.h"
#include "sys.h"

struct shms_holders *shms_holders_free(struct shms_holders *h)
{
	struct shms_ghost *g, *next;

	if (!h)
		return NULL;
	for (size_t i = 0; i < h->n_holds; i++)
		free(h->holds[i].path);
	free(h->holds);
	shms_packedholds_free(h);
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

void shms_holders_add(const struct shms_holders *h, struct shmstore_usage *io)
{
	for (const struct shms_ghost *g = h->ghosts; g; g = g->hh.next) {
		if (g->named || !g->last_pid)
			continue;
		if (g->published)
			io->ghosts += bytes_of(g);
		else
			io->inflight += bytes_of(g);
	}
	io->n_unreadable += h->n_unreadable;
}

int shms_holders_users(const struct shms_holders *h, struct shms_users *users)
{
	for (const struct shms_ghost *g = h->ghosts; g; g = g->hh.next) {
		struct shmstore_user_books *user;

		if (g->named || !g->last_pid)
			continue;
		user = shms_users_get(users, g->uid);
		if (!user)
			return -ENOMEM;
		if (g->published)
			user->ghosts += bytes_of(g);
		else
			user->inflight += bytes_of(g);
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
	return r == 0 ? shms_packedholds_each(h, fn, arg) : r;
}
