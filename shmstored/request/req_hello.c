/* SPDX-License-Identifier: Apache-2.0 */
/* req_hello.c: HELLO: the version that both speak, first and once. PING: is somebody there, and what the protocol costs. */
#include <unistd.h>

#include "config.h"
#include "dispatch.h"
#include "host.h"

DISPATCH_HANDLER(hello)
{
	const struct host *h = conn_host(c);
	const struct wire_welcome welcome = {
		.version = WIRE_VERSION,
		.pid = (uint32_t)getpid(),
		.epoch = h->epoch,
		.features = WIRE_FEATURE_ACTOR_OPTIONS,
		.credit = h->config->credit,
	};

	if (conn_greeted(c))
		return conn_fault(c, CONN_E_PROTOCOL, "a second HELLO");
	if (body->version_min > WIRE_VERSION || body->version_max < WIRE_VERSION)
		return conn_fault(c, CONN_E_PROTOCOL,
				  "versions %u to %u of the protocol are offered, this daemon has %u",
				  body->version_min, body->version_max, WIRE_VERSION);
	conn_set_greeted(c);
	return conn_send(c, WIRE_WELCOME, serial, &welcome, NULL, 0);
}

DISPATCH_HANDLER(ping)
{
	const struct wire_pong pong = {.cookie = body->cookie};

	return conn_send(c, WIRE_PONG, serial, &pong, NULL, 0);
}
