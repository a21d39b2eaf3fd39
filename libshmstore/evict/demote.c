/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demote.c: an object leaves memory for the tier.
 *
 * The copy is made without a lock: an object never changes, and while we have its file open its
 * owner does not recycle it. Then, under the names lock of each store that links it: a stub into
 * clean/, once for all an anchor and the tier file's name, and one exchange of objects/<name> with
 * clean/<name>. Killed before the exchange: the object with a clean copy, or with a stub to
 * nothing, which the next look at it removes; after it: the object's file in clean/, which whoever
 * takes the names lock next may remove.
 *
 * Several names: the first store stays locked until the last name is done, so that the stub cannot
 * lose its last name meanwhile. The resident, <id>.object, is what others find while some names are
 * stubs and others not (or while somebody still maps it).
 *
 * An object may be handed over at any moment, without a lock: it has a name then that we did not
 * know of. Demoted without that one it would be two objects from then on. So its links are counted
 * before the first exchange, and after the last one: where there are more it stays in memory, or
 * comes back under its first name, and the copy is a clean one.
 */
#include "demote.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "credit.h"
#include "detail.h"
#include "links.h"
#include "name.h"
#include "nameslock.h"
#include "object.h"
#include "page.h"
#include "sys.h"
#include "tierroom.h"

/* ---- before the copy ------------------------------------------------------------------------- */

/* The key of a hashed name lies in its object: what goes to the disk leaves a sidecar. */
static int keep_key(const struct shms_demote_name *n, const struct shms_header *h)
{
	unsigned char key[SHMSTORE_KEY_MAX], plain[SHMS_NAME_SIZE];
	size_t size;
	int r;

	if (shms_name_decode(n->name, plain, &size) != SHMS_NAME_HASHED)
		return 0;
	r = shms_entry_key(n->objects_fd, n->name, h, key, &size);
	if (r == 0)
		r = shms_sidecar_write(n->objects_fd, n->name, key, size);
	/* Without a path: the disk is not what is full. */
	if (r == -ENOSPC)
		shms_detail(r, NULL,
			    "the partition has no page left for the long key of one of its names; "
			    "delete or demote another object first");
	return r;
}

/* A name whose stub in clean/ is of this very object and whose tier file is good. -1: none. */
static int find_clean(const struct shms_demote *d, uint64_t generation, struct shms_stub *ret)
{
	for (size_t i = 0; i < d->n_names; i++) {
		if (shms_stub_read(d->names[i].clean_fd, d->names[i].name, ret, NULL) == 0 &&
		    ret->generation == generation && ret->uid == d->t->uid &&
		    shms_tier_file_good(d->t, ret))
			return (int)i;
	}
	return -1;
}

/* Links of the object's that are residents: of any tier file, for one that was
 * damaged may have left its own. */
static size_t count_residents(const struct shms_demote *d)
{
	struct shms_residents residents;
	size_t n;

	if (shms_residents_list(d->t, &residents) < 0)
		return 0;
	n = shms_residents_count(&residents, d->st.st_ino);
	shms_residents_deinit(&residents);
	return n;
}

/* A user to whom another one handed the object could not read that one's tier. */
static bool all_stores_its_users(const struct shms_demote *d)
{
	struct stat st;

	for (size_t i = 0; i < d->n_names; i++) {
		if (fstat(d->names[i].objects_fd, &st) < 0 || st.st_uid != d->t->uid)
			return false;
	}
	return true;
}

static bool still_it(const struct shms_demote *d, const struct shms_demote_name *n)
{
	struct stat st;

	return fstatat(n->objects_fd, n->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_ino == d->st.st_ino;
}

static int refuse_pinned(void)
{
	return shms_detail(-EPERM, NULL, "it is pinned in memory; unpin it first");
}

/* A later pin finds that the name means it no longer (tierops.c). */
static bool is_pinned(const struct shms_demote *d)
{
	struct stat st;

	return fstat(d->fd, &st) == 0 && (st.st_mode & S_ISVTX);
}

static int open_object(struct shms_demote *d)
{
	const struct shms_demote_name *n = &d->names[0];

	d->fd = shms_open_file(n->objects_fd, n->name, O_RDONLY);
	if (d->fd < 0)
		return errno == ELOOP || errno == ENOENT || errno == EAGAIN ? -EAGAIN : -errno;
	if (fstat(d->fd, &d->st) < 0)
		return -errno;
	/* An open that began before its owner deleted it may end in a file that is being written
	 * anew. From here on it is not. */
	if (!still_it(d, n))
		return shms_detail(-EAGAIN, NULL, "it was replaced or deleted meanwhile");
	if (!S_ISREG(d->st.st_mode))
		return -EBADMSG;
	if (d->st.st_uid != d->t->uid)
		return shms_detail(-EPERM, NULL, "it is another user's object");
	if (!all_stores_its_users(d))
		return shms_detail(-EPERM, NULL,
				   "another user holds it too, who could not bring it back from "
				   "its owner's tier");
	return d->st.st_mode & S_ISVTX ? refuse_pinned() : 0;
}

int shms_demote_copy(struct shms_demote *d, const struct shms_header *h)
{
	const struct shms_layout *l = &h->object.layout;
	struct shms_tier_object o = {
		.id = shms_nonce(),
		.generation = h->object.generation,
		.header_size = l->header_size,
		.buffer_size = l->buffer_size,
		.key = h->object.key,
		.key_size = l->key_size,
		.level = d->t->config.level,
	};
	uint64_t size;
	int r;

	d->stub = (struct shms_stub){.id = o.id,
				     .generation = o.generation,
				     .header_size = o.header_size,
				     .buffer_size = o.buffer_size,
				     .uid = d->t->uid};
	r = shms_tier_header_init(&d->header, &o);
	if (r < 0)
		return r;
	size = d->header.sb->header_size + shms_tier_pad((uint64_t)d->st.st_size);
	size = shms_tierroom_need(size);
	r = shms_tier_claim(d->t, size);
	d->claimed = r == 0 ? size : 0;
	if (r == 0)
		r = shms_tier_file_new(d->t, o.id, d->tmp_name, &d->tier_fd);
	if (r < 0)
		return r;
	d->job = (struct shms_job){.object_fd = d->fd,
				   .tier_fd = d->tier_fd,
				   .header = &d->header,
				   .fsync = d->t->config.fsync,
				   .done = d->job.done,
				   .arg = d->job.arg};
	return 0;
}

static int begin(struct shms_demote *d)
{
	struct shms_header h;
	int r = open_object(d);

	if (r < 0)
		return r;
	r = shms_header_read(&h, d->fd, &d->st, NULL);
	if (r < 0)
		return r;
	d->memory = shms_blocks(&d->st);
	d->first = find_clean(d, h.object.generation, &d->stub);
	d->clean = d->first >= 0;
	if (d->st.st_nlink != d->n_names && d->st.st_nlink != d->n_names + count_residents(d))
		r = shms_detail(-EAGAIN, NULL,
				"it has %llu links, of which %zu are known: leases, or stores that "
				"are not ours",
				(unsigned long long)d->st.st_nlink, d->n_names);
	else if (!d->mapped && !shms_unused(d->fd))
		r = shms_detail(-EAGAIN, NULL, "somebody maps it, or has it open");
	else if (!d->clean)
		r = shms_demote_copy(d, &h);
	/* Last: who is refused, or finds the disk full, leaves no page behind. */
	for (size_t i = 0; i < d->n_names && r == 0; i++)
		r = keep_key(&d->names[i], &h);
	if (r == 0 && d->clean)
		r = 1;
	/* A name that is being deleted loses its object first, and what says its key after that;
	 * then a store that is closed loses its directory. */
	for (size_t i = 0; i < d->n_names && (r == -EBADMSG || r == -ENOENT); i++) {
		if (!still_it(d, &d->names[i]))
			r = shms_detail(-EAGAIN, NULL, "it was replaced or deleted meanwhile");
	}
	shms_header_deinit(&h);
	return r;
}

void shms_demote_init(struct shms_demote *d)
{
	d->fd = d->tier_fd = -1;
	d->first = -1;
	d->error = 0;
	d->memory = d->written = d->claimed = d->taken = 0;
	d->freed = d->clean = d->resident = false;
	d->tmp_name[0] = '\0';
	d->header = (struct shms_tier_header){0};
}

int shms_demote_begin(struct shms_demote *d)
{
	int r;

	shms_demote_init(d);
	r = begin(d);
	d->error = r < 0 ? r : 0;
	return r;
}

/* ---- after it -------------------------------------------------------------------------------- */

/* The stub into clean/, in the place of what may be left there: a new one, or one
 * more link to that in from. */
static int put_stub(const struct shms_demote *d, const struct shms_demote_name *n,
		    const struct shms_demote_name *from)
{
	char text[SHMS_STUB_SIZE];
	struct shms_stub there;
	int r = shms_stub_read(n->clean_fd, n->name, &there, NULL);

	if (r == 0 && there.id == d->stub.id)
		return 0;
	if (r == 0)
		shms_tier_release(d->t, n->clean_fd, n->name);
	else if (r != -ENOENT)
		unlinkat(n->clean_fd, n->name, 0);
	if (from)
		return linkat(from->objects_fd, from->name, n->clean_fd, n->name, 0) < 0 ? -errno
											 : 0;
	shms_stub_format(&d->stub, text);
	if (symlinkat(text, n->clean_fd, n->name) < 0)
		return -errno;
	if (d->t->uid != geteuid() &&
	    fchownat(n->clean_fd, n->name, d->t->uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

/* dirfd: where the object's file has the name. */
static void make_resident(struct shms_demote *d, int dirfd, const char *name)
{
	char resident[SHMS_TIER_NAME];

	/* In vain it costs a second read of the object, no more. */
	shms_tier_resident_name(d->stub.id, resident);
	d->resident |= linkat(dirfd, name, d->t->dir_fd, resident, 0) == 0;
}

/* Has the object names besides n of those that we know? */
static bool more_names(const struct shms_demote *d, size_t n)
{
	struct stat st;

	if (fstat(d->fd, &st) < 0 || st.st_nlink <= n + d->resident)
		return false;
	return st.st_nlink > n + count_residents(d);
}

static int handed_over(void)
{
	return shms_detail(-EAGAIN, NULL,
			   "it was handed over meanwhile; its copy is kept for the next time");
}

static int exchange(const struct shms_demote_name *n)
{
	return shms_exchange(n->objects_fd, n->name, n->clean_fd, n->name);
}

/* Two names in one store: its lock is held already. */
static bool same_store(const struct shms_demote_name *a, const struct shms_demote_name *b)
{
	struct stat x, y;

	return fstat(a->objects_fd, &x) == 0 && fstat(b->objects_fd, &y) == 0 &&
	       x.st_ino == y.st_ino;
}

/* Does the store of this name link the object no longer? The first name is the last to be finished,
 * though it is the first to be exchanged. */
static bool last_of_store(const struct shms_demote *d, const struct shms_demote_name *n,
			  const struct shms_demote_name *first)
{
	for (size_t i = 0; i < d->n_names; i++) {
		const struct shms_demote_name *other = &d->names[i];

		if (other != n && same_store(other, n) &&
		    ((other == first && n != first) || still_it(d, other)))
			return false;
	}
	return true;
}

/*
 * Another's store: what is to be booked is written before the exchange (page.c). Of several
 * names in the first one's store that one is exchanged first and finished last: what it
 * began holds for all of them.
 */
static void begin_move(const struct shms_demote *d, const struct shms_demote_name *n)
{
	if (!n->s)
		shms_move_begin(n->objects_fd, d->st.st_ino, d->memory, true);
}

static void end_move(const struct shms_demote_name *n, bool linked)
{
	if (!n->s)
		shms_move_end(n->objects_fd, linked);
}

/* After the exchange the object's name goes. A store has booked the object once,
 * however many names it has there. */
static void finish_name(const struct shms_demote *d, const struct shms_demote_name *n,
			const struct shms_demote_name *first)
{
	bool last = last_of_store(d, n, first);

	unlinkat(n->clean_fd, n->name, 0);
	if (n->s)
		shms_links_moved(n->s, n->name);
	if (n == first || !same_store(n, first))
		end_move(n, !last);
	if (n->s && last) {
		atomic_fetch_sub_explicit(&n->s->ledger->linked_bytes, d->memory,
					  memory_order_relaxed);
		shms_count(&n->s->ledger->demoted_n, 1);
		shms_count(&n->s->ledger->demoted_bytes, d->memory);
	}
}

/* The tier file of a new copy gets its name: the anchor before it. */
static int name_copy(struct shms_demote *d, const struct shms_demote_name *n)
{
	char anchor[SHMS_TIER_NAME];
	struct stat st;
	int r;

	shms_tier_anchor_name(d->stub.id, anchor);
	if (linkat(n->clean_fd, n->name, d->t->dir_fd, anchor, 0) < 0)
		return -errno;
	if (fstat(d->tier_fd, &st) < 0)
		return -errno;
	r = shms_tier_file_link(d->t, d->stub.id, d->tier_fd, d->tmp_name);
	/* From here on it takes that from the room of its claim, also if somebody removes it,
	 * who gives just that back. */
	if (r == 0)
		d->taken = shms_tierroom_of(&st);
	return r;
}

int shms_demote_name_copy(struct shms_demote *d, const struct shms_demote_name *n)
{
	int r = put_stub(d, n, NULL);

	return r == 0 ? name_copy(d, n) : r;
}

/* Its clean copy may have been dropped for want of disk since we looked. While its stub has this
 * name the tier file stays. */
static bool still_clean(const struct shms_demote *d, const struct shms_demote_name *n)
{
	char file[SHMS_TIER_NAME];
	struct shms_stub stub;

	shms_tier_file_name(d->stub.id, file);
	return shms_stub_read(n->clean_fd, n->name, &stub, NULL) == 0 && stub.id == d->stub.id &&
	       shms_lookup(d->t->files_fd, file) == 0;
}

/* The first name, whose lock the caller holds: its stub is in place, the
 * object in clean/, for now. */
static int swap_first(struct shms_demote *d, const struct shms_demote_name *n)
{
	struct stat st;
	int r;

	if (!still_it(d, n))
		return shms_detail(-EAGAIN, NULL, "it was replaced or deleted meanwhile");
	if (d->clean && !still_clean(d, n))
		return shms_detail(-EAGAIN, NULL, "its copy in the tier was given up meanwhile");
	r = d->clean ? 0 : shms_demote_name_copy(d, n);
	if (r == 0 && more_names(d, d->n_names)) {
		d->written = d->clean ? 0 : d->header.sb->file_size;
		return handed_over();
	}
	if (r == 0 &&
	    (d->n_names > 1 || !shms_unused(d->fd) || (fstat(d->fd, &st) == 0 && st.st_nlink > 1)))
		make_resident(d, n->objects_fd, n->name);
	if (r == 0) {
		begin_move(d, n);
		r = exchange(n);
		if (r < 0)
			end_move(n, true);
	}
	if (r == 0)
		d->written = d->clean ? 0 : d->header.sb->file_size;
	else if (!d->clean)
		shms_tier_release(d->t, n->clean_fd, n->name);
	return r;
}

/*
 * All names are done that we know. Has the object others by now, or was it pinned, it gets its
 * first one back, where the next demotion finds the copy.
 */
static int end_first(struct shms_demote *d, const struct shms_demote_name *n)
{
	bool more = more_names(d, 1), pinned = is_pinned(d);

	/* For who was given the stub meanwhile. */
	if (more && !d->resident)
		make_resident(d, n->clean_fd, n->name);
	if ((more || pinned) && exchange(n) == 0) {
		end_move(n, true);
		return pinned ? refuse_pinned() : handed_over();
	}
	finish_name(d, n, n);
	return 0;
}

static void swap_other(struct shms_demote *d, const struct shms_demote_name *n,
		       const struct shms_demote_name *from)
{
	bool locked = same_store(n, from);

	if (!locked && shms_names_lock_of(n->s, n->objects_fd) < 0)
		return; /* it keeps the object in memory; the resident leads the others to it */
	if (still_it(d, n) && put_stub(d, n, from) == 0) {
		if (!locked)
			begin_move(d, n);
		if (exchange(n) == 0)
			finish_name(d, n, from);
		else if (!locked)
			end_move(n, true);
	}
	if (!locked)
		shms_names_unlock_of(n->s, n->objects_fd);
}

/* Has the memory gone? A resident that nobody needs goes with it (tierdrop.c
 * says why under the lease). */
static void look_at_memory(struct shms_demote *d)
{
	char resident[SHMS_TIER_NAME];
	struct stat st, named;

	if (!shms_lease(d->fd))
		return;
	shms_tier_resident_name(d->stub.id, resident);
	if (fstatat(d->t->dir_fd, resident, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	    named.st_ino == d->st.st_ino && named.st_nlink == 1 && !(named.st_mode & S_ISVTX))
		unlinkat(d->t->dir_fd, resident, 0);
	d->freed = fstat(d->fd, &st) == 0 && st.st_nlink == 0;
	shms_lease_end(d->fd);
}

int shms_demote_finish(struct shms_demote *d)
{
	const struct shms_demote_name *first = &d->names[d->first < 0 ? 0 : d->first];
	int r = d->clean ? 0 : d->job.error;

	if (r < 0)
		shms_detail(r, d->t->files_path, "%s%s: %s", r == -ENOSPC ? "disk full: " : "",
			    d->t->files_path, d->job.reason);
	if (r == 0)
		r = shms_names_lock_of(first->s, first->objects_fd);
	if (r == 0) {
		r = swap_first(d, first);
		for (size_t i = 0; i < d->n_names && r == 0; i++) {
			if (&d->names[i] != first)
				swap_other(d, &d->names[i], first);
		}
		if (r == 0)
			r = end_first(d, first);
		shms_names_unlock_of(first->s, first->objects_fd);
	}
	if (r == 0) {
		look_at_memory(d);
		if (d->freed && first->s)
			shms_credit_gave(first->s, d->memory);
	}
	d->error = r;
	return r;
}

void shms_demote_end(struct shms_demote *d)
{
	/* A file with a name of its own that did not get the right one. After
	 * the rename there is none. */
	if (d->tmp_name[0])
		unlinkat(d->t->files_fd, d->tmp_name, 0);
	d->tmp_name[0] = '\0';
	d->fd = shms_close_fd(d->fd);
	d->tier_fd = shms_close_fd(d->tier_fd);
	shms_tier_header_deinit(&d->header);
	shms_tier_settle(d->t, d->claimed, d->taken);
	d->claimed = d->taken = 0;
}

int shms_demote_one(struct shms_demote *d)
{
	struct shms_engine *e;
	int r;

	d->job = (struct shms_job){0};
	r = shms_demote_begin(d);
	if (r == 0) {
		e = shms_tier_engine(d->t);
		if (e) {
			shms_engine_store(e, &d->job);
			shms_engine_drain(e);
			shms_tier_engine_back(d->t, e);
		} else {
			d->job.error = -ENOMEM;
		}
	}
	if (r >= 0)
		r = shms_demote_finish(d);
	shms_demote_end(d);
	return r;
}
