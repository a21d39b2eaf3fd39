/* SPDX-License-Identifier: Apache-2.0 */
/* arbcheck.h: whether all holds in the arbiter's core that must hold between two steps. */
#ifndef ARBCHECK_H
#define ARBCHECK_H

struct arb;

/* Looks at everything anew, from the bottom: slow. NULL: it holds; else a static sentence. */
const char *arb_check(const struct arb *a);

#endif
