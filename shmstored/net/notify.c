/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify.c: readiness, status and the watchdog. The watchdog is fed by the loop's own
 * timer at a third of the time allowed, and by nothing else: it says that events are
 * handled, not that the process exists.
 */
#include "notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>

#include "log.h"
#include "loop.h"

struct notify {
	struct loop *loop;
	struct loop_op op;
};

static void on_timer(UNUSED struct loop_op *op, int result, UNUSED unsigned flags)
{
	if (result >= 0)
		sd_notify(0, "WATCHDOG=1");
}

int notify_new(struct loop *l, struct notify **ret)
{
	struct notify *n = calloc(1, sizeof(*n));
	uint64_t timeout_us = 0;
	int r = n ? sd_watchdog_enabled(0, &timeout_us) : -ENOMEM;

	if (r > 0) {
		uint64_t interval_ns = timeout_us * 1000 / 3;

		n->op.fn = on_timer;
		r = loop_timer(l, &n->op, loop_clock(), interval_ns ? interval_ns : 1);
	}
	if (r < 0) {
		free(n);
		return r;
	}
	n->loop = l;
	*ret = n;
	return 0;
}

struct notify *notify_free(struct notify *n)
{
	if (n)
		loop_release(n->loop, &n->op, n);
	return NULL;
}

static void tell(const char *state, const char *status)
{
	int r = sd_notifyf(0, "%s\nSTATUS=%s", state, status);

	if (r < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.error = r),
			"the service manager could not be told: %s", status);
}

void notify_ready(size_t n_partitions)
{
	char status[64];

	snprintf(status, sizeof(status), "%zu partitions", n_partitions);
	tell("READY=1", status);
}

void notify_reloading(void)
{
	/* With the time: Type=notify-reload of systemd 253 wants it. */
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=Reading the configuration",
		   loop_clock() / 1000);
}

void notify_stopping(bool well)
{
	tell("STOPPING=1", well ? "ending in good order" : "failed");
}
