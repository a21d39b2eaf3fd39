/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_lmdb.c: LMDB at its fastest: MDB_WRITEMAP | MDB_NOSYNC, the file on the same
 * tmpfs as ours; one read transaction of the consumer reset and renewed, one write
 * transaction per put and per delete.
 */
#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "peer.h"

struct lmdb_state {
	char path[128];
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *reader;
};

static int open_env(struct peer_run *run)
{
	struct lmdb_state *s = run->state;
	int r = mdb_env_create(&s->env);

	if (r == 0)
		r = mdb_env_set_mapsize(s->env, 1u << 30);
	if (r == 0)
		r = mdb_env_open(s->env, s->path,
				 MDB_NOSUBDIR | MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMETASYNC, 0600);
	return r == 0 ? 0 : peer_refuse(run, -EIO, "%s: %s", s->path, mdb_strerror(r));
}

/* The database exists before the consumer looks for it. */
static int prepare(struct peer_run *run)
{
	struct lmdb_state *s = calloc(1, sizeof(*s));
	MDB_txn *txn;
	int r;

	if (!s || place_path(run->place, "lmdb", s->path, sizeof(s->path)) < 0)
		return peer_refuse(run, -ENOMEM, "out of memory");
	run->state = s;
	r = open_env(run);
	if (r < 0)
		return r;
	if (mdb_txn_begin(s->env, NULL, 0, &txn) != 0 ||
	    mdb_dbi_open(txn, NULL, MDB_CREATE, &s->dbi) != 0 || mdb_txn_commit(txn) != 0)
		return peer_refuse(run, -EIO, "%s cannot be written", s->path);
	mdb_env_close(s->env); /* an environment must not be carried over a fork */
	s->env = NULL;
	return 0;
}

static int open_consumer(struct peer_run *run)
{
	struct lmdb_state *s = run->state;
	int r = open_env(run);

	if (r < 0)
		return r;
	if (mdb_txn_begin(s->env, NULL, MDB_RDONLY, &s->reader) != 0 ||
	    mdb_dbi_open(s->reader, NULL, 0, &s->dbi) != 0)
		return -EIO;
	mdb_txn_reset(s->reader);
	return 0;
}

static int open_producer(struct peer_run *run)
{
	struct lmdb_state *s = run->state;
	MDB_txn *txn;
	int r = open_env(run);

	if (r < 0)
		return r;
	if (mdb_txn_begin(s->env, NULL, 0, &txn) != 0 || mdb_dbi_open(txn, NULL, 0, &s->dbi) != 0 ||
	    mdb_txn_commit(txn) != 0)
		return peer_refuse(run, -EIO, "%s cannot be opened again", s->path);
	return 0;
}

static int put(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct lmdb_state *s = run->state;
	MDB_val key = {1, (void *)(uintptr_t) "k"}, value = {size, (void *)(uintptr_t)data};
	MDB_txn *txn;

	if (mdb_txn_begin(s->env, NULL, 0, &txn) != 0 ||
	    mdb_put(txn, s->dbi, &key, &value, 0) != 0 || mdb_txn_commit(txn) != 0)
		return -EIO;
	m->bytes[0] = 'k';
	m->size = 1;
	return 0;
}

static int take(struct peer_run *run, const void *message, size_t message_size, int fd)
{
	struct lmdb_state *s = run->state;
	MDB_val key = {message_size, (void *)(uintptr_t)message}, value;

	(void)fd;
	if (mdb_txn_renew(s->reader) != 0)
		return -EIO;
	if (mdb_get(s->reader, s->dbi, &key, &value) != 0)
		return -ENOENT;
	measure_touch(value.mv_data, value.mv_size);
	mdb_txn_reset(s->reader);
	return 0;
}

static int drop(struct peer_run *run)
{
	struct lmdb_state *s = run->state;
	MDB_val key = {1, (void *)(uintptr_t) "k"};
	MDB_txn *txn;

	if (mdb_txn_begin(s->env, NULL, 0, &txn) != 0 || mdb_del(txn, s->dbi, &key, NULL) != 0 ||
	    mdb_txn_commit(txn) != 0)
		return -EIO;
	return 0;
}

static int put_at(struct peer_run *run, unsigned i, const void *data, size_t size)
{
	struct lmdb_state *s = run->state;
	char name[PEER_KEY];
	MDB_val key = {peer_key(i, name), name}, value = {size, (void *)(uintptr_t)data};
	MDB_txn *txn;

	if (mdb_txn_begin(s->env, NULL, 0, &txn) != 0 ||
	    mdb_put(txn, s->dbi, &key, &value, MDB_NOOVERWRITE) != 0 || mdb_txn_commit(txn) != 0)
		return -EIO;
	return 0;
}

static int get_at(struct peer_run *run, unsigned i)
{
	struct lmdb_state *s = run->state;
	char name[PEER_KEY];
	MDB_val key = {peer_key(i, name), name}, value;
	int r = s->reader ? mdb_txn_renew(s->reader)
			  : mdb_txn_begin(s->env, NULL, MDB_RDONLY, &s->reader);

	if (r != 0)
		return -EIO;
	r = mdb_get(s->reader, s->dbi, &key, &value);
	if (r == 0)
		measure_touch(value.mv_data, value.mv_size);
	mdb_txn_reset(s->reader);
	return r == 0 ? 0 : -ENOENT;
}

static int delete_at(struct peer_run *run, unsigned i)
{
	struct lmdb_state *s = run->state;
	char name[PEER_KEY];
	MDB_val key = {peer_key(i, name), name};
	MDB_txn *txn;

	if (mdb_txn_begin(s->env, NULL, 0, &txn) != 0 || mdb_del(txn, s->dbi, &key, NULL) != 0 ||
	    mdb_txn_commit(txn) != 0)
		return -EIO;
	return 0;
}

static void finish(struct peer_run *run)
{
	struct lmdb_state *s = run->state;
	char lock[sizeof(s->path) + 8];

	if (s && s->reader)
		mdb_txn_abort(s->reader);
	if (s && s->env)
		mdb_env_close(s->env);
	if (s) {
		unlink(s->path);
		snprintf(lock, sizeof(lock), "%s-lock", s->path);
		unlink(lock);
	}
	free(s);
	run->state = NULL;
}

const struct peer peer_lmdb = {.prepare = prepare,
			       .consumer = open_consumer,
			       .producer = open_producer,
			       .put = put,
			       .take = take,
			       .drop = drop,
			       .finish = finish,
			       .put_at = put_at,
			       .get_at = get_at,
			       .delete_at = delete_at};
