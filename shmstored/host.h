/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: the daemon as a whole: what its parts need of each other. One per process; owned by main. */
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stdint.h>

struct account;
struct config;
struct events;
struct listener;
struct loop;
struct psi;
struct scanner;
struct web;
struct conn;

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
	struct web *web;          /* NULL = off */
	struct psi *psi;          /* NULL = off, or not to be had */
	struct account *accounts; /* the partitions, a list */
	struct conn *conns;       /* a list */
	uint32_t n_conns;
	bool draining; /* SIGTERM was received */
	int failed;    /* -errno for which a part of it has stopped the loop; 0 = none */
	struct host_counters counters;
};

/* Starts everything that config names; -errno (said in the log). stop: in good order, from any state. */
int host_start(struct host *h, struct config *config);
void host_stop(struct host *h);
/* Applies what may change at run time of a newly read configuration, takes it over. 0, -errno (nothing changed). */
int host_reload(struct host *h, struct config *config);

#endif
