/* SPDX-License-Identifier: Apache-2.0 */
/*
 * enginejob.c: the way of a frame between memory and disk, a function for each event; engine.c says
 * which ways there are. Nothing in here waits.
 *
 * A run is over when nothing of it is open any more, neither slot nor operation; its job then waits
 * in e->over for its done to be called.
 */
#include "enginejob.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

#include "sys.h"
#include "transient.h"

/* ---- buffers --------------------------------------------------------------------------------- */

/*
 * A bitmap over one mapping; the lowest place that fits is taken, so that an engine with little to
 * do touches little memory.
 */

static unsigned units_of(size_t size)
{
	return (unsigned)((size + SHMS_ARENA_UNIT - 1) / SHMS_ARENA_UNIT);
}

static uint64_t mask_of(unsigned first, unsigned n)
{
	return ((UINT64_C(1) << n) - 1) << first;
}

int shms_arena_init(struct shms_arena *a, unsigned n_units, bool touched)
{
	size_t size = n_units * SHMS_ARENA_UNIT;
	/* The disk may be writing to it while the process forks. */
	void *memory = shms_map_ours(size, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	*a = (struct shms_arena){0};
	if (memory == MAP_FAILED)
		return -ENOMEM;
	if (touched)
		madvise(memory, size, MADV_HUGEPAGE); /* as well without */
	a->memory = memory;
	a->size = size;
	return 0;
}

void shms_arena_deinit(struct shms_arena *a, bool inherited)
{
	if (a->memory && !inherited)
		munmap(a->memory, a->size);
	*a = (struct shms_arena){0};
}

/* Aligned for O_DIRECT; NULL: not so much in one piece now. size > 0. */
static void *arena_take(struct shms_arena *a, size_t size)
{
	unsigned n = units_of(size), n_units = (unsigned)(a->size / SHMS_ARENA_UNIT);

	for (unsigned first = 0; first + n <= n_units; first++) {
		if (a->taken & mask_of(first, n))
			continue;
		a->taken |= mask_of(first, n);
		return a->memory + first * SHMS_ARENA_UNIT;
	}
	return NULL;
}

static void free_units(struct shms_arena *a, const void *bytes, unsigned skip, unsigned n)
{
	unsigned first =
		(unsigned)((size_t)((const unsigned char *)bytes - a->memory) / SHMS_ARENA_UNIT) +
		skip;

	a->taken &= ~mask_of(first, n);
}

/* Of what was taken with that size. */
static void arena_give(struct shms_arena *a, const void *bytes, size_t size)
{
	free_units(a, bytes, 0, units_of(size));
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* The first failure is the one that is told; frames that have not started are not started any more.
 * what: "frame 3 is damaged", or what cannot be done, which error then says why. */
static void fail(struct shms_run *run, int error, const char *what, const uint32_t *frame)
{
	struct shms_job *job = run->job;

	if (job->error)
		return;
	job->error = error == -EDQUOT ? -ENOSPC : shms_error(error);
	if (frame)
		snprintf(job->reason, sizeof(job->reason), "frame %u %s", *frame, what);
	else
		snprintf(job->reason, sizeof(job->reason), "%s: %s", what, strerror(-error));
}

static uint32_t n_frames(const struct shms_run *run)
{
	return run->job->header->sb->n_frames;
}

bool shms_run_started(const struct shms_run *run)
{
	return run->job->error || run->started == n_frames(run);
}

/* slot: whose it is; NULL: the run's own. */
static void submit(struct shms_engine *e, struct shms_run *run, struct shms_slot *slot,
		   struct shms_ring_op op)
{
	struct shms_io *io = slot ? &slot->io : &run->io;

	*io = (struct shms_io){.op = op, .run = run, .slot = slot};
	io->op.fd = run->job->tier_fd;
	shms_ring_submit(&e->ring, &io->op);
}

/* Writes the header after the frames, then syncs. True: nothing is left to do. */
static bool finish_file(struct shms_engine *e, struct shms_run *run)
{
	struct shms_job *job = run->job;

	if (job->error || run->load)
		return !run->n_open && shms_run_started(run);
	if (!run->header && run->placed == n_frames(run)) {
		run->header = true;
		shms_tier_header_finish(job->header);
		run->n_open++;
		submit(e, run, NULL,
		       (struct shms_ring_op){.kind = SHMS_RING_WRITE,
					     .bytes = job->header->bytes,
					     .size = (size_t)job->header->sb->header_size});
		return false;
	}
	if (!run->header || run->n_open)
		return false;
	if (job->fsync && !run->synced) {
		run->synced = true;
		run->n_open++;
		submit(e, run, NULL, (struct shms_ring_op){.kind = SHMS_RING_FSYNC});
		return false;
	}
	return true;
}

static void look_after(struct shms_engine *e, struct shms_run *run)
{
	if (!finish_file(e, run))
		return;
	LL_DELETE(e->runs, run);
	LL_PREPEND(e->free_runs, run);
	run->job->state = NULL;
	if (e->over)
		e->last_over->state = run->job;
	else
		e->over = run->job;
	e->last_over = run->job;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void release(struct shms_engine *e, struct shms_slot *s)
{
	struct shms_run *run = s->run;

	if (s->work.bytes)
		arena_give(&e->arena, s->work.bytes, s->bytes_size);
	if (s->work.spare)
		arena_give(&e->arena, s->work.spare, s->bytes_size);
	LL_PREPEND(e->free, s);
	run->n_open--;
	look_after(e, run);
}

/* The unwritten buffer goes back to the arena, for the next frame. */
static void keep_only_packed(struct shms_engine *e, struct shms_slot *s)
{
	size_t padded = (size_t)shms_tier_pad(s->work.frame->stored);

	if (s->work.spare) {
		arena_give(&e->arena, s->work.at == s->work.bytes ? s->work.spare : s->work.bytes,
			   s->bytes_size);
		s->work.spare = NULL;
	}
	s->work.bytes = s->work.at;
	free_units(&e->arena, s->work.bytes, units_of(padded),
		   units_of(s->bytes_size) - units_of(padded));
	s->bytes_size = padded;
}

static void write_frame(struct shms_engine *e, struct shms_slot *s)
{
	struct shms_run *run = s->run;
	struct shms_tier_header *header = run->job->header;
	struct shms_ring_op op = {
		.kind = SHMS_RING_WRITE, .bytes = s->work.bytes, .size = s->bytes_size};

	op.offset = s->work.frame->offset = run->offset;
	run->offset += s->bytes_size;
	run->placed++;
	if (n_frames(run) == 1) {
		/* All there is: the header goes before it, in one write. */
		run->header = true;
		shms_tier_header_finish(header);
		op.head = header->bytes;
		op.head_size = (size_t)header->sb->header_size;
		op.offset = 0;
	}
	submit(e, run, s, op);
}

/* Packed: everything whose turn has come is written. */
static void packed(struct shms_engine *e, struct shms_slot *s)
{
	struct shms_run *run = s->run;
	struct shms_slot **at = &run->ready;

	keep_only_packed(e, s);
	LL_PREPEND(run->ready, s);
	while (*at) {
		struct shms_slot *found = *at;

		if (found->index != run->placed) {
			at = &found->next;
			continue;
		}
		*at = found->next;
		write_frame(e, found);
		at = &run->ready;
	}
	look_after(e, run);
}

/* A run that failed: what waits for a turn that will not come is let go. Another slot of it is
 * still open: it is not over yet. */
static void drop_ready(struct shms_engine *e, struct shms_run *run)
{
	struct shms_slot *s = run->ready, *next;

	run->ready = NULL;
	for (; s; s = next) {
		next = s->next;
		release(e, s);
	}
}

void shms_run_worked(struct shms_engine *e, struct shms_crew_task *task)
{
	struct shms_slot *s = (struct shms_slot *)(void *)task; /* its first member */
	struct shms_run *run = s->run;
	bool damage = s->work.error == -EBADMSG;

	if (s->work.error)
		fail(run, s->work.error, s->work.what, damage ? &s->index : NULL);
	if (run->load || run->job->error) {
		drop_ready(e, run);
		release(e, s);
	} else {
		packed(e, s);
	}
}

static void run_task(struct shms_crew_task *task, struct shms_tier_tools *tools)
{
	struct shms_slot *s = (struct shms_slot *)(void *)task; /* its first member */

	if (s->run->load)
		shms_tier_unpack(&s->work, tools);
	else
		shms_tier_pack(&s->work, tools);
}

static void give_to_crew(struct shms_engine *e, struct shms_slot *s)
{
	s->task.run = run_task;
	if (e->crew) {
		shms_crew_give(e->crew, &s->task);
		return;
	}
	run_task(&s->task, e->tools);
	shms_run_worked(e, &s->task);
}

/* An operation of the ring is over. */
void shms_run_came(struct shms_engine *e, struct shms_ring_op *op)
{
	struct shms_io *io = (struct shms_io *)(void *)op; /* its first member */
	struct shms_slot *s = io->slot;
	struct shms_run *run = io->run;

	if (op->result == -ENODATA)
		fail(run, -EBADMSG, "is cut short", &s->index);
	else if (op->result < 0)
		fail(run, op->result,
		     op->kind == SHMS_RING_READ    ? "the tier file cannot be read"
		     : op->kind == SHMS_RING_WRITE ? "the tier file cannot be written"
						   : "the tier file cannot be brought to the disk",
		     NULL);
	if (!s) {
		run->n_open--;
		look_after(e, run);
		return;
	}
	if (!run->load || run->job->error) {
		if (run->job->error)
			drop_ready(e, run);
		release(e, s);
		return;
	}
	give_to_crew(e, s);
}

/* Room in the arena and a slot for the next frame; NULL: not now. */
static struct shms_slot *take_slot(struct shms_engine *e, const struct shms_run *run,
				   const struct shms_tier_frame *f)
{
	size_t size = (size_t)shms_tier_pad(f->original);
	bool spare = run->load ? f->codec != SHMS_CODEC_RAW : run->job->header->sb->level > 0;
	struct shms_slot *s = e->free;

	if (!s)
		return NULL;
	s->work = (struct shms_tier_work){.bytes = arena_take(&e->arena, size)};
	if (!s->work.bytes)
		return NULL;
	s->work.spare = spare ? arena_take(&e->arena, size) : NULL;
	if (spare && !s->work.spare) {
		arena_give(&e->arena, s->work.bytes, size);
		return NULL;
	}
	s->bytes_size = size;
	e->free = s->next;
	s->next = NULL;
	return s;
}

bool shms_run_start_frame(struct shms_engine *e, struct shms_run *run)
{
	struct shms_job *job = run->job;
	struct shms_tier_frame *f = &job->header->frames[run->started];
	struct shms_slot *s = take_slot(e, run, f);

	if (!s)
		return false;
	s->run = run;
	s->index = run->started++;
	s->work.object_fd = job->object_fd;
	s->work.object_offset = (uint64_t)s->index * SHMS_TIER_FRAME;
	s->work.frame = f;
	s->work.level = job->header->sb->level;
	run->n_open++;
	if (!run->load) {
		give_to_crew(e, s);
		return true;
	}
	submit(e, run, s,
	       (struct shms_ring_op){.kind = SHMS_RING_READ,
				     .bytes = s->work.bytes,
				     .size = (size_t)shms_tier_pad(f->stored),
				     .offset = f->offset});
	return true;
}
