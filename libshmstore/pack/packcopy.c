/* SPDX-License-Identifier: Apache-2.0 */
/* packcopy.c: see packcopy.h. A slot is read as packlook.c does it. */
#include "packcopy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "packticket.h"
#include "seglook.h"
#include "segown.h"
#include "sys.h"

#define TURNS 1000 /* of a loop around a cas, as in segshare.c */

_Static_assert(sizeof(((struct shms_packcopy *)0)->sizes) == SHMS_SEGOWN_BUFFERS * sizeof(uint64_t), "sizes");

/* Opens the donor's link. */
static int open_link(int root_fd, const struct shms_packticket *t, bool write, struct shms_seglook *ret)
{
	char link[SHMS_PACK_TICKET];
	const char *name = shms_packticket_link(t, link);
	int r;

	link[name - link - 1] = '\0';
	_fd_ int fd = shms_open_beneath(root_fd, link, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR ? -ESTALE : fd;
	r = write ? shms_seglook_open(fd, name, true, ret) : shms_seglook_open_slot(fd, name, t->what.slot, ret);
	if (r == 0 && write && t->what.slot >= shms_segment_born(&ret->segment)) {
		shms_seglook_close(ret);
		r = -EBADMSG;
	}
	return r == -ENOENT ? -ESTALE : r;
}

static bool stands(uint64_t state, const struct shms_segticket *t)
{
	return shms_segstate_published(state) && shms_segstate_generation(state) == t->generation &&
	       (state & shms_segstate_lease(t->lease));
}

static int read_slot(const struct shms_seglook *l, const struct shms_segticket *t, struct shms_packcopy *ret)
{
	struct shms_segslot slot = shms_segslot_at(&l->segment, t->slot);
	int r;

	if (!stands(shms_segword_load(slot.state), t))
		return -ESTALE;
	r = shms_segpacked_read(&l->segment, &slot, &ret->object);
	if (r == 0 && ret->object.n_buffers > SHMS_SEGOWN_BUFFERS)
		r = -EBADMSG;
	if (r < 0)
		return r;
	ret->extent = malloc(ret->object.used + 1);
	if (!ret->extent)
		return -ENOMEM;
	r = shms_seglook_read(l, ret->object.extent_off, ret->extent, ret->object.used);
	/* Where the lease stands after that, it kept the slot as it was. */
	if (r == 0)
		r = shms_seglook_again(l, t->slot);
	if (r < 0)
		return r;
	if (!stands(shms_segword_load(slot.state), t))
		return -ESTALE;
	ret->object.extent_off = 0;
	return shms_segpacked_sizes(&(struct shms_segment){.bytes = ret->extent}, &ret->object, ret->sizes);
}

int shms_packcopy_read(int root_fd, const struct shms_packticket *t, uint64_t now_ms, struct shms_packcopy *ret)
{
	struct shms_packcopy copy = {.extent = NULL};
	struct shms_seglook l;
	int r = t->what.end_ms <= now_ms ? -ESTALE : open_link(root_fd, t, false, &l);

	if (r < 0)
		return r;
	r = read_slot(&l, &t->what, &copy);
	shms_seglook_close(&l);
	if (r < 0)
		free(copy.extent);
	else
		*ret = copy;
	return r;
}

int shms_packcopy_end(int root_fd, const struct shms_packticket *t)
{
	struct shms_segslot slot;
	struct shms_seglook l;
	int r = open_link(root_fd, t, true, &l);

	if (r < 0)
		return r;
	slot = shms_segslot_at(&l.segment, t->what.slot);
	r = -EBADMSG;
	for (int i = 0; i < TURNS && r == -EBADMSG; i++) {
		uint64_t state = shms_segword_load(slot.state);

		if (!stands(state, &t->what))
			r = -ESTALE;
		else if (shms_segword_cas(slot.state, state, shms_segstate_unleased(state, t->what.lease)))
			r = 0;
	}
	/* Nobody else tells the owner. */
	if (r == 0)
		shms_segment_hint(&l.segment, t->what.slot);
	shms_seglook_close(&l);
	return r;
}
