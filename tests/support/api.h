/* SPDX-License-Identifier: Apache-2.0 */
/* api.h: the public API in the shapes that tests want: keys as strings, contents as
 * patterns, books that must close. */
#ifndef SHMSTORE_TEST_API_H
#define SHMSTORE_TEST_API_H

#include <string.h>

#include "scratch.h"

#define KEY(k) (k), strlen(k)

#define PATTERN_HEADER 24

/* One buffer of size bytes and a header of PATTERN_HEADER bytes, both patterns of seed. */
int put_pattern(struct shmstore *s, const char *key, uint64_t size, uint64_t seed, unsigned flags);
/* The same through create, writer and seal. */
int seal_pattern(struct shmstore *s, const char *key, uint64_t size, uint64_t seed, unsigned flags);
/* 0: the key holds what put_pattern() puts; 1: something else; -errno of the get. */
int get_pattern(struct shmstore *s, const char *key, uint64_t size, uint64_t seed);
/* 0 or 1, as get_pattern(), of a view. */
int view_pattern(const struct shmstore_view *v, uint64_t size, uint64_t seed);
struct shmstore_view *get_view(struct shmstore *s, const char *key, unsigned flags);
/* Objects that say themselves what they hold: the first eight bytes are the seed of
 * the rest. size: 9 at least. */
void telling_fill(void *buffer, uint64_t size, uint64_t seed);
int telling_put(struct shmstore *s, const char *key, uint64_t size, uint64_t seed, unsigned flags);
/* Aborts where the view does not hold what it says. */
void telling_check(const struct shmstore_view *v);
/* Objects that foreach finds. */
int count_objects(struct shmstore *s);
int count_packed_objects(struct shmstore *s);
/* The file of a key that is its own name. */
uint64_t inode_of(const char *store, const char *key);
uint64_t links_of(const char *store, const char *key);

/* A store that packs objects up to so many bytes, and keeps no deleted file. */
struct shmstore *packing_store(const char *store, uint64_t pack_max, bool keep);

/* An open store in another process, which does what it is told and can be killed. */
struct other {
	pid_t pid;
	int to, from;
	char store[64];
};
/* Opens the store in a child of its own. The calls that follow are made over there, one at a
 * time; each returns what the store's call returned. */
struct other other_start(const char *store);
/* The same in two steps, for tests whose own threads run when the store is to be opened: a child
 * that is forked amid them may find the sanitizer's allocator locked for ever. */
struct other other_fork(void);
void other_open(struct other *o, const char *store);
int other_put(struct other *o, const char *key, uint64_t size, uint64_t seed);
int other_get(struct other *o, const char *key, uint64_t size, uint64_t seed);
int other_handoff(struct other *o, const char *key, uint64_t lease_ms, struct shmstore_ticket *ret);
int other_adopt(struct other *o, const char *key, const struct shmstore_ticket *t);
int other_delete(struct other *o, const char *key);
/* Gets a view and keeps it until other_unview(). */
int other_view(struct other *o, const char *key, unsigned flags);
/* 0: the kept view holds that pattern. */
int other_check_view(struct other *o, uint64_t size, uint64_t seed);
int other_unview(struct other *o);
int other_demote(struct other *o, const char *key);
int other_promote(struct other *o, const char *key, unsigned flags);
int other_locate(struct other *o, const char *key);
/* shmstore_close() and exit; the close's return. */
int other_close(struct other *o);
/* Returns when its store is a dead one (await_dead()). */
void other_kill(struct other *o);
/* Whether a process, or what is left of a killed one, has the lock of that store. */
bool lock_held(const char *store);
/* Returns when the lock of that store is free: it goes with the maps of a killed process, which
 * live as long as somebody reads its /proc/PID/maps. */
void await_dead(const char *store);

/* After all stores of the test are closed: one gc, then nothing is left and the books close. */
void ensure_nothing_left(void);
/* The books close now, whatever there is. */
struct shmstore_usage ensure_books_close(void);

#endif
