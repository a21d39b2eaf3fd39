/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aside.h: a function that most calls do not need, kept out of the one that calls it. Inlined, its
 * locals would be part of that one's frame: an array of a page puts what is used around it on other
 * pages, and is touched by the check of the stack's end. A hand-over between two processes runs in
 * cold caches, where each page and line counts.
 */
#ifndef SHMS_ASIDE_H
#define SHMS_ASIDE_H

#define SHMS_ASIDE __attribute__((noinline))

#endif
