/* SPDX-License-Identifier: Apache-2.0 */
/* query.h: one request of a client and its answer, for the files of this room. The client is there;
 * what else is wrong the answer says. */
#ifndef SHMS_QUERY_H
#define SHMS_QUERY_H

#include <shmstore/daemon.h>
#include <stddef.h>
#include <stdint.h>

/* Answered by a document, as shmstore_client_query(), or by DONE where ret_text is NULL. tail:
 * tail_size bytes, without a NUL. */
int shms_client_ask(struct shmstore_client *c, uint16_t type, const void *body, const char *tail,
		    size_t tail_size, char **ret_text, size_t *ret_size);

#endif
