/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcpeer.c: addresses whose store is gone or dead, and temporary names of addresses that were never
 * finished. A live store's address is never touched: between the look and the removal the symlink
 * is looked at again, and a store that lost its address is only not found by it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "gcaction.h"
#include "name.h"
#include "page.h"
#include "partition.h"
#include "sys.h"

#define TEMPORARY     ".tmp-" /* a name on its way */
#define TEMPORARY_AGE (60 * 1000000000ll)

/* Is the store that a peer's symlink leads to gone, or dead? 1 with a reason, 0, -errno. */
static int peer_gone(struct shms_gc *g, int peers_fd, const char *name, const char **ret_why)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(peers_fd, name, target, sizeof(target) - 1);
	int alive;

	if (n < 0)
		return 0;
	target[n] = '\0';
	if (strncmp(target, "../", 3) != 0)
		return 0; /* not as we make them */
	_fd_ int fd = shms_open_beneath(g->p->fd, target + 3, O_RDONLY | O_DIRECTORY);
	if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
		return shms_error(fd);
	*ret_why = "an address whose store is gone";
	if (fd == -ENOENT || fd == -ENOTDIR)
		return 1;
	if (fd < 0)
		return 0;
	alive = shms_page_alive(fd);
	if (alive == SHMSTORE_DEAD)
		*ret_why = "an address whose store's owner is dead: the lock is free";
	return alive == SHMSTORE_DEAD || alive == -ENOENT;
}

static int peer(struct shms_gc *g, int peers_fd, const char *name)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_PEER};
	char below[sizeof(SHMS_DIR_PEERS) + NAME_MAX + 1];
	struct stat st, again;
	const char *why = "";
	int r;

	if (fstatat(peers_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	snprintf(below, sizeof(below), "%s/%s", SHMS_DIR_PEERS, name);
	if (!S_ISLNK(st.st_mode))
		return shms_gc_kept(g, below, "not a name that we make");
	r = peer_gone(g, peers_fd, name, &why);
	if (r >= 0 && strncmp(name, TEMPORARY, sizeof(TEMPORARY) - 1) == 0) {
		a.what = SHMSTORE_GC_TORN;
		a.n_objects = 1;
		if (r == 0 && shms_now_real_ns() - shms_stat_ns(&st.st_mtim) <= TEMPORARY_AGE)
			return shms_gc_kept(
				g, below,
				"an address in the making, not a minute old: its maker may live");
		why = r ? "half an address, whose maker is dead"
			: "half an address, over a minute old";
		r = 1;
	}
	if (r <= 0)
		return r;
	/* A new store may have taken the address over since. */
	if (fstatat(peers_fd, name, &again, AT_SYMLINK_NOFOLLOW) < 0 || again.st_ino != st.st_ino)
		return 0;
	return shms_gc_remove(g, &a, peers_fd, name, below, why);
}

int shms_gc_peers(struct shms_gc *g)
{
	_names_ struct shms_names d = shms_names_beneath(g->p->fd, SHMS_DIR_PEERS);

	while (shms_names_next(&d))
		d.error = peer(g, d.fd, d.name);
	return d.error;
}

int shms_gc_peer_of(struct shms_gc *g, const char *address, const char *below)
{
	_fd_ int peers_fd = shms_open_dir(g->p->fd, SHMS_DIR_PEERS);
	char name[SHMS_PEER_NAME], target[PATH_MAX];
	ssize_t n;

	shms_peer_name(address, name);
	n = readlinkat(peers_fd, name, target, sizeof(target) - 1);
	if (n < 0)
		return 0;
	target[n] = '\0';
	if (strncmp(target, "../", 3) != 0 || strcmp(target + 3, below) != 0)
		return 0; /* another store has it by now */
	return peer(g, peers_fd, name);
}
