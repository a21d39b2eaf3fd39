/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c: how peers find each other without a daemon. The symlink says where the store of an
 * address is; the store's page says which address it has; its lock says whether it lives. Only
 * all three together are an answer, so that a symlink left by a killed process, or taken over
 * by another store, misleads nobody. The page is written first: killed in between, the address
 * is not found, which is right.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "name.h"
#include "opened.h"
#include "parts.h"
#include "recycle.h"
#include "sys.h"

static void target_of(const struct shmstore *s, char ret[PATH_MAX])
{
	snprintf(ret, PATH_MAX, "..%s", s->path + strlen(s->p->path));
}

void shms_peer_withdraw(struct shmstore *s)
{
	char name[SHMS_PEER_NAME], mine[PATH_MAX], found[PATH_MAX];
	ssize_t n;

	if (!s->page || !s->page->address[0])
		return;
	_fd_ int peers_fd = shms_open_dir(s->p->fd, SHMS_DIR_PEERS);
	shms_peer_name(s->page->address, name);
	target_of(s, mine);
	n = readlinkat(peers_fd, name, found, sizeof(found));
	if (n > 0 && (size_t)n == strlen(mine) && memcmp(found, mine, (size_t)n) == 0)
		unlinkat(peers_fd, name, 0);
}

static int set_address(struct shmstore *s, const char *address)
{
	char name[SHMS_PEER_NAME], target[PATH_MAX], temporary[SHMS_RECYCLE_NAME];
	int r = 0;

	shms_peer_withdraw(s);
	/* A reader copies the page and compares the whole text: half an address matches nothing. */
	memset(s->page->address, 0, sizeof(s->page->address));
	memcpy(s->page->address, address, strlen(address));
	if (!address[0])
		return 0;
	_fd_ int peers_fd = shms_open_dir(s->p->fd, SHMS_DIR_PEERS);
	if (peers_fd < 0)
		return shms_error(peers_fd);
	shms_peer_name(address, name);
	target_of(s, target);
	/* Made in our own recycle/: killed before the rename, it goes with what else is ours. */
	shms_recycle_name(s, temporary);
	if (symlinkat(target, s->dir_fd, temporary) < 0)
		return shms_error(errno);
	if (renameat(s->dir_fd, temporary, peers_fd, name) < 0) {
		r = shms_error(errno);
		unlinkat(s->dir_fd, temporary, 0);
	}
	return r;
}

int shmstore_set_address(struct shmstore *s, const char *address)
{
	int r;

	if (!address || strlen(address) > SHMSTORE_ADDRESS_MAX)
		return !address ? shms_detail_null("address")
				: shms_detail(-EINVAL, NULL,
					      "an address has %u bytes at most, this one %zu",
					      SHMSTORE_ADDRESS_MAX, strlen(address));
	/* Page and symlink change together; two threads that name different
	 * addresses must not mix them. */
	shms_fairlock_take(&s->names);
	r = set_address(s, address);
	shms_fairlock_release(&s->names);
	return r;
}

static int nobody(const struct shmstore_partition *p, const char *address)
{
	return shms_detail(-ENOENT, NULL, "no live store of %s is known by the address %s", p->path,
			   address);
}

/* Opens the directory that the address leads to. -ENOENT: none; -errno. */
static int open_peer(const struct shmstore_partition *p, const char *address)
{
	_fd_ int peers_fd = shms_open_dir(p->fd, SHMS_DIR_PEERS);
	char name[SHMS_PEER_NAME], target[PATH_MAX];
	ssize_t n;
	int fd;

	shms_peer_name(address, name);
	n = readlinkat(peers_fd, name, target, sizeof(target) - 1);
	if (n < 0)
		return peers_fd < 0 ? peers_fd : errno == EINVAL ? -ENOENT : -errno;
	target[n] = '\0';
	fd = strncmp(target, "../", 3) == 0
		     ? shms_open_beneath(p->fd, target + 3, O_RDONLY | O_DIRECTORY)
		     : -ENOENT;
	return fd < 0 && !shms_fatal(fd) ? -ENOENT : fd;
}

int shmstore_peer_find(struct shmstore_partition *p, const char *address, char *ret_name,
		       size_t name_size)
{
	struct shms_page page;
	struct stat st;
	int r;

	if (!p || !address || !*address || strlen(address) > SHMSTORE_ADDRESS_MAX ||
	    (!ret_name && name_size))
		return !p || !address ? shms_detail_null(!p ? "p" : "address")
				      : shms_detail(-EINVAL, NULL,
						    "an address has 1 to %u bytes, and ret_name "
						    "comes with its size",
						    SHMSTORE_ADDRESS_MAX);
	_fd_ int fd = open_peer(p, address);
	if (fd < 0)
		return fd == -ENOENT ? nobody(p, address) : shms_error(fd);
	/* The directory's owner, not what the page says: where several users share the
	 * partition anybody can make a page. */
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid())
		return nobody(p, address);
	r = shms_page_read(fd, &page);
	if (r < 0)
		return r == -EMFILE || r == -ENOMEM ? r : nobody(p, address);
	if (strcmp(page.address, address) != 0 || shms_page_alive(fd) != SHMSTORE_ALIVE)
		return nobody(p, address);
	if (ret_name) {
		if (strlen(page.name) >= name_size)
			return shms_detail(-EINVAL, NULL, "%zu bytes are too few for the name %s",
					   name_size, page.name);
		memcpy(ret_name, page.name, strlen(page.name) + 1);
	}
	return 0;
}
