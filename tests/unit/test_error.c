/* SPDX-License-Identifier: Apache-2.0 */
/* Every code of the closed list has its own text, and every kernel code maps into the list. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "scratch.h"
#include "sys.h"

static const int codes[] = {EINVAL,  ENOENT, EEXIST,    EBUSY,     ENOSPC, EDQUOT,
			    EBADMSG, EPERM,  ESTALE,    EXDEV,     EMFILE, ENOMEM,
			    ENOTSUP, EIO,    ETIMEDOUT, ECANCELED, EFBIG};
enum {
	N_CODES = sizeof(codes) / sizeof(codes[0])
};

Test(error, every_code_has_a_text_of_its_own)
{
	for (size_t i = 0; i < N_CODES; i++) {
		cr_assert_str_eq(shmstore_strerror(codes[i]), shmstore_strerror(-codes[i]));
		cr_assert_str_neq(shmstore_strerror(codes[i]), shmstore_strerror(0));
		for (size_t k = 0; k < i; k++)
			cr_assert_str_neq(shmstore_strerror(codes[i]), shmstore_strerror(codes[k]));
	}
	cr_assert_not_null(shmstore_strerror(99999));
}

Test(error, whatever_the_kernel_says_lands_in_the_list)
{
	for (int e = 1; e < 200; e++) {
		int r = shms_error(e);
		bool listed = false;

		cr_assert_eq(r, shms_error(-e));
		for (size_t i = 0; i < N_CODES; i++)
			listed |= r == -codes[i];
		cr_assert(listed, "errno %d became %d", e, r);
	}
	for (size_t i = 0; i < N_CODES; i++)
		cr_assert_eq(shms_error(codes[i]), -codes[i]);
}

Test(error, version_is_the_headers)
{
	char expect[32];

	snprintf(expect, sizeof(expect), "%d.%d.%d", SHMSTORE_VERSION_MAJOR, SHMSTORE_VERSION_MINOR,
		 SHMSTORE_VERSION_PATCH);
	cr_assert_str_eq(shmstore_version(), expect);
}
