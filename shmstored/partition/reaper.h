/* SPDX-License-Identifier: Apache-2.0 */
/* reaper.h: takes dead stores apart as soon as their locks are free, and
 * their leases as they end. */
#ifndef REAPER_H
#define REAPER_H

#include <stdbool.h>
#include <stdint.h>

struct account;
struct page_head;
struct shmstore_gc_report;

/*
 * Something says that the store at path may be dead or gone: the loop looks at it next, and if it
 * is, ends its member and has it reaped by a worker; if its process is dead but its lock not free
 * yet, it looks again soon. Idempotent.
 */
void reaper_look(struct account *a, const char *path);
/* Is the owner that wrote this head at path dead, and all reaped but the leases that stay? */
bool reaper_has_reaped(const struct account *a, const char *path, const struct page_head *owner);
/* Books what a reap freed, all but the stores' pages, which are never charged. owner: whose it was;
 * NULL: not known. books: quota_books() when the reap was submitted. */
void reaper_book(struct account *a, uint64_t books, const struct page_head *owner,
		 const struct shmstore_gc_report *report);
/* Is there one at work, or about to be? */
bool reaper_busy(const struct account *a);
/* Bytes that stores had when they ended and are not reaped yet: they come back by themselves, and
 * soon. An estimate, by their ledgers. */
uint64_t reaper_coming(const struct account *a);
/* The account closes: no more looks. */
void reaper_close(struct account *a);

/* Gc of a whole partition now and then, in a worker, after jobs that somebody waits for: what no
 * death announces, as leases of live stores that ended, torn leftovers. Removals are events. */
void sweep_start(struct account *a);

/* Notices stores that come and go in stores/ without a word to us: watches a's stores/; sets
 * a->finder. Before the first scan, so that nothing falls in between. 0, -errno: only surveys find
 * them then. */
int finder_open(struct account *a);
void finder_close(struct account *a);

/* When a partition is surveyed, and what follows from it. Asking for one is account_survey(). */

/* The first survey begins. 0, -ENOMEM. */
int surveyor_open(struct account *a);
/* Ends what runs; those who wait are told -ECANCELED. */
void surveyor_close(struct account *a);
/* Each second: begins one where it is time. */
void surveyor_tick(struct account *a, uint64_t now_ns);

#endif
