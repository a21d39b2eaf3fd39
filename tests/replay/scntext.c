/* SPDX-License-Identifier: Apache-2.0 */
/* scntext.c: values of SCN v1 as texts: sizes, lists, names, and when two of them are the same. */
#include <string.h>

#include "scn.h"
#include "script.h"

static bool is_unknown(const char *text)
{
	return !strcmp(text, "null") || !strcmp(text, "none") || !strcmp(text, "missing");
}

bool scn_read_amount(const char *text, struct amount *ret)
{
	bool negative = *text == '-';
	uint64_t n;

	if (is_unknown(text)) {
		*ret = AMOUNT_UNKNOWN;
		return true;
	}
	if (!script_bytes(text + negative, &n) || n > INT64_MAX)
		return false;
	*ret = amount_of(negative ? -(int64_t)n : (int64_t)n);
	return true;
}

bool scn_element(const char **at, char separator, char *ret, size_t room)
{
	const char *end;
	size_t n;

	if (!**at)
		return false;
	end = strchr(*at, separator);
	n = end ? (size_t)(end - *at) : strlen(*at);
	if (n >= room)
		return false;
	memcpy(ret, *at, n);
	ret[n] = 0;
	*at += n + (end != NULL);
	return true;
}

static bool is_number(const char *name)
{
	return *name && strspn(name, "0123456789") == strlen(name);
}

int scn_compare_names(const char *a, const char *b)
{
	bool numbers = is_number(a) && is_number(b);
	size_t n, m;

	if (!numbers)
		return strcmp(a, b);
	a += strspn(a, "0");
	b += strspn(b, "0");
	n = strlen(a);
	m = strlen(b);
	return n == m ? strcmp(a, b) : n < m ? -1 : 1;
}

/* A part of a list: up to a separator. */
static bool same_part(const char *a, size_t n, const char *b, size_t m)
{
	char left[64], right[64];
	struct amount x, y;

	if (n == m && !memcmp(a, b, n))
		return true;
	if (n >= sizeof(left) || m >= sizeof(right))
		return false;
	memcpy(left, a, n);
	left[n] = 0;
	memcpy(right, b, m);
	right[m] = 0;
	return scn_read_amount(left, &x) && scn_read_amount(right, &y) && amount_equal(x, y);
}

bool scn_same(const char *expected, const char *found)
{
	for (;;) {
		size_t n = strcspn(expected, ",:"), m = strcspn(found, ",:");

		if (!same_part(expected, n, found, m) || expected[n] != found[m])
			return false;
		if (!expected[n])
			return true;
		expected += n + 1;
		found += m + 1;
	}
}
