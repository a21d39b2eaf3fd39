/* SPDX-License-Identifier: Apache-2.0 */
/* client.c: see client.h. */
#include "client.h"

#include <stdlib.h>
#include <utlist.h>

#include "host.h"

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	struct client *k = CONTAINER_OF(e, client, end);

	for (int i = 0; i < CLIENT_PARTS; i++)
		if (k->left[i])
			k->left[i](k);
	DL_DELETE(k->host->clients, k);
	free(k);
}

struct client *client_find(const struct conn *c)
{
	struct conn_end *e = conn_find_end(c, on_end);

	return e ? CONTAINER_OF(e, client, end) : NULL;
}

struct client *client_get(struct conn *c)
{
	struct client *k = client_find(c);

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	*k = (struct client){.host = c->host, .conn = c, .end.fn = on_end, .statm_fd = -1};
	conn_on_end(c, &k->end);
	DL_APPEND(k->host->clients, k);
	return k;
}
