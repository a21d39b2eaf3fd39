/* SPDX-License-Identifier: Apache-2.0 */
/* tierclean.h: gives up the clean copies of a whole partition. */
#ifndef SHMS_TIERCLEAN_H
#define SHMS_TIERCLEAN_H

struct shmstore_partition;

/* Releases the stubs in all stores' clean/: their objects are in memory. Others' stubs, and those
 * of moving objects, stay. 0, -ENOMEM, -EMFILE, -ETIMEDOUT (names are held). */
int shms_tierclean_drop(struct shmstore_partition *p);

#endif
