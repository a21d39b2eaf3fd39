/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsoptions.c: an actor's options: how often it is begun again, and how copies of it are made
 * where its program said so. As text they are what ACTOR_BORN and LOAD have, and what goes to other
 * daemons with its state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actorspeers.h"
#include "config.h"
#include "configvalue.h"
#include "host.h"

const struct config_copies *actors_options(const struct actors_one *k)
{
	return k->own ? k->own : &k->of->host->config->peers.copies;
}

void actors_options_free(struct actors_one *k)
{
	if (k->own)
		config_copies_clear(k->own);
	free(k->own);
	free(k->words);
	k->own = NULL;
	k->words = NULL;
}

static int set_words(struct actors_one *k, const char *words, char why[CONFIG_WHY])
{
	struct config_copies *own = calloc(1, sizeof(*own));
	char *copy = strdup(words);
	int r = own && copy ? config_copies_read(words, &k->of->host->config->peers.copies, own, why) : -ENOMEM;

	if (r < 0) {
		free(own);
		free(copy);
		return r;
	}
	actors_options_free(k);
	k->own = own;
	k->words = copy;
	return 0;
}

int actors_options_read(struct actors_one *k, const char *text, char why[CONFIG_WHY])
{
	char number[16] = "";
	size_t n = strcspn(text, " ");
	uint64_t restarts = 0;
	int r;

	if (n < sizeof(number))
		memcpy(number, text, n);
	if (*text &&
	    (strlen(text) > WIRE_ACTOR_OPTIONS || configvalue_number(number, 10, 0, UINT32_MAX, &restarts) < 0)) {
		snprintf(why, CONFIG_WHY,
			 "options of an actor begin with the number of its restarts, and have %u bytes at most",
			 WIRE_ACTOR_OPTIONS);
		return -EINVAL;
	}
	text += n + strspn(text + n, " ");
	if (!*text)
		actors_options_free(k);
	r = *text ? set_words(k, text, why) : 0;
	if (r == 0)
		k->restarts = (uint32_t)restarts;
	return r;
}

int actors_options_write(const struct actors_one *k, char ret[WIRE_ACTOR_OPTIONS + 1])
{
	if (!k->restarts && !k->words)
		ret[0] = '\0';
	else
		snprintf(ret, WIRE_ACTOR_OPTIONS + 1, "%u %s", k->restarts, k->words ? k->words : "");
	return (int)strlen(ret);
}
