/* SPDX-License-Identifier: Apache-2.0 */
/* attached.h: a store "a" in the scratch partition, and the daemon (fakedaemon.h) that it finds.
 * For test_attach*.c; asserts by criterion. */
#ifndef SHMSTORE_TEST_ATTACHED_H
#define SHMSTORE_TEST_ATTACHED_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

#include "fakedaemon.h"

enum {
	SIZE = 100000 /* of an object */
};

/* daemon: one of SHMSTORE_DAEMON_*. ret: what opening it returned. */
struct shmstore *attach_open_as(unsigned daemon, int *ret);
/* fake_start() in the scratch partition. */
struct fake *attach_start(bool lock, fake_handler *handler, void *arg);
/* For wait_until(): the store has heard of its daemon. */
bool attach_dispatched(void *store);
bool attach_registered(struct shmstore *s);
/* On a machine that is busy the greeting may take longer than open() waits. */
bool attach_becomes_registered(struct shmstore *s);
/* Puts, reads and deletes: the store works. */
void attach_ensure_works(struct shmstore *s);

#endif
