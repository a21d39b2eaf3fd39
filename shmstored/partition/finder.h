/* SPDX-License-Identifier: Apache-2.0 */
/* finder.h: notices stores that come and go in stores/ without a word to us. */
#ifndef FINDER_H
#define FINDER_H

struct account;

/* Watches a's stores/; sets a->finder. Before the first scan, so that nothing falls in between. 0, -errno: only surveys find them then. */
int finder_open(struct account *a);
void finder_close(struct account *a);

#endif
