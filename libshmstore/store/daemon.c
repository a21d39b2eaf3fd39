/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.c: a store's daemon, from the store's side: the first meeting at open, and what
 * a program's event loop needs.
 *
 * The connection itself (attach.h) knows no store. Here the store tells it where it lies, makes its
 * credit count, and where the daemon is dead takes over the limits that the daemon had set.
 */
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdlib.h>
#include <string.h>

#include "credit.h"
#include "detail.h"
#include "handle.h"
#include "packgive.h"
#include "parts.h"
#include "socketpath.h"

#define GIVE_NS 100000000ull /* for which an event loop demotes what others ask for */

/* The store requires a daemon, and there is none: where it was looked for, and why it was not
 * had. */
static int no_daemon(const struct shmstore *s)
{
	int error = shms_attach_of(s)->error;
	const char *why = error == -ENOENT         ? "there is no such socket"
			  : error == -ECONNREFUSED ? "nobody listens there"
			  : error                  ? strerror(-error)
				  : "whoever listens there did not register the store";
	char path[SHMS_SOCKET_PATH];

	if (shms_socket_path(NULL, s->p->path, path) < 0)
		return shms_detail(-ETIMEDOUT, NULL,
				   "%s requires a daemon, and $SHMSTORE_SOCKET is too long; a "
				   "socket's path has %d bytes at most",
				   s->path, SHMS_SOCKET_PATH - 1);
	return shms_detail(-ETIMEDOUT, path,
			   "%s requires a daemon, and none is to be had at %s: %s; start "
			   "shmstored, or set SHMSTORE_SOCKET to its socket, of %d bytes at most",
			   s->path, path, why, SHMS_SOCKET_PATH - 1);
}

int shms_daemon_open(struct shmstore *s, unsigned mode)
{
	const char *word = mode == SHMSTORE_DAEMON_AUTO ? getenv("SHMSTORE_DAEMON") : NULL;
	int r;

	shms_attach_of(s)->hooks = shms_running_hooks(&shms_handle(s)->running);
	shms_attach_of(s)->place =
		(struct shms_attach_place){s->p->path, s->p->uuid, s->path, &s->page->credit};
	if (mode == SHMSTORE_DAEMON_OFF || (word && strcmp(word, "off") == 0))
		return 0;
	if (word && strcmp(word, "required") == 0)
		mode = SHMSTORE_DAEMON_REQUIRED;
	s->credit = &s->page->credit; /* it counts from here on */
	r = shms_attach_open(shms_attach_of(s), mode == SHMSTORE_DAEMON_REQUIRED);
	/* The socket of a daemon that is dead, or dying: its limits are in force still. */
	if (r == -ETIMEDOUT)
		shms_alone_inherit(s);
	return r == 0 || mode == SHMSTORE_DAEMON_AUTO ? 0 : no_daemon(s);
}

int shmstore_daemon_fd(struct shmstore *s)
{
	int r = shms_attach_fd(shms_attach_of(s));

	return r == -ENOENT ? shms_detail(r, NULL,
					  "%s is not registered with a daemon: none runs, or it is "
					  "not wanted",
					  s->path)
			    : r;
}

int shmstore_daemon_dispatch(struct shmstore *s)
{
	int r = shms_attach_again(shms_attach_of(s));

	shms_packgive_for(s, GIVE_NS);
	return r;
}
