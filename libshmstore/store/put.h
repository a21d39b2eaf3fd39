/* SPDX-License-Identifier: Apache-2.0 */
/* put.h: what a packed object does before it does what only files can: it
 * becomes one, under its key. */
#ifndef SHMS_PUT_H
#define SHMS_PUT_H

struct shmstore;
struct shms_keyname;

/* 0: the key is no packed object's (any more), or of none at all; an outcome of the arbiter
 * (> 0), -errno as a put's. */
int shms_put_as_file(struct shmstore *s, const struct shms_keyname *k);

#endif
