/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simstore.h: a store without its library: its directories, its locked page and its objects are
 * real files of a real partition, its owner is a virtual process. It charges, writes, settles and
 * deletes as docs/architecture.md says that a store does; and it can die at any of these steps.
 */
#ifndef SIM_SIMSTORE_H
#define SIM_SIMSTORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "page.h"

#define SIMSTORE_UNIT      4096u
#define SIMSTORE_FILES_MAX 64u

struct simstore {
	char name[32], path[256]; /* absolute */
	pid_t pid;
	uid_t uid;
	int lock_fd;                        /* of its page; -1: nobody has it open */
	struct shms_page *page;             /* mapped; NULL */
	uint64_t charged;                   /* bytes that are charged and not written yet */
	uint64_t bytes;                     /* of its objects, as files */
	uint64_t sizes[SIMSTORE_FILES_MAX]; /* of each; 0: there is none */
	bool there;                         /* its directory was there when it was looked at last */
};

/* Makes it in the partition and locks it. label: "" = none. */
void simstore_open(struct simstore *s, const char *partition, const char *name, pid_t pid,
		   uid_t uid, const char *label);
/* Takes credit for bytes. False: there is not so much. */
bool simstore_charge(struct simstore *s, uint64_t bytes);
/* Writes what was charged, as one object; or gives the charge back. */
void simstore_write(struct simstore *s);
void simstore_uncharge(struct simstore *s);
/* Deletes an object: the which-th of those that are there. False: there is none. */
bool simstore_delete(struct simstore *s, unsigned which);
/* Does what its page asks, as far as it goes. */
void simstore_give(struct simstore *s);
/* Removes all of it, as an owner that closes it; or lets go of it, as one that dies. */
void simstore_close(struct simstore *s);
void simstore_abandon(struct simstore *s);
/* Bytes that it may still charge or has charged and not settled: what is outstanding. */
uint64_t simstore_outstanding(const struct simstore *s);
uint64_t simstore_unspent(const struct simstore *s);
/* Is anything of it left in the partition? */
bool simstore_is_there(struct simstore *s);

#endif
