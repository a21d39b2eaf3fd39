/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h: a store that is being opened meets the daemon, as its options
 * and $SHMSTORE_DAEMON say. */
#ifndef SHMS_DAEMON_H
#define SHMS_DAEMON_H

struct shmstore;

/* mode: SHMSTORE_DAEMON_*. 0, or -ETIMEDOUT with SHMSTORE_DAEMON_REQUIRED where no
 * daemon took the store in. */
int shms_daemon_open(struct shmstore *s, unsigned mode);

#endif
