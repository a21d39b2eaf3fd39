/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h: what systemd is told (sd_notify(3)). Without $NOTIFY_SOCKET nothing happens. */
#ifndef NOTIFY_H
#define NOTIFY_H

#include <stdbool.h>
#include <stddef.h>

struct loop;
struct notify;

/* Feeds the watchdog, where there is one, from a timer of the loop: a stuck
 * loop starves it. 0, -errno. */
int notify_new(struct loop *l, struct notify **ret);
/* Before the loop ends or after. */
struct notify *notify_free(struct notify *n);

void notify_ready(size_t n_partitions);
void notify_reloading(void);
void notify_stopping(bool well);

#endif
