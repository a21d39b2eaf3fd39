/* SPDX-License-Identifier: Apache-2.0 */
/* handoff.h: leases of this store's objects, for the modules that send them on. Nothing is counted here. */
#ifndef SHMS_HANDOFF_H
#define SHMS_HANDOFF_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

struct shms_keyname;

/* A lease in s's own handoff/ and its ticket. As shmstore_handoff(); -EPERM: the file is another user's, and cannot be linked. as_is: a
 * demoted object is not promoted first. */
int shms_handoff_lease(struct shmstore *s, struct shms_keyname *k, uint64_t lease_ms, bool as_is,
		       struct shmstore_ticket *ret);
/* The same for a file that another user handed to ours: the daemon makes the lease, in our own inbox. -EPERM: alone. */
int shms_handoff_received(struct shmstore *s, const struct shms_keyname *k, uint64_t lease_ms,
			  struct shmstore_ticket *ret);

#endif
