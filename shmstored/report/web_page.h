/* SPDX-License-Identifier: Apache-2.0 */
/* web_page.h: the page as it is sent, joined of page/ when the daemon is built
 * (page/embed.cmake writes the .c). */
#ifndef WEB_PAGE_H
#define WEB_PAGE_H

#include <stddef.h>

extern const unsigned char web_page[];
extern const size_t web_page_size;
extern const char web_page_etag[]; /* quoted */
/* Content-Security-Policy: names the page's own style and script by their hashes */
extern const char web_page_policy[];

#endif
