/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhost.h: the arbiter of one partition under watch: its core (arbiter/arbiter.h), and the clients, pages, file system and disk tier that
 * the core decides about. Loop's thread only; nothing of it blocks, but for one fstatvfs().
 */
#ifndef ARBHOST_H
#define ARBHOST_H

struct account;
struct member;
struct survey;

struct arbhost;

/* a->quota, a->tier and a->tick are set. Makes a->arb, or leaves it NULL where the arbiter is off. 0, -errno. */
int arbhost_open(struct account *a);
/* Its clients are gone. Idempotent. */
void arbhost_close(struct account *a);
/* The configuration was replaced. */
void arbhost_reload(struct account *a);
/* Each second, after a->tick is read. */
void arbhost_tick(struct account *a);
/* A survey was published: foreign files, and who maps what has no name, are known anew. */
void arbhost_surveyed(struct account *a, const struct survey *survey);
/* What a store left behind is gone, or stays. */
void arbhost_reaped(struct account *a);
/* What the disk tier was asked to make room for (tierkeeper_make_room()) has ended, well or not. */
void arbhost_evicted(struct account *a);

/* m's page was mapped: what an earlier life of the daemon leased in it may not be spent any more. */
void arbhost_came(struct member *m);
/* m's connection ended, or m is gone: its page is still mapped. What it reserved is free, who waits is answered no more. Idempotent. */
void arbhost_left(struct member *m);

#endif
