/* SPDX-License-Identifier: Apache-2.0 */
/* The key that a mistyped word means: one slip finds it, an unrelated word finds nothing. */
#include <criterion/criterion.h>
#include <string.h>

#include "config.h"

static const char *const KEYS[] = {"socket", "socket-mode", "socket-group", "max-clients",
				   "credit", "credit-idle", "psi",          "psi-stall"};
#define N_KEYS (sizeof(KEYS) / sizeof(KEYS[0]))

static void ensure_found(const char *word, const char *key)
{
	const char *found = nearest(word, KEYS, N_KEYS);

	cr_assert(found && strcmp(found, key) == 0, "%s: %s", word, found ? found : "nothing");
}

Test(nearest, each_slip_in_each_key_finds_it)
{
	for (size_t k = 0; k < N_KEYS; k++) {
		size_t n = strlen(KEYS[k]);
		char word[32];

		if (n < 6)
			continue; /* "psi" is near to anything */
		for (size_t i = 0; i + 1 < n; i++) {
			strcpy(word, KEYS[k]); /* a letter too few */
			memmove(word + i, word + i + 1, n - i);
			ensure_found(word, KEYS[k]);
			strcpy(word, KEYS[k]); /* another one */
			word[i] = '#';
			ensure_found(word, KEYS[k]);
			strcpy(word, KEYS[k]); /* neighbours swapped */
			word[i] = KEYS[k][i + 1];
			word[i + 1] = KEYS[k][i];
			ensure_found(word, KEYS[k]);
			strcpy(word, KEYS[k]); /* one too many */
			memmove(word + i + 1, KEYS[k] + i, n - i + 1);
			ensure_found(word, KEYS[k]);
		}
	}
}

Test(nearest, of_two_the_nearer_is_meant)
{
	ensure_found("socket-mod", "socket-mode");
	ensure_found("sockets", "socket");
	ensure_found("psi-stal", "psi-stall");
}

Test(nearest, a_stranger_has_no_neighbour)
{
	char longest[200];

	memset(longest, 's', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	cr_assert_null(nearest("watermark-high", KEYS, N_KEYS));
	cr_assert_null(nearest("xyz", KEYS, N_KEYS));
	cr_assert_null(nearest("", KEYS, N_KEYS));
	cr_assert_null(nearest(longest, KEYS, N_KEYS));
	cr_assert_null(nearest("socket", KEYS, 0));
}
