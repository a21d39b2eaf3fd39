/* SPDX-License-Identifier: Apache-2.0 */
/* web.h: HTTP on the loop, with libmicrohttpd: /metrics, /healthz, /api/v1/…, and the page. No threads; nothing here blocks. */
#ifndef WEB_H
#define WEB_H

struct host;
struct web;

int web_new(struct host *h, struct web **ret);
struct web *web_free(struct web *w);

#endif
