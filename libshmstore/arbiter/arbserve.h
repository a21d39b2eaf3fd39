/* SPDX-License-Identifier: Apache-2.0 */
/* arbserve.h: the channel on which the daemon calls us: make room in a private pool; the pressure has changed. */
#ifndef SHMS_ARBSERVE_H
#define SHMS_ARBSERVE_H

#include <pthread.h>
#include <shmstore/arbiter.h>
#include <stdbool.h>
#include <stdint.h>

struct shms_arb_channel {
	pthread_mutex_t lock; /* all below; not held while a call-back runs, or while anybody waits */
	struct shmstore_arb_upcalls upcalls;
	int fd;          /* -1 = none */
	int stop_fd;     /* readable: who serves is to come back; made with the first channel, kept */
	bool serving;    /* a thread is in poll() or a call-back: it closes what was closed meanwhile */
	bool closed;     /* fd is to be closed by who serves */
	uint64_t serial; /* last one that was sent */
};

void shms_arb_channel_init(struct shms_arb_channel *c);
void shms_arb_channel_deinit(struct shms_arb_channel *c);
void shms_arb_channel_fork_child(struct shms_arb_channel *c);

#endif
