/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segrescue.c: recovers the dead in a segment's file.
 *
 * The kernel says that a holder is dead: its byte can be locked. As long as the byte is locked
 * nobody else recovers or takes the place, so that the steps have one author. If that process is
 * killed, the record is as it was, and the next one begins anew. The record is freed last: a FREE
 * place has no bits.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "segfile.h"
#include "seglook.h"
#include "segmem.h"
#include "segslot.h"
#include "sys.h"

void shms_segrescue_locked(const struct shms_segment *g, unsigned holder, bool gone)
{
	struct shms_segrecord *record = shms_segment_record(g, holder);

	shms_segment_recover(g, holder, !gone);
	if (gone)
		shms_segword_store(&record->state, holder == SHMS_SEG_OWNER ? SHMS_SEGRECORD_ORPHAN
									    : SHMS_SEGRECORD_FREE);
}

/*
 * Takes back what nobody has in a segment whose owner is dead, and gives its memory back. kept:
 * the owner's names stay, since its store may come back. Byte 0 is locked, for which that
 * waits, and is free again before anything is punched: that may take long, or be stopped. Until
 * the lock for it ends too, a store that came back puts nothing here (segown.c); then it
 * allocates anew what it finds punched.
 */
static int trim_ownerless(struct shms_seglook *l, bool kept, uint64_t now_ms, uint64_t *io_freed)
{
	uint32_t n_born = shms_segment_born(&l->segment), now = shms_segnow_of_ms(now_ms);

	/* A process that did this before may have been killed amid a look at a slot. */
	shms_segment_recover(&l->segment, SHMS_SEG_OWNER, kept);
	for (uint32_t i = 0; i < n_born; i++) {
		struct shms_segslot slot = shms_segslot_at(&l->segment, i);

		if (!shms_segslot_held(&slot))
			(void)shms_segslot_free(&slot, now);
	}
	if (kept)
		shms_seglock_end(l->fd, SHMS_SEG_OWNER);
	return shms_segtrim_free(&l->segment, l->fd, io_freed);
}

/* As shms_segrescue(), for one holder. 0, -EBUSY. */
static int rescue(struct shms_seglook *l, unsigned holder, const uint8_t gone[16])
{
	struct shms_segrecord *record = shms_segment_record(&l->segment, holder);
	uint64_t state = shms_segword_load(&record->state);
	bool ours = false;

	if (state != SHMS_SEGRECORD_ACTIVE && state != SHMS_SEGRECORD_KEPT)
		return 0;
	if (shms_seglock_try(l->fd, holder) < 0) {
		ours = gone && memcmp(record->store_uuid, gone, sizeof(record->store_uuid)) == 0;
		/* No owner comes back: the first to find it unlocked recovers it. */
		if (ours)
			shms_segword_cas(&record->state, SHMS_SEGRECORD_KEPT,
					 SHMS_SEGRECORD_ACTIVE);
		return ours ? -EBUSY : 0;
	}
	/* Read again, under the lock: another process may have been quicker, and another store
	 * may have the place. */
	state = shms_segword_load(&record->state);
	ours = gone && memcmp(record->store_uuid, gone, sizeof(record->store_uuid)) == 0;
	if (state == SHMS_SEGRECORD_ACTIVE || state == SHMS_SEGRECORD_KEPT)
		shms_segrescue_locked(&l->segment, holder, state == SHMS_SEGRECORD_ACTIVE || ours);
	shms_seglock_end(l->fd, holder);
	return 0;
}

int shms_segrescue(struct shms_seglook *l, const uint8_t gone[16], uint64_t now_ms,
		   struct shms_segrescued *ret)
{
	struct shms_segrecord *owner = shms_segment_record(&l->segment, SHMS_SEG_OWNER);
	int r = 0, error;

	*ret = (struct shms_segrescued){0};
	for (unsigned h = 0; h < shms_segment_holders(&l->segment); h++) {
		error = rescue(l, h, gone);
		r = r < 0 ? r : error;
	}
	/* A free record is of a segment that is just being made. */
	if (shms_segword_load(&owner->state) == SHMS_SEGRECORD_FREE ||
	    shms_seglock_try(l->fd, SHMS_SEGLOCK_TRIM) < 0)
		return r;
	if (shms_seglock_try(l->fd, SHMS_SEG_OWNER) == 0) {
		/* Under the lock: nobody takes the place now. */
		uint64_t state = shms_segword_load(&owner->state);

		error = trim_ownerless(l, state == SHMS_SEGRECORD_KEPT, now_ms, &ret->freed);
		r = r < 0 ? r : error;
		shms_seglock_end(l->fd, SHMS_SEG_OWNER);
	}
	shms_seglock_end(l->fd, SHMS_SEGLOCK_TRIM);
	return r;
}

uint64_t shms_segrescue_name(int dirfd, const char *name, uint64_t now_ms)
{
	struct shms_segrescued done;
	struct shms_seglook l;

	if (shms_seglook_open(dirfd, name, true, &l) < 0)
		return 0;
	(void)shms_segrescue(&l, NULL, now_ms, &done);
	shms_seglook_close(&l);
	return done.freed;
}

uint32_t shms_segrescue_leases(struct shms_seglook *l, uint64_t now_ms)
{
	uint32_t n_slots = shms_segment_born(&l->segment), now = shms_segnow_of_ms(now_ms), n = 0;

	for (uint32_t i = 0; i < n_slots; i++) {
		struct shms_segslot slot = shms_segslot_at(&l->segment, i);

		n += shms_segslot_expire(&slot, now);
	}
	return n;
}

/* As rescue(), of a record in another user's segment. fd: of the file, to
 * write to. 0, -EBUSY, -errno. */
static int tell_gone(const struct shms_segment *g, int fd, unsigned holder, const uint8_t gone[16])
{
	off_t off = (uint8_t *)shms_segment_record(g, holder) - g->books;
	uint64_t kept = SHMS_SEGRECORD_KEPT, active = SHMS_SEGRECORD_ACTIVE;
	bool locked = shms_seglock_try(fd, holder) == 0;
	struct shms_segrecord record;
	ssize_t n = shms_pread_all(fd, &record, sizeof(record), (uint64_t)off);
	bool ours = n == (ssize_t)sizeof(record) &&
		    memcmp(record.store_uuid, gone, sizeof(record.store_uuid)) == 0;
	int r = 0;

	/* One byte changes: nobody reads half of it. */
	if (ours && shms_segword_is(&record.state, UINT64_MAX, kept) &&
	    pwrite(fd, &active, sizeof(active), off) < 0)
		r = -errno;
	if (ours && !locked)
		r = -EBUSY;
	if (locked)
		shms_seglock_end(fd, holder);
	return r;
}

/*
 * In another user's segment: we are root. The file may be cut under a map, and no words of slots
 * can be changed without one. So the places of the store that is gone are told to be of nobody who
 * comes back, by a write. Its user's next process recovers them.
 */
static int tell_all_gone(const struct shms_seglook *l, int dirfd, const char *name,
			 const uint8_t gone[16])
{
	_fd_ int fd = shms_open_file(dirfd, name, O_RDWR);
	struct stat st;
	int r = 0, error;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_ino != l->inode)
		return -ENOENT;
	for (unsigned h = 0; h < shms_segment_holders(&l->segment); h++) {
		struct shms_segrecord *record = shms_segment_record(&l->segment, h);
		uint64_t state = shms_segword_load(&record->state);

		if ((state != SHMS_SEGRECORD_ACTIVE && state != SHMS_SEGRECORD_KEPT) ||
		    memcmp(record->store_uuid, gone, sizeof(record->store_uuid)) != 0)
			continue;
		error = tell_gone(&l->segment, fd, h, gone);
		r = r < 0 ? r : error;
	}
	return r;
}

int shms_segrescue_unlink(int dirfd, const char *name, const uint8_t gone[16], uint64_t now_ms,
			  bool end_leases, struct shms_segrescued *ret)
{
	struct shms_segrescued done = {0};
	struct shms_seglook l;
	struct stat st;
	int r = shms_seglook_open(dirfd, name, true, &l);
	bool others = r == -EPERM;
	uint32_t leases = 0;

	if (others)
		r = shms_seglook_open(dirfd, name, false, &l);
	if (r < 0)
		return r;
	/* Before free slots are taken back, with what ended leases are on them. */
	if (!others)
		leases = shms_segrescue_leases(&l, now_ms);
	r = others ? tell_all_gone(&l, dirfd, name, gone) : shms_segrescue(&l, gone, now_ms, &done);
	done.n_leases = leases;
	if (r == -EBUSY || (r == 0 && !end_leases && shms_segment_promised(&l.segment, now_ms)))
		r = 1;
	if (r == 0 && fstat(l.fd, &st) == 0 && unlinkat(dirfd, name, 0) == 0) {
		/* Punched blocks are no longer in st_blocks, so nothing counts twice. */
		if (st.st_nlink == 1)
			done.freed += shms_blocks(&st);
	}
	shms_seglook_close(&l);
	*ret = done;
	return r;
}
