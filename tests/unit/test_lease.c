/* SPDX-License-Identifier: Apache-2.0 */
/* Names of leases. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "scratch.h"
#include "sys.h"
#include "wire.h"

Test(lease, name_round_trips)
{
	static const uint64_t expiries[] = {0,        1, 9, 10, 1234567890123, 9999999999999999999u,
					    INT64_MAX};

	for (size_t i = 0; i < sizeof(expiries) / sizeof(expiries[0]); i++) {
		char name[SHMS_LEASE_NAME_SIZE];
		uint64_t back = 42;

		shms_lease_text(expiries[i], shms_nonce(), name);
		cr_assert_lt(strlen(name), SHMS_LEASE_NAME_SIZE - 1);
		cr_assert(shms_lease_parse(name, &back), "%s", name);
		cr_assert_eq(back, expiries[i]);
	}
}

Test(lease, two_names_of_one_expiry_differ)
{
	char a[SHMS_LEASE_NAME_SIZE], b[SHMS_LEASE_NAME_SIZE];

	shms_lease_text(5, shms_nonce(), a);
	for (int i = 0; i < 10000; i++) {
		shms_lease_text(5, shms_nonce(), b);
		cr_assert_str_neq(a, b);
	}
}

static void *draw(void *arg)
{
	shms_lease_text(5, shms_nonce(), arg);
	return NULL;
}

Test(lease, names_of_other_threads_differ)
{
	char names[8][SHMS_LEASE_NAME_SIZE];
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		ENSURE(pthread_create(&threads[i], NULL, draw, names[i]) == 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 8; i++) {
		for (int k = 0; k < i; k++)
			cr_assert_str_neq(names[i], names[k]);
	}
}

Test(lease, other_names_are_refused)
{
	static const char *const names[] = {
		"",
		"-",
		"5",
		"5-",
		"-0123456789abcdef",
		"x-0123456789abcdef",
		"5-0123456789abcde",
		"5-0123456789abcdef0",
		"5-0123456789abcdeg",
		"5-0123456789ABCDEF",
		"5--123456789abcdef",
		" 5-0123456789abcdef",
		"+5-0123456789abcdef",
		"-5-0123456789abcdef",
		"0x5-0123456789abcdef",
		"5_0123456789abcdef",
		"5-0123456789abcdef.tmp",
		"18446744073709551616-0123456789abcdef",
		"99999999999999999999-0123456789abcdef",
		"000000000000000000000000000005-0123456789abcdef",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		uint64_t expiry = 42;

		cr_assert_not(shms_lease_parse(names[i], &expiry), "'%s'", names[i]);
		cr_assert_eq(expiry, 42, "written on failure: '%s'", names[i]);
	}
}
