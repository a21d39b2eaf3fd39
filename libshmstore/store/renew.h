/* SPDX-License-Identifier: Apache-2.0 */
/*
 * renew.h: a handle that only reads means a name. If the store that it found is gone, and another
 * one has the name, it goes on with that.
 */
#ifndef SHMS_RENEW_H
#define SHMS_RENEW_H

#include <stdbool.h>

struct shmstore;

/*
 * After a look that found nothing, or before a list. *ret_renewed: the handle means another store
 * than before: look again. Views of the former one stay valid. 0; -ENOENT: the store is gone, and
 * nobody has its name; -EMFILE, ...
 */
int shms_renew(struct shmstore *s, bool *ret_renewed);
/* The owner, as its page says it; the lock says whether it lives. ret_alive: SHMSTORE_ALIVE, _DEAD,
 * _ALIVE_UNKNOWN. 0; -ENOENT; -errno. */
int shms_owner(struct shmstore *s, int *ret_pid, int *ret_alive);

#endif
