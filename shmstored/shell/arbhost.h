/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhost.h: the arbiter of one partition under watch: its core (arbiter/arbiter.h), and the
 * clients, pages, file system and disk tier that the core decides about. Loop's thread only;
 * nothing of it blocks, but for one fstatvfs().
 */
#ifndef ARBHOST_H
#define ARBHOST_H

struct part;

/*
 * The arbiter's part of a partition (part.h). Opening makes a->arb where the arbiter is on, after
 * a->quota, a->tier and a->tick are set. When a store comes, leases of an earlier daemon in its
 * page may not be spent any more. When it leaves, its page is still mapped: its reservations are
 * free, and its waiting calls get no answer.
 */
extern const struct part arbhost_part;

#endif
