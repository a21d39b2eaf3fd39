/* SPDX-License-Identifier: Apache-2.0 */
/* The digests are those of Python's hashlib.blake2b(bytes(i * 7 % 251 for i in
 * range(n)), digest_size=32). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "blake2b.h"

static const struct {
	size_t size;
	const char *digest;
} known[] = {
	{0, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"},
	{3, "b316f3683ac87007461037a8ff6547de35618800044bb3a4e98b3560c92c3794"},
	{128, "9101ed0a248b57efc0c6070cfbf9cf316c182d125ad6191c1f7783c3d32b6346"},
	{129, "60f5e954d1a1775362ffd0762ed37bbe101ed5e88896dd793f1a889786fb3132"},
	{256, "45d503f4fc344944eeff959e1e2234c47884011023598cadbd934f08d4265016"},
	{300, "df543109d4ac40503a3c18dbbc6b5a14fb0f8215cef9ff047ad4fe6f67f94cc8"},
	{4096, "fd6ff374874485c8f6f366a5e2433fc6fceefdb7d657925eee3f38f9dcd4c787"},
};

Test(blake2b, agrees_with_another_implementation)
{
	unsigned char data[4096];
	uint8_t digest[SHMS_BLAKE2B_SIZE];
	char text[2 * SHMS_BLAKE2B_SIZE + 1];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7 % 251);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		shms_blake2b(data, known[i].size, digest);
		for (size_t k = 0; k < sizeof(digest); k++)
			snprintf(text + 2 * k, 3, "%02x", digest[k]);
		cr_assert_str_eq(text, known[i].digest, "%zu bytes", known[i].size);
	}
}
