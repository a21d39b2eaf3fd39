/* SPDX-License-Identifier: Apache-2.0 */
/* test_actor.c: a place's beginnings of actors, as a daemon hears them: options go to one that
 * knows them, and to no other. */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/actor.h>
#include <shmstore/tier.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fakedaemon.h"
#include "scratch.h"
#include "wire.h"

static struct heard {
	uint64_t features;
	_Atomic unsigned n_born;
	char tail[WIRE_TEXT_MAX];
} heard;

static bool listen_to(struct fake *f, int fd, const struct wire_header *h, const void *body,
		      const char *tail, void *arg)
{
	const struct wire_welcome welcome = {
		.version = WIRE_VERSION, .epoch = f->epoch, .features = heard.features};

	(void)body;
	(void)arg;
	if (h->type == WIRE_HELLO && heard.features) {
		fake_reply(f, fd, WIRE_WELCOME, h->serial, &welcome, NULL);
		return true;
	}
	if (h->type == WIRE_ACTOR_BORN) {
		memcpy(heard.tail, tail, h->tail);
		heard.tail[h->tail] = '\0';
		heard.n_born++;
	}
	return false;
}

static struct scene {
	struct fake *daemon;
	struct shmstore *s;
	struct shmstore_place *place;
} begin(uint64_t features)
{
	struct scene scene;

	heard.features = features;
	scene.daemon = fake_start(scratch_partition(), false, listen_to, NULL);
	scene.s = scratch_store("s");
	cr_assert_eq(shmstore_place_open(scene.s, "p", SHMSTORE_PLACE_ROOMY, &scene.place), 0);
	return scene;
}

static void end(struct scene *scene)
{
	shmstore_place_close(scene->place);
	shmstore_close(scene->s);
	fake_stop(scene->daemon);
}

static int born(const struct scene *scene, const char *name, struct shmstore_actor_options o,
		const char *tail)
{
	unsigned before = heard.n_born;
	int r = shmstore_actor_begin(scene->place, name, &o);

	cr_assert_eq(heard.n_born, before + (tail != NULL), "%s", name);
	if (tail)
		cr_assert_str_eq(heard.tail, tail);
	return r;
}

Test(actor, options_are_told_to_a_daemon_that_knows_them)
{
	struct shmstore_actor_options o = SHMSTORE_ACTOR_OPTIONS_INIT;
	struct scene scene = begin(WIRE_FEATURE_ACTOR_OPTIONS);
	char longest[SHMSTORE_ACTOR_COPIES + 2], tail[WIRE_TEXT_MAX];

	cr_assert_eq(born(&scene, "none", o, "none"), 0);
	o.parent = "none";
	cr_assert_eq(born(&scene, "child", o, "child\nnone"), 0);
	o.copies = "retry=0";
	cr_assert_eq(born(&scene, "words", o, "words\nnone\n0 retry=0"), 0);
	o.parent = NULL;
	o.max_restarts = UINT32_MAX;
	cr_assert_eq(born(&scene, "both", o, "both\n\n4294967295 retry=0"), 0);
	memset(longest, 'x', sizeof(longest));
	longest[SHMSTORE_ACTOR_COPIES] = '\0';
	snprintf(tail, sizeof(tail), "longest\n\n4294967295 %s", longest);
	o.copies = longest;
	cr_assert_eq(born(&scene, "longest", o, tail), 0);
	longest[SHMSTORE_ACTOR_COPIES] = 'x';
	longest[SHMSTORE_ACTOR_COPIES + 1] = '\0';
	cr_assert_eq(born(&scene, "longer", o, NULL), -EINVAL);
	o.copies = "retry=0\nretry=1";
	cr_assert_eq(born(&scene, "lines", o, NULL), -EINVAL);
	end(&scene);
}

Test(actor, an_older_daemon_hears_of_none_and_the_caller_that_it_is_older)
{
	struct shmstore_actor_options o = SHMSTORE_ACTOR_OPTIONS_INIT;
	struct scene scene = begin(0);

	cr_assert_eq(born(&scene, "none", o, "none"), 0);
	o.max_restarts = 1;
	cr_assert_eq(born(&scene, "restarts", o, NULL), -ENOTSUP);
	cr_assert(strstr(shmstore_error_detail(), "older"), "%s", shmstore_error_detail());
	o.max_restarts = 0;
	o.copies = "retry=1";
	cr_assert_eq(born(&scene, "words", o, NULL), -ENOTSUP);
	o.copies = "";
	cr_assert_eq(born(&scene, "empty", o, "empty"), 0);
	end(&scene);
}

/* A program that was compiled before there were words passes a shorter structure. */
Test(actor, a_shorter_structure_has_no_words)
{
	struct shmstore_actor_options o = SHMSTORE_ACTOR_OPTIONS_INIT;
	struct scene scene = begin(WIRE_FEATURE_ACTOR_OPTIONS);

	o.copies = "what is no part of it";
	o.size = offsetof(struct shmstore_actor_options, copies);
	cr_assert_eq(born(&scene, "short", o, "short"), 0);
	o.size--;
	cr_assert_eq(born(&scene, "shorter", o, NULL), -EINVAL);
	end(&scene);
}
