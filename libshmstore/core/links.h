/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.h: which of a store's names may mean one and the same inode, so that its ledger counts
 * each inode once, as a walk does.
 *
 * Most objects have one name here and nobody else's; they are not in this table, and cost nothing.
 * A name comes in when its inode gets, or may get, another one: as an alias, when it is handed off
 * (what was handed off may come back under another key), adopted with links besides its own, or
 * found with several links as a kept store is opened. It goes with the name.
 *
 * Several names of one inode are a ring. Where there is a disk tier, others may exchange a name of
 * the ring with its stub meanwhile: then the inodes are looked at again, each time. In the table
 * without a ring, a name is its inode's only one in this store.
 *
 * The caller holds store.names exclusively, unless it says otherwise. A cache: without memory for
 * it an operation fails before it did anything.
 */
#ifndef SHMS_LINKS_H
#define SHMS_LINKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shmstore;
struct shms_link;

struct shms_links {
	pthread_mutex_t lock; /* all below: handoffs come with names shared */
	struct shms_link **by_name, **by_inode;
	size_t size;            /* of both tables: a power of 2, or 0 */
	_Atomic size_t n;       /* entries: changed under the lock, looked at without it as well */
	uint64_t seed, moved_n; /* moved_n: the page's, when inodes were looked at last */
};

void shms_links_init(struct shms_links *l);
void shms_links_deinit(struct shms_links *l);

/* The name is handed off. store.names is held shared at least. 0, -ENOMEM. */
int shms_links_handed(struct shmstore *s, const char *name);
/* An entry for a name that is about to come; to be given to shms_links_add(), or freed. NULL: no
 * memory. */
struct shms_link *shms_links_new(const char *name);
/* Its name now means the inode, which has links elsewhere. True: no other name of this store
 * does. */
bool shms_links_add(struct shmstore *s, struct shms_link *link, uint64_t inode);
/* The name, which has or is to have no other entry, means this inode, of which another name is
 * about to come. 0, -ENOMEM. */
int shms_links_know(struct shmstore *s, const char *name, uint64_t inode);
enum shms_links_of {
	SHMS_LINKS_PRIVATE, /* it was never handed off, aliased or adopted */
	SHMS_LINKS_KNOWN,   /* it was: others may link its inode */
	SHMS_LINKS_OTHERS   /* others of this store's names mean its inode, too */
};

/* Tells what is known of a name. Its own lock suffices where the store has no tier. */
enum shms_links_of shms_links_of(struct shmstore *s, const char *name);
/* The name means this inode now, back from the tier. True: no other name of this store does. */
bool shms_links_back(struct shmstore *s, const char *name, uint64_t inode);
/* The name means another inode of the same object now: it went into the tier. */
void shms_links_moved(struct shmstore *s, const char *name);
/* The name goes, or means another inode from now on, which has no other name here. */
void shms_links_drop(struct shmstore *s, const char *name);
/* Is there another name than but in objects/ that means the inode? By the directory, for who
 * is not the store's owner. ret_name has room for SHMS_NAME_SIZE. */
bool shms_links_listed(int objects_fd, uint64_t inode, const char *but, char *ret_name);
/* All names in objects/ whose inodes have several links, of a store that is just
 * opened. 0, -ENOMEM, -errno. */
int shms_links_read(struct shmstore *s);

/* Was this name never handed off, aliased or adopted? If so nobody else can link its inode until
 * shms_links_release(). store.names need not be held. */
bool shms_links_hold_private(struct shmstore *s, const char *name);
void shms_links_release(struct shmstore *s);

#endif
