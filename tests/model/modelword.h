/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modelword.h: in place of the second half of segword.h, where SHMS_SEGMENT_MODEL is defined: the
 * words of a segment as the model of the machine has them (slotmodel.c). Its processes run
 * libshmstore/segment's own steps, compiled with this.
 */
#ifndef MODELWORD_H
#define MODELWORD_H

struct shms_segword {
	uint64_t value;
};

uint64_t shms_segword_load(struct shms_segword *w);
bool shms_segword_is(struct shms_segword *w, uint64_t part, uint64_t value);
uint64_t shms_segword_part(struct shms_segword *w, uint64_t part);
void shms_segword_store(struct shms_segword *w, uint64_t value);
bool shms_segword_cas(struct shms_segword *w, uint64_t expected, uint64_t value);
bool shms_segword_or(struct shms_segword *w, uint64_t bits);
bool shms_segword_clear(struct shms_segword *w, uint64_t bits);
void shms_segword_flip(struct shms_segword *w, uint64_t bits);
bool shms_segword_turn(unsigned *turn);

/* The model's accesses are in one order for all. */
static inline void shms_segword_fence(void)
{
}

static inline void shms_segword_look_again(void)
{
}

/* Of the description, which here says the same of each object. */
static inline uint64_t shms_segword_plain_load(struct shms_segword *w)
{
	return w->value;
}

static inline void shms_segword_plain_store(struct shms_segword *w, uint64_t value)
{
	w->value = value;
}

#endif
