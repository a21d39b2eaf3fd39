/* SPDX-License-Identifier: Apache-2.0 */
/* stalled.h: a page whose first writer waits, also in the middle of a system call that writes to
 * it, until it is let go. By userfaultfd. */
#ifndef SHMSTORE_TEST_STALLED_H
#define SHMSTORE_TEST_STALLED_H

#include <stdbool.h>

#define STALLED_PAGE 4096u

struct stalled {
	int faults;
	void *page;
};

/* False: we may not use userfaultfd. */
bool stalled_init(struct stalled *s);
/* Returns when somebody waits. */
void stalled_await(const struct stalled *s);
void stalled_let_go(const struct stalled *s);
void stalled_deinit(struct stalled *s);

#endif
