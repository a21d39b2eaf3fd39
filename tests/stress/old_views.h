/* SPDX-License-Identifier: Apache-2.0 */
/*
 * old_views.h: what the parts of the recycling test share. A churner puts and deletes under few
 * keys, so that files are recycled all the time; holders of every kind keep what they see for a
 * moment and look at it again, and again. With stores that pack it is slots and pages of
 * segments that are used again.
 */
#ifndef OLD_VIEWS_H
#define OLD_VIEWS_H

#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "content.h"

#define OV_KEYS 6u
#define OV_RING 6u

enum ov_kind {
	OV_SAME,     /* read-only views in the churner's process, taken by the churner */
	OV_COW,      /* copy-on-write views there, written to in part */
	OV_THREAD,   /* views taken by other threads there while the churner deletes and puts */
	OV_FORKED,   /* views that a forked child kept after its parent dropped them */
	OV_READONLY, /* views of a SHMSTORE_OPEN_READONLY handle in another process */
	OV_ADOPTED,  /* views of adopted objects in another process, whose key is deleted */
	/* adopted objects that nobody has a view of: only the link, or the
	 * name, says that they are held */
	OV_LINKED,
	OV_STOPPED,  /* packed: views of processes that are stopped meanwhile */
	OV_ORPHANED, /* packed: views that a child has of a parent that was killed */
	OV_OPEN,     /* files, from here: open(2) by hand, descriptor kept, read again */
	/* open(2) with O_PATH, opened again through /proc/self/fd, mapped, all descriptors
	 * closed */
	OV_PATH,
	OV_MAPPED, /* open(2) and mmap(2) by hand, descriptor closed */
	OV_N_KINDS,
};

struct ov_shared {
	_Atomic bool stop;
	_Atomic uint64_t n_puts, n_recycled, n_aliased;
	_Atomic uint64_t n_packed, n_put_bytes; /* objects that were found packed; of buffers */
	_Atomic uint32_t n_orphans;             /* processes */
	_Atomic uint64_t n_held[OV_N_KINDS];    /* times something was taken hold of */
	_Atomic uint64_t n_looked[OV_N_KINDS];  /* times it was looked at again */
	_Atomic uint64_t n_changed[OV_N_KINDS]; /* times it had changed */
	_Atomic uint64_t n_torn[OV_N_KINDS];    /* times it was not whole at the first look */
	_Atomic bool failed;
	char message[512];
};

struct ov {
	const char *partition; /* its path */
	uint64_t pack_max;     /* of all stores; 0: each object is a file */
	struct ov_shared *shared;
	int tickets[2]; /* socket pair: struct ov_mail from the churner to the adopter */
};

struct ov_mail {
	struct shmstore_ticket ticket;
	char key[16]; /* of the donor */
	uint64_t seed;
};

extern const char *const ov_kind_name[OV_N_KINDS];

__attribute__((format(printf, 2, 3))) void ov_fail(struct ov *o, const char *format, ...);
/* Books one look at something of kind that is expected to have that seed. first: the look with
 * which it was taken hold of. */
void ov_looked(struct ov *o, enum ov_kind kind, bool first, const char *why, uint64_t seed,
	       uint64_t expected);
/* A small random number; own state. */
unsigned ov_random(uint64_t *x, unsigned n);
/* Opens a store for a holder. NULL: it has failed. */
struct shmstore *ov_open(struct ov *o, const char *name, unsigned flags);
/* A breath, so that the churner gets through: a load, not a wait. */
void ov_breathe(uint64_t *random);
/* The name of a key, which is also its file's. */
void ov_key(unsigned i, char ret[16]);

/* Sends the object to whoever takes it, unless too many tickets are on their way. */
void ov_send_ticket(struct ov *o, struct shmstore *s, const char *key, uint64_t seed);
/* Waits a millisecond for a ticket. */
bool ov_receive(struct ov *o, struct ov_mail *ret);
/* Takes its object under key, which is replaced. False: there is none. */
bool ov_adopt(struct ov *o, struct shmstore *s, const char *key, const struct ov_mail *mail);

/* A view that is held. */
struct ov_view {
	struct shmstore_view *v;
	uint64_t seed;
};
/* Takes the place of the view in a slot of a ring. */
void ov_hold(struct ov *o, enum ov_kind kind, struct ov_view *slot, struct shmstore_view *v);
void ov_look(struct ov *o, enum ov_kind kind, const struct ov_view *h);

/* The holders that are processes. None returns before stop. */
void ov_hold_readonly(struct ov *o, uint64_t random);
void ov_hold_adopted(struct ov *o, uint64_t random);
void ov_hold_by_hand(struct ov *o, uint64_t random);
/* Processes that are stopped for a while, and in the end killed; they leave children. */
void ov_hold_mortal(struct ov *o, uint64_t random);

#endif
