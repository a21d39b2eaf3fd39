/* SPDX-License-Identifier: Apache-2.0 */
/* web_answer.h: from a request to its response: what is at which path, and who may see it. Knows no sockets and no loop. */
#ifndef WEB_ANSWER_H
#define WEB_ANSWER_H

#include <microhttpd.h>
#include <stdbool.h>

struct host;
struct lateness;
struct peeruid;

struct web_context {
	struct host *host;
	const struct lateness *lateness;
	struct peeruid *peeruid; /* NULL: the kernel does not tell who asks */
	bool loopback;           /* we listen on a loopback address only */
};

/* Whether the request brings bytes of its own, or is none of those that are answered. */
bool web_has_body(struct MHD_Connection *connection, const char *method);
/* Queues the response. MHD_NO: the connection ends. */
enum MHD_Result web_answer(const struct web_context *c, struct MHD_Connection *connection, const char *url,
			   const char *method, const char *version);

#endif
