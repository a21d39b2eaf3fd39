/* SPDX-License-Identifier: Apache-2.0 */
/* tierusers.h: the users of a partition's last survey, as the tier's plan wants them. */
#ifndef TIERUSERS_H
#define TIERUSERS_H

#include <stddef.h>
#include <stdint.h>

struct account;
struct tierwork_step;

/*
 * The users whose objects go first, and the bytes of each, to come down to low by need
 * bytes. To be freed by the caller; NULL, with *ret_n 0: the library finds whose by
 * itself, as there is no survey yet.
 */
struct tierwork_step *tierusers_steps(const struct account *a, uint64_t low, uint64_t need,
				      size_t *ret_n);

#endif
