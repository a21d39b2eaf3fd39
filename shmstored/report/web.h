/* SPDX-License-Identifier: Apache-2.0 */
/* web.h: HTTP on the loop, with libmicrohttpd: /metrics, /healthz, /api/v1/…, and the page. No
 * threads; nothing here blocks. */
#ifndef WEB_H
#define WEB_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

struct host;
struct web;

/* Listens where h->config says. 0, -errno (said in the log). */
int web_new(struct host *h, struct web **ret);
/* Closes its connections. It may be called with the loop running or after it; what the loop still
 * has of it goes with the loop. */
struct web *web_free(struct web *w);

/* From a request to its response: what is at which path, and who may see it.
 * Knows no sockets and no loop. */
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
enum MHD_Result web_answer(const struct web_context *c, struct MHD_Connection *connection,
			   const char *url, const char *method, const char *version);

/* The page as it is sent, joined of page/ when the daemon is built
 * (page/embed.cmake writes the .c). */

extern const unsigned char web_page[];
extern const size_t web_page_size;
extern const char web_page_etag[]; /* quoted */
/* Content-Security-Policy: names the page's own style and script by their hashes */
extern const char web_page_policy[];

#endif
