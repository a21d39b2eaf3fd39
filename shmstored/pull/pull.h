/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull.h: which bundles of objects may be fetched now, from a peer or from the disk, into memory that is short. Pure: sizes and messages in,
 * the set of active bundles out; no clock, no I/O.
 *
 * A bundle is what one caller waits for together. The callers' reasons rank: GET (a task that runs waits for it), WAIT (it asked whether it is
 * there), ARGS (a task that has not begun needs it). Within a rank the first comes first, and nobody is passed over because it is large. A
 * bundle is considered when the sizes of all its objects are known; an object that several want counts once.
 *
 *   left = available - bytes of the objects of active bundles + those of them that are here and pinned (available knows these)
 *
 * ARGS and WAIT respect what is left. A GET puts off the newest ARGS, then the newest WAIT, until it fits, and is let through also where
 * it still does not: without bound in mode FIRST, as in Ray; up to reserve bytes in mode HOST, and then it waits. Whatever the quota, one
 * bundle is active if there is one that can be.
 */
#ifndef PULL_H
#define PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PULL_UNKNOWN UINT64_MAX
#define PULL_MOST    (UINT64_C(1) << 62) /* bytes of all objects together */

enum pull_rank {
	PULL_GET,
	PULL_WAIT,
	PULL_ARGS
};

enum pull_mode {
	PULL_FIRST,
	PULL_HOST
};

struct pull_config {
	enum pull_mode mode;
	uint64_t reserve; /* in mode HOST: what GETs may take beyond what is left */
};

struct pull_object {
	uint64_t id, bytes; /* PULL_UNKNOWN: nobody knows yet */
};

/* Told at the end of a call that changed the set: first those that were put off, then those that may begin. */
typedef void pull_changed(void *arg, uint64_t bundle, bool active);

struct pull;

/* NULL: no memory. changed may be NULL. It must not call back. */
struct pull *pull_new(const struct pull_config *config, pull_changed *changed, void *arg);
/* Returns NULL. */
struct pull *pull_free(struct pull *p);

void pull_available(struct pull *p, uint64_t bytes);
/* An object's size is what was said of it first. Return: 0; -EEXIST: the bundle is there; -EOVERFLOW: beyond PULL_MOST; -ENOMEM. */
int pull_add(struct pull *p, uint64_t bundle, enum pull_rank rank, const struct pull_object *objects, size_t n);
/* Return: 0; -ENOENT: no bundle wants it; -EALREADY: it is known; -EOVERFLOW. */
int pull_size(struct pull *p, uint64_t object, uint64_t bytes);
/* It is done, or nobody wants it any more. Return: 0; -ENOENT. */
int pull_cancel(struct pull *p, uint64_t bundle);
/* The object is here and stays (or does so no more). Return: 0; -ENOENT. */
int pull_pin(struct pull *p, uint64_t object, bool pinned);

bool pull_is_active(const struct pull *p, uint64_t bundle);
uint32_t pull_n_active(const struct pull *p);
/* Of active bundles, each object once, without what is pinned. */
uint64_t pull_bytes(const struct pull *p);

#endif
