/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credit.c: charging against credit, and the store's own limit.
 *
 * A put charges, takes memory, settles. Short of credit it asks the daemon (attach.h), and
 * where there is none it goes on alone (alone.c); refused, it hands the refusal up, so
 * that the caller makes room of its own (room.h) and comes again, at last with
 * SHMS_CREDIT_WAIT. No lock is held meanwhile.
 *
 * The store's own limit needs no daemon: linked + pool + reserved of the ledger (the pool of files
 * and of segments), files out of the pool that are being written, and what puts under way will add.
 * Moving bytes are in two sums for a moment, so at the very limit a put beside them may be refused,
 * but none is admitted wrongly: bytes are added before they are taken off, sums are read in the
 * order of the moves, and recycle.h holds the pool, which also orders bookings.
 *
 * Killed between charge and settle: outstanding ends with the store's life. Killed between the
 * memory and settle: the kernel counts it, and so does outstanding, for as long as the dead store
 * is not noticed: never too little.
 */
#include "credit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "attach.h"
#include "detail.h"
#include "handle.h"
#include "sys.h"

#define MS         1000000ull
/* between looks at what no message tells: our own limit, and those of stores that are alone */
#define POLL_NS    (5 * MS)
#define GRANTS_MAX 64 /* grants in a row that other threads, or a liar, leave nothing of */

/* Its epoch is always 0. */
static struct wire_credit nobodys;

void shms_credit_off(struct shmstore *s)
{
	s->credit = &nobodys;
}

uint64_t shms_credit_cost(const struct shmstore *s, uint64_t size)
{
	uint64_t unit = strcmp(s->p->huge, "always") == 0 ? SHMS_HUGE_PAGE : shms_host_page();

	return (size + unit - 1) & ~(unit - 1);
}

/* Books add bytes under a limit. 0, -EDQUOT. */
static int take_under(struct shmstore *s, uint64_t hard, uint64_t add, struct shms_charge *io)
{
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t sum = shms_recycle_hold(s) + add;

	/* Bytes go between the pool of segments and linked under the pack's lock. */
	sum += pack ? shms_pack_hold(pack) : 0;
	/* Acquire: pairs with end_own() and the end of a reservation (writer.c). Bytes
	 * that left are linked by then. */
	sum += atomic_load_explicit(&shms_handle(s)->credit.writing, memory_order_acquire);
	sum += atomic_load_explicit(&s->ledger->reserved_bytes, memory_order_acquire);
	sum += shms_page_linked(s->page);
	if (sum <= hard) {
		atomic_fetch_add_explicit(&shms_handle(s)->credit.writing, add,
					  memory_order_relaxed);
		io->writing = add;
	}
	if (pack)
		shms_pack_release(pack);
	shms_recycle_release(s);
	if (sum <= hard)
		return 0;
	return shms_detail(-EDQUOT, NULL,
			   "the limit of store %s is used up: %" PRIu64 " of %" PRIu64
			   " bytes are in use and %" PRIu64 " more were asked for",
			   s->path, sum - add, hard, add);
}

/* Books n bytes under the store's limit, where it has one. 0, -EDQUOT. */
static int take_own(struct shmstore *s, uint64_t n, unsigned flags, struct shms_charge *io)
{
	uint64_t hard = atomic_load_explicit(&s->credit->store_hard, memory_order_relaxed);

	return hard ? take_under(s, hard, flags & SHMS_CREDIT_RESERVED ? 0 : n, io) : 0;
}

static void end_own(struct shmstore *s, struct shms_charge *io)
{
	/* Release: pairs with take_under(). */
	if (io->writing)
		atomic_fetch_sub_explicit(&shms_handle(s)->credit.writing, io->writing,
					  memory_order_release);
	io->writing = 0;
}

/* Asks the daemon. 0: try again; -ENOSPC, -EDQUOT, -ETIMEDOUT: its answer; -ENOTCONN: none. */
static int ask_daemon(struct shmstore *s, uint64_t n, uint64_t wait_ms)
{
	struct wire_grant grant = {
		.need = n,
		.ahead = atomic_load_explicit(&s->credit->credit, memory_order_relaxed),
		.timeout_ms = wait_ms,
		.flags = wait_ms ? WIRE_GRANT_WAIT : 0,
	};
	struct shms_call call = {
		.type = WIRE_GRANT, .answer = WIRE_GRANTED, .body = &grant, .timeout_ms = wait_ms};
	struct shms_reply reply;
	int r;

	if (n > WIRE_GRANT_MAX)
		return -ENOSPC;
	r = shms_attach_call(shms_attach_of(s), &call, &reply);
	if (r < 0 || reply.type == WIRE_GRANTED)
		return r;
	switch (reply.body.refused.error) {
	case -ENOSPC:
	case -EDQUOT:
	case -ETIMEDOUT:
		return shms_detail(reply.body.refused.error, NULL, "%s", reply.tail);
	default:
		return -ENOTCONN; /* too many of us wait, or it does not know us any more */
	}
}

/* One attempt, with as many grants as it takes. 0 or the refusal. */
static int take_once(struct shmstore *s, uint64_t n, unsigned flags, uint64_t wait_ms,
		     struct shms_charge *io)
{
	struct wire_credit *c = s->credit;
	int r = take_own(s, n, flags, io);

	for (int i = 0; r == 0; i++) {
		if (wire_credit_charge(c, n)) {
			io->bytes = n;
			return 0;
		}
		r = i < GRANTS_MAX ? ask_daemon(s, n, wait_ms) : shms_alone_refusal(s);
		if (r == -ENOTCONN)
			r = shms_alone_grant(s, n);
	}
	end_own(s, io);
	return r;
}

static int take_waiting(struct shmstore *s, uint64_t n, unsigned flags, struct shms_charge *io)
{
	uint64_t now = shms_now_mono_ns(), end, asked = now;
	uint64_t wait_ms = shms_handle(s)->credit.wait_ms;
	char why[400];
	int r;

	end = now + (wait_ms < UINT64_MAX / MS / 2 ? wait_ms * MS : UINT64_MAX / 2);
	atomic_fetch_add_explicit(&shms_handle(s)->credit.n_waiting, 1, memory_order_relaxed);
	for (;;) {
		/* At least 1: 0 is not to wait. */
		r = take_once(s, n, flags, (end - now) / MS + 1, io);
		now = shms_now_mono_ns();
		if ((r != -ENOSPC && r != -EDQUOT) || now >= end)
			break;
		shms_recycle_trim(s);
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
		now = shms_now_mono_ns();
		if (now >= end)
			break;
		if (now - asked < SHMS_INTERRUPT_NS)
			continue;
		if (shms_interrupted()) {
			r = -ECANCELED;
			break;
		}
		asked = now;
	}
	atomic_fetch_sub_explicit(&shms_handle(s)->credit.n_waiting, 1, memory_order_relaxed);
	if (r != -ENOSPC && r != -EDQUOT)
		return r;
	snprintf(why, sizeof(why), "%s", shmstore_error_detail());
	return shms_detail(-ETIMEDOUT, NULL, "no room came in %" PRIu64 " ms: %s", wait_ms, why);
}

int shms_credit_take_counted(struct shmstore *s, uint64_t size, unsigned flags,
			     struct shms_charge *ret)
{
	uint64_t n = shms_credit_cost(s, size);

	return flags & SHMS_CREDIT_WAIT ? take_waiting(s, n, flags, ret)
					: take_once(s, n, flags, 0, ret);
}

void shms_credit_end_counted(struct shmstore *s, const struct shms_charge *charge, uint64_t taken)
{
	struct shms_charge own = *charge;

	if (taken)
		wire_credit_settle(s->credit, charge->bytes,
				   taken < charge->bytes ? taken : charge->bytes);
	else
		wire_credit_uncharge(s->credit, charge->bytes);
	end_own(s, &own);
}

bool shms_credit_has(const struct shmstore *s, uint64_t size)
{
	struct wire_credit *c = s->credit;
	uint64_t granted = atomic_load_explicit(&c->granted, memory_order_relaxed);
	uint64_t charged = atomic_load_explicit(&c->charged, memory_order_relaxed);

	return !shms_credit_counted(s) ||
	       (charged <= granted && shms_credit_cost(s, size) <= granted - charged);
}

int shms_credit_take_linked(struct shmstore *s, uint64_t bytes, struct shms_charge *ret)
{
	int r;

	*ret = (struct shms_charge){0};
	if (!shms_credit_counted(s))
		return 0;
	r = take_own(s, bytes, 0, ret);
	if (r < 0 && shms_recycle_trim(s))
		r = take_own(s, bytes, 0, ret);
	return r;
}

/* ---- what goes back ---- */

void shms_credit_gave(struct shmstore *s, uint64_t bytes)
{
	struct wire_credit *c = s->credit;

	if (!bytes || !shms_credit_counted(s))
		return;
	atomic_fetch_add_explicit(&c->last, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->given_bytes, bytes, memory_order_relaxed);
}

bool shms_credit_counts_last(const struct shmstore *s)
{
	const struct wire_credit *c = s->credit;

	return shms_credit_counted(s) &&
	       ((atomic_load_explicit(&c->flags, memory_order_relaxed) & WIRE_CREDIT_LAST) ||
		atomic_load_explicit(&c->asked_bytes, memory_order_relaxed));
}

uint64_t shms_credit_freed_by(const struct shmstore *s, int dir_fd, const char *name)
{
	struct stat st;

	return shms_credit_counts_last(s) &&
			       fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) ==
				       0 &&
			       st.st_nlink == 1
		       ? shms_blocks(&st)
		       : 0;
}

/* ---- what is asked for ---- */

/* Of what was asked for: how much is still owed. */
static uint64_t owed(struct shmstore *s)
{
	struct shms_credit *k = &shms_handle(s)->credit;
	uint64_t n = atomic_load_explicit(&s->credit->asked_n, memory_order_acquire);
	uint64_t asked = atomic_load_explicit(&s->credit->asked_bytes, memory_order_relaxed), given;

	if (!n || !asked)
		return 0;
	if (n != atomic_load_explicit(&k->ask_n, memory_order_relaxed)) {
		given = atomic_load_explicit(&s->credit->given_bytes, memory_order_relaxed);
		atomic_store_explicit(&k->ask_base, given, memory_order_relaxed);
		/* Release: who sees the number (relaxed, as one of our own threads) at worst
		 * counts from an older base once. */
		atomic_store_explicit(&k->ask_n, n, memory_order_release);
	}
	given = atomic_load_explicit(&s->credit->given_bytes, memory_order_relaxed) -
		atomic_load_explicit(&k->ask_base, memory_order_relaxed);
	return given < asked ? asked - given : 0;
}

uint64_t shms_credit_tightest(const struct shmstore *s)
{
	const struct wire_credit *c = s->credit;
	const _Atomic uint64_t *limits[] = {&c->partition_hard, &c->user_hard, &c->label_hard};
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < 3 && shms_credit_counted(s); i++) {
		uint64_t limit = atomic_load_explicit(limits[i], memory_order_relaxed);

		least = limit && limit < least ? limit : least;
	}
	return least;
}

bool shms_credit_pressed(struct shmstore *s)
{
	return shms_credit_counted(s) &&
	       (atomic_load_explicit(&shms_handle(s)->credit.n_waiting, memory_order_relaxed) ||
		owed(s));
}

int shmstore_asked(struct shmstore *s, uint64_t *ret_bytes)
{
	if (!ret_bytes)
		return shms_detail_null("ret_bytes");
	*ret_bytes = shms_credit_counted(s) ? owed(s) : 0;
	return atomic_load_explicit(&shms_attach_of(s)->epoch, memory_order_relaxed) != 0;
}

void shms_credit_tend_counted(struct shmstore *s)
{
	struct wire_credit *c = s->credit;
	uint64_t n = atomic_load_explicit(&c->asked_n, memory_order_relaxed);

	if (atomic_load_explicit(&c->epoch, memory_order_relaxed) !=
	    atomic_load_explicit(&shms_attach_of(s)->epoch, memory_order_relaxed))
		shms_attach_again(shms_attach_of(s));
	if (n != atomic_load_explicit(&c->given_n, memory_order_relaxed)) {
		if (owed(s))
			shms_recycle_trim(s);
		atomic_store_explicit(&c->given_n, n, memory_order_release);
	}
}
