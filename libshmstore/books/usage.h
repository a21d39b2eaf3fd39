/* SPDX-License-Identifier: Apache-2.0 */
/* usage.h: the df equation. */
#ifndef SHMS_USAGE_H
#define SHMS_USAGE_H

#include <shmstore/inspect.h>
#include <stdbool.h>

struct shms_holders;
struct shms_users;

/* Options and call-backs of a usage walk. */
struct shms_usage_ask {
	bool holders; /* ask for them; else ghosts and writers are left in the residual */
	bool keys;    /* of what they hold too */
	/* Each may be NULL; as in struct shms_books_ask. begin: another try starts,
	 * what was told so far is void. */
	void (*begin)(void *arg);
	int (*store)(const struct shmstore_store_books *books, void *arg);
	int (*progress)(uint64_t n_names, void *arg);
	void *arg;
	struct shms_users *users; /* filled anew */
};

/*
 * Takes the books of p's whole file system; three times where somebody writes meanwhile.
 *   ret_holders   freed by the caller; NULL where they were not asked for.
 * 0, what store returned, -ECANCELED, -EINVAL, -EPERM, -EMFILE, -ENOMEM.
 */
int shms_usage_take(struct shmstore_partition *p, const struct shms_usage_ask *ask,
		    struct shmstore_usage *ret, struct shms_holders **ret_holders);

#endif
