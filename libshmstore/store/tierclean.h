/* SPDX-License-Identifier: Apache-2.0 */
/* tierclean.h: gives up the clean copies of a whole partition. */
#ifndef SHMS_TIERCLEAN_H
#define SHMS_TIERCLEAN_H

struct shmstore_partition;

/* Releases every stub in every store's clean/: their objects are in memory. What may not be touched, or is just being moved, stays. 0, -ENOMEM,
 * -EMFILE, -ETIMEDOUT (a store's names are held by a stopped process). */
int shms_tierclean_drop(struct shmstore_partition *p);

#endif
