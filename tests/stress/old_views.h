/* SPDX-License-Identifier: Apache-2.0 */
/*
 * old_views.h: what the parts of the recycling test share. A churner puts and deletes under few keys, so that files are
 * recycled all the time; holders of every kind keep what they see for a moment and look at it again, and again.
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
	OV_LINKED,   /* adopted objects that nobody has a view of: only the link says that they are held */
	OV_OPEN,     /* open(2) by hand, descriptor kept, read again */
	OV_PATH,     /* open(2) with O_PATH, opened again through /proc/self/fd, mapped, all descriptors closed */
	OV_MAPPED,   /* open(2) and mmap(2) by hand, descriptor closed */
	OV_N_KINDS,
};

struct ov_shared {
	_Atomic bool stop;
	_Atomic uint64_t n_puts, n_recycled, n_aliased;
	_Atomic uint64_t n_held[OV_N_KINDS];    /* times something was taken hold of */
	_Atomic uint64_t n_looked[OV_N_KINDS];  /* times it was looked at again */
	_Atomic uint64_t n_changed[OV_N_KINDS]; /* times it had changed */
	_Atomic uint64_t n_torn[OV_N_KINDS];    /* times it was not whole at the first look */
	_Atomic bool failed;
	char message[512];
};

struct ov {
	const char *partition; /* its path */
	struct ov_shared *shared;
	int tickets[2]; /* socket pair: struct ov_mail from the churner to the adopter */
};

struct ov_mail {
	struct shmstore_ticket ticket;
	uint64_t seed;
};

extern const char *const ov_kind_name[OV_N_KINDS];

__attribute__((format(printf, 2, 3))) void ov_fail(struct ov *o, const char *format, ...);
/* Books one look at something of kind that is expected to have that seed. first: the look with which it was taken hold of. */
void ov_looked(struct ov *o, enum ov_kind kind, bool first, const char *why, uint64_t seed, uint64_t expected);
/* A small random number; own state. */
unsigned ov_random(uint64_t *x, unsigned n);
/* The name of a key, which is also its file's. */
void ov_key(unsigned i, char ret[16]);

/* The holders that are processes. None returns before stop. */
void ov_hold_readonly(struct ov *o, uint64_t random);
void ov_hold_adopted(struct ov *o, uint64_t random);
void ov_hold_by_hand(struct ov *o, uint64_t random);

#endif
