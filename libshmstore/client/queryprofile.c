/* SPDX-License-Identifier: Apache-2.0 */
/* queryprofile.c: profiles, as tools ask the daemon for them. */
#include <errno.h>
#include <shmstore/profile.h>
#include <shmstore/stage.h>
#include <string.h>

#include "detail.h"
#include "query.h"
#include "wire.h"

/* NOLINTBEGIN(misc-redundant-expression): that they are equal is what it says */
_Static_assert(SHMSTORE_PROFILE_MINE == WIRE_PROFILE_MINE, "the public users are the protocol's");
_Static_assert(SHMSTORE_PROFILE_ALL == WIRE_PROFILE_ALL, "the public users are the protocol's");
/* NOLINTEND(misc-redundant-expression) */

int shmstore_client_profile(struct shmstore_client *c, uint32_t user, char **ret_json,
			    size_t *ret_size)
{
	const struct wire_profile_admin body = {.op = WIRE_PROFILE_ADMIN_SHOW, .uid = user};

	if (!c || !ret_json)
		return shms_detail_null(!c ? "c" : "ret_json");
	return shms_client_ask(c, WIRE_PROFILE_ADMIN, &body, NULL, 0, ret_json, ret_size);
}

static int one_user(uint32_t user)
{
	return user == SHMSTORE_PROFILE_ALL
		       ? shms_detail(-EINVAL, NULL,
				     "a profile's text is that of one user, not of all")
		       : 0;
}

int shmstore_client_profile_text(struct shmstore_client *c, uint32_t user, char **ret_text,
				 size_t *ret_size)
{
	const struct wire_profile_admin body = {.op = WIRE_PROFILE_ADMIN_TEXT, .uid = user};

	if (!c || !ret_text)
		return shms_detail_null(!c ? "c" : "ret_text");
	return one_user(user) < 0
		       ? -EINVAL
		       : shms_client_ask(c, WIRE_PROFILE_ADMIN, &body, NULL, 0, ret_text, ret_size);
}

int shmstore_client_profile_load(struct shmstore_client *c, uint32_t user, const char *text,
				 size_t size)
{
	struct wire_profile_admin body = {
		.op = WIRE_PROFILE_ADMIN_LOAD, .uid = user, .total = size};
	int r = 0;

	if (!c || !text)
		return shms_detail_null(!c ? "c" : "text");
	if (one_user(user) < 0)
		return -EINVAL;
	if (!size || size > WIRE_PROFILE_TEXT_MAX)
		return shms_detail(-EINVAL, NULL, "a profile has 1 to %llu bytes, not %zu",
				   (unsigned long long)WIRE_PROFILE_TEXT_MAX, size);
	if (memchr(text, '\0', size))
		return shms_detail(-EBADMSG, NULL, "this is no profile: there is a NUL in it");
	while (r == 0 && body.offset < size) {
		size_t left = size - body.offset,
		       part = left < WIRE_TEXT_MAX ? left : WIRE_TEXT_MAX;

		r = shms_client_ask(c, WIRE_PROFILE_ADMIN, &body, text + body.offset, part, NULL,
				    NULL);
		body.offset += part;
	}
	return r;
}

int shmstore_client_profile_reset(struct shmstore_client *c, uint32_t user)
{
	const struct wire_profile_admin body = {.op = WIRE_PROFILE_ADMIN_RESET, .uid = user};

	return c ? shms_client_ask(c, WIRE_PROFILE_ADMIN, &body, NULL, 0, NULL, NULL)
		 : shms_detail_null("c");
}

int shmstore_client_stage_end(struct shmstore_client *c, uint64_t session)
{
	const struct wire_stage_end body = {.session = session};

	if (!c)
		return shms_detail_null("c");
	if (!session)
		return shms_detail(-EINVAL, NULL,
				   "0 is no store's number; the stages' document has them");
	return shms_client_ask(c, WIRE_STAGE_END, &body, NULL, 0, NULL, NULL);
}
