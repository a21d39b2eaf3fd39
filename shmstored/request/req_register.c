/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_register.c: REGISTER: a process says which store is its own. The claim is checked: the store lives in a partition of ours,
 * its page belongs to the user at the socket's end (or that is root), and names the process there, in its own pid namespace.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "account.h"
#include "dispatch.h"
#include "host.h"
#include "member.h"
#include "owner.h"

static int refuse(struct conn *c, uint64_t serial, int error)
{
	const char *why = "the store cannot be watched";

	switch (error) {
	case -ENOENT:
		why = "there is no live store there: register after it was opened";
		break;
	case -EPERM:
		why = "the store belongs to another user, or lies outside the partition";
		break;
	case -EBADMSG:
	case -ENOTSUP:
		why = "its page is not one of ours";
		break;
	case -EMFILE:
	case -ENOMEM:
		why = "the daemon is out of descriptors or memory";
		break;
	default:
		break;
	}
	return conn_refuse(c, serial, error, WIRE_LIMIT_NONE, 0, 0, "%s", why);
}

/* Is the process at the socket's end the one that the page names? A pid of 0: it is in a pid namespace that we do not see. */
static bool is_its_owner(const struct member *m, const struct conn_peer *peer)
{
	return peer->pid <= 0 || owner_is(peer->pid, m->pid);
}

DISPATCH_HANDLER(register)
{
	const struct conn_peer *peer = conn_peer(c);
	uid_t wanted = peer->uid == 0 ? (uid_t)-1 : peer->uid;
	char path[2 * (WIRE_PATH_MAX + 1)];
	struct wire_registered reply = {0};
	struct account *a;
	struct member *m;
	int r;

	if (body->reserved || tail_size == 0 || tail[0] == '/')
		return conn_fault(c, CONN_E_PROTOCOL, "REGISTER: the path must be below the partition");
	if (conn_member(c))
		return conn_fault(c, CONN_E_PROTOCOL, "REGISTER: this connection has a store already");
	a = account_find_uuid(conn_host(c), body->uuid);
	if (!a)
		return conn_refuse(c, serial, -ENOENT, WIRE_LIMIT_NONE, 0, 0,
				   "this partition is not among those watched here");
	snprintf(path, sizeof(path), "%s/%s", a->path, tail);
	r = member_get(a, path, wanted, &m);
	if (r < 0)
		return refuse(c, serial, r);
	if (m->conn)
		return conn_refuse(c, serial, -EBUSY, WIRE_LIMIT_NONE, 0, 0,
				   "the store is registered by another connection");
	if (!is_its_owner(m, peer))
		return conn_refuse(c, serial, -EPERM, WIRE_LIMIT_NONE, 0, 0, "the store is another process's (pid %d)",
				   m->pid);
	member_connect(m, c, peer->pid);
	reply.id = m->id;
	return conn_send(c, WIRE_REGISTERED, serial, &reply, NULL, 0);
}
