/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: the daemon as a whole: what its parts need of each other. One per process; owned
 * by main, filled by daemon.c. */
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct host_counters {
	uint64_t n_requests;    /* messages handled */
	uint64_t n_connections; /* ever accepted */
	uint64_t n_dropped;     /* ended by us, for a fault */
	uint64_t n_refused;     /* not accepted: too many */
	uint64_t n_grants, n_waits, n_refusals;
	uint64_t n_reaped;   /* stores taken apart after a death */
	uint64_t n_brokered; /* handoffs between users */
};

struct host {
	uint64_t epoch;     /* wire_welcome.epoch */
	int64_t started_ns; /* CLOCK_REALTIME */
	struct loop *loop;
	struct config *config; /* replaced on reload */
	struct events *events;
	struct scanner *scanner;
	struct listener *listener;
	struct web *web;           /* NULL = off */
	struct psi *psi;           /* NULL = off, or not to be had */
	struct pressure *pressure; /* NULL = off, as is: */
	struct admit *admit;
	struct preempt *preempt;
	struct profiles *profiles; /* NULL = off */
	struct account *accounts;  /* the partitions, a list */
	struct conn *conns;        /* a list */
	struct client *clients;    /* of them, as the governor knows them, a list */
	uint32_t n_conns;
	bool draining; /* SIGTERM was received */
	int failed;    /* -errno for which a part of it has stopped the loop; 0 = none */
	struct host_counters counters;
	/* The program's functions for actors and other daemons (actord.h), and their state: NULL in
	 * shmstored. */
	const struct actord *actord;
	struct actors *actors;
	struct peers *peers; /* NULL = none are configured */
	struct profilepeers *profilepeers;
	/* Connections and accounts call the modules above them through these. */
	int (*dispatch)(struct conn *c, const void *packet, size_t n); /* dispatch.h */
	/* struct part: in the order of their opening, up to a NULL; NULL = none */
	const struct part *const *parts;
};

#endif
