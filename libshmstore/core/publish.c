/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish.c: names for finished files.
 *
 * A new key is one link or one rename. A replaced key is an exchange: the new file gets a name in
 * recycle/ first, then the two swap, so that the key means the old object or the new one at every
 * instant and the old file ends in the pool. Killed between the steps: a file in recycle/ of a dead
 * store, which gc removes. store.names is held exclusively over each change of what a name means,
 * together with the caches that say the same (recent, recycle).
 */
#include "publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "credit.h"
#include "links.h"
#include "nameslock.h"
#include "object.h"
#include "packed.h"
#include "recycle.h"
#include "sys.h"

/*
 * May the key become a file's? And k with the name that it is to have: its own, or, where that is a
 * hash, the one that the key is under, or may be. names is held. own: room for it. With other_key
 * the key is not in the object: the sidecar holds it from before there is one.
 */
static int settle(struct shmstore *s, const struct shms_keyname **k, struct shms_keyname *own,
		  bool other_key, bool replace)
{
	int r = shms_packed_in_the_way(s, *k, replace);

	if (r < 0 || (*k)->kind != SHMS_NAME_HASHED)
		return r;
	*own = **k;
	*k = own;
	r = shms_key_find(s->objects_fd, own);
	if (r < 0)
		return r;
	if (r == 0)
		shms_sidecar_drop(s->objects_fd, own->name);
	return other_key ? shms_sidecar_write(s->objects_fd, own->name, own->key, own->key_size)
			 : 0;
}

/* Books a name that came to be. first: no other name of ours means its inode. names is held. */
static void booked(struct shmstore *s, const struct shms_keyname *k, const struct shms_layout *l,
		   uint64_t bytes, bool first)
{
	shms_recent_set(&s->recent, k->name, l->header_size, l->buffer_size,
			bytes == shms_whole_pages(l->header_size + l->buffer_size));
	shms_linked_back(s, first ? bytes : 0);
	shms_count(&s->ledger->linked_n, 1);
	/* After the file has the key: killed in between, the key means both, and the file stays. */
	shms_packed_delete(s, k, NULL);
	shms_wake(s);
}

/* Swaps staged in recycle/ with the object of that name and lets the old one go. names is held. */
static int swap_in(struct shmstore *s, const char *staged, const char *name)
{
	enum shms_links_of links = shms_links_of(s, name);
	uint64_t bytes = 0;

	int r = shms_exchange(s->dir_fd, staged, s->objects_fd, name);

	if (r < 0) {
		/* Gone meanwhile by somebody else's hand, or refused, or a file system that cannot
		 * exchange: rename alone is atomic too. */
		if (r != -ENOENT && r != -EINVAL && r != -ENOSYS)
			return r;
		shms_recycle_forget(s, name);
		shms_links_drop(s, name);
		return shms_rename_over(s, s->dir_fd, staged, name);
	}
	if (s->clean_fd >= 0 && shms_stub_is(s->dir_fd, staged))
		shms_stub_drop(s, s->dir_fd, staged);
	else
		bytes = shms_recycle_replaced(s, name, staged, links);
	/* After the pool has it: a limit misses nothing (recycle.h). */
	shms_linked_sub(s, links == SHMS_LINKS_OTHERS ? 0 : bytes);
	shms_links_drop(s, name);
	shms_clean_drop(s, name);
	return 0;
}

static int link_fd(struct shmstore *s, int fd, const char *name, bool replace)
{
	char staged[SHMS_RECYCLE_NAME];
	int r = shms_link_fd(fd, s->objects_fd, name);

	if (r != -EEXIST || !replace)
		return r;
	shms_recycle_name(s, staged);
	r = shms_link_fd(fd, s->dir_fd, staged);
	if (r < 0)
		return r;
	r = swap_in(s, staged, name);
	if (r < 0)
		unlinkat(s->dir_fd, staged, 0);
	return r;
}

int shms_publish_fd(struct shmstore *s, int *fd, const struct shms_keyname *k,
		    const struct shms_layout *l, bool replace)
{
	uint64_t size = l->header_size + l->buffer_size;
	uint64_t bytes = shms_file_bytes(s, *fd, size);
	struct shms_keyname own;
	int r;

	r = shms_names_lock(s);
	if (r < 0)
		return r;
	r = settle(s, &k, &own, false, replace);
	if (r == 0)
		r = link_fd(s, *fd, k->name, replace);
	if (r == 0) {
		booked(s, k, l, bytes, true);
		shms_recycle_offer(s, fd, size, bytes, k->name);
	}
	shms_names_unlock(s);
	return r;
}

int shms_publish_slot(struct shmstore *s, struct shms_slot *slot, const struct shms_keyname *k,
		      const struct shms_layout *l, bool replace)
{
	struct shms_keyname own;
	int r;

	r = shms_names_lock(s);
	if (r < 0) {
		shms_recycle_untake(s, slot);
		return r;
	}
	r = settle(s, &k, &own, false, replace);
	if (r == 0)
		r = shms_rename_noreplace(s->dir_fd, slot->pool_name, s->objects_fd, k->name);
	if (r == -EEXIST && replace)
		r = swap_in(s, slot->pool_name, k->name);
	if (r == 0) {
		booked(s, k, l, slot->bytes, true);
		shms_recycle_published(s, slot, k->name, l);
	} else if (r != -ENOENT) {
		shms_recycle_untake(s, slot);
	}
	shms_names_unlock(s);
	return r;
}

/* A name that was linked just now and is not wanted. With a stub's last name goes the tier file. */
static void unlink_again(struct shmstore *s, int dir_fd, const char *name)
{
	if (!shms_stub_is(dir_fd, name) || shms_stub_drop(s, dir_fd, name) < 0)
		unlinkat(dir_fd, name, 0);
}

/*
 * One more name for the file that the source's name means: for that very one, or none. -EAGAIN:
 * it means another file by now.
 *
 * A stub's anchor keeps it linkable when its last name has gone, and its tier file goes with that
 * name. A removal looks at the stub's link count afterwards, and a link at the source's name
 * afterwards: so at least one of them sees the other.
 */
static int link_named(struct shmstore *s, const struct shms_publish_from *from, int dir_fd,
		      const char *name)
{
	struct stat st;
	int r = shms_link_name(from->dir_fd, from->name, dir_fd, name);

	if (r < 0)
		return r;
	r = -EAGAIN;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == from->inode) {
		if (!S_ISLNK(st.st_mode))
			return 0;
		if (fstatat(from->dir_fd, from->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			r = -ESTALE;
		else if (st.st_ino == from->inode)
			return 0;
	}
	unlink_again(s, dir_fd, name);
	return r;
}

/*
 * A lease takes the place of an object in one step: between two it would be neither, and a
 * kill or an error there would lose it for good if the donor has deleted its own. The old file
 * goes without a stay in the pool.
 */
static int move_over(struct shmstore *s, const struct shms_publish_from *from, const char *name)
{
	struct stat st;
	bool others = shms_links_of(s, name) == SHMS_LINKS_OTHERS, known;
	int r;

	/* Before the look: a slot gives slack back whenever it likes. */
	shms_recycle_forget(s, name);
	known = fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	r = shms_rename_over(s, from->dir_fd, from->name, name);
	if (r < 0)
		return r;
	shms_clean_drop(s, name);
	shms_links_drop(s, name);
	if (known) {
		shms_linked_sub(s, others ? 0 : shms_blocks(&st));
		if (st.st_nlink == 1 && shms_credit_counts_last(s))
			shms_credit_gave(s, shms_blocks(&st));
	}
	return 0;
}

/* The name is held. By this very file: done. Else it is replaced if that is asked. */
static int place_over(struct shmstore *s, const struct shms_publish_from *from, const char *name,
		      bool replace)
{
	char staged[SHMS_RECYCLE_NAME];
	struct stat st;
	int r;

	if (fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == from->inode) {
		if (from->move && unlinkat(from->dir_fd, from->name, 0) < 0)
			return errno == ENOENT ? -ESTALE : -errno;
		return 1;
	}
	if (!replace)
		return -EEXIST;
	if (from->move)
		return move_over(s, from, name);
	shms_recycle_name(s, staged);
	r = link_named(s, from, s->dir_fd, staged);
	if (r < 0)
		return r;
	r = swap_in(s, staged, name);
	if (r < 0)
		unlink_again(s, s->dir_fd, staged);
	return r;
}

int shms_publish_named(struct shmstore *s, const struct shms_publish_from *from,
		       const struct shms_keyname *k, const struct shms_layout *l, bool replace)
{
	struct shms_link *link = NULL;
	struct shms_keyname own;
	int r = shms_names_lock(s);

	if (r < 0)
		return r;
	r = settle(s, &k, &own, from->other_key, replace);
	if (r == 0 && from->shared) {
		link = shms_links_new(k->name);
		r = link ? 0 : -ENOMEM;
	}
	if (r == 0 && from->alias)
		r = shms_links_know(s, from->name, from->inode);
	if (r == 0)
		r = from->move ? shms_rename_noreplace(from->dir_fd, from->name, s->objects_fd,
						       k->name)
			       : link_named(s, from, s->objects_fd, k->name);
	if (r == -EEXIST)
		r = place_over(s, from, k->name, replace);
	if (r == 0)
		booked(s, k, l, from->bytes, !link || shms_links_add(s, link, from->inode));
	else
		free(link);
	/* The source's name may mean another file than it did. */
	if (r < 0 && from->alias)
		shms_links_moved(s, from->name);
	if (r == 0 && from->shared && !from->alias)
		shms_recycle_adopted(s, from->inode);
	shms_names_unlock(s);
	return r == 1 ? 0 : r;
}
