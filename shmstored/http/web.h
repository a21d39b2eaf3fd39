/* SPDX-License-Identifier: Apache-2.0 */
/* web.h: HTTP on the loop, with libmicrohttpd: /metrics, /healthz, /api/v1/…, and the page. No threads; nothing here blocks. */
#ifndef WEB_H
#define WEB_H

struct host;
struct web;

/* Listens where h->config says. 0, -errno (said in the log). */
int web_new(struct host *h, struct web **ret);
/* Closes its connections. It may be called with the loop running or after it; what the loop still has of it goes with the loop. */
struct web *web_free(struct web *w);

#endif
