/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hexdigits.h: a number of 64 bits as 16 lower-case hexadecimal digits, and back, all digits at
 * once: every hand-over of a packed object writes two of them and reads four.
 */
#ifndef SHMS_HEXDIGITS_H
#define SHMS_HEXDIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "a pair of digits is a word whose low byte comes first");

typedef uint8_t shms_hexchars __attribute__((vector_size(16)));
typedef uint16_t shms_hexpairs __attribute__((vector_size(16)));
typedef uint8_t shms_hexbytes __attribute__((vector_size(8)));

/* No NUL. */
static inline void shms_hexdigits_write(uint64_t number, char ret[16])
{
	uint64_t high_first = __builtin_bswap64(number);
	shms_hexbytes bytes;
	shms_hexpairs pairs;
	shms_hexchars text;

	memcpy(&bytes, &high_first, sizeof(bytes));
	pairs = __builtin_convertvector(bytes, shms_hexpairs);
	text = (shms_hexchars)(pairs >> 4 | (pairs & 15) << 8);
	text += '0' + ((shms_hexchars)(text > 9) & ('a' - '0' - 10));
	memcpy(ret, &text, sizeof(text));
}

/* False: there is another character. */
static inline bool shms_hexdigits_read(const char text[16], uint64_t *ret)
{
	shms_hexchars chars, digit, letter, is_digit, is_letter, right;
	shms_hexpairs pairs;
	shms_hexbytes bytes;
	uint64_t high_first, all[2];

	memcpy(&chars, text, sizeof(chars));
	digit = chars - '0';
	letter = chars - 'a';
	is_digit = (shms_hexchars)(digit < 10);
	is_letter = (shms_hexchars)(letter < 6);
	right = is_digit | is_letter;
	pairs = (shms_hexpairs)((is_digit & digit) | (is_letter & (letter + 10)));
	bytes = __builtin_convertvector((pairs << 4 | pairs >> 8) & 0xff, shms_hexbytes);
	memcpy(&high_first, &bytes, sizeof(bytes));
	*ret = __builtin_bswap64(high_first);
	memcpy(all, &right, sizeof(all));
	return (all[0] & all[1]) == UINT64_MAX;
}

/* Bytes, a multiple of 8 of them, the first one first. No NUL. */
static inline void shms_hexdigits_write_bytes(const void *bytes, size_t size, char *ret)
{
	uint64_t number;

	for (size_t i = 0; i < size; i += sizeof(number)) {
		memcpy(&number, (const char *)bytes + i, sizeof(number));
		shms_hexdigits_write(__builtin_bswap64(number), ret + 2 * i);
	}
}

static inline bool shms_hexdigits_read_bytes(const char *text, void *ret, size_t size)
{
	uint64_t number;

	for (size_t i = 0; i < size; i += sizeof(number)) {
		if (!shms_hexdigits_read(text + 2 * i, &number))
			return false;
		number = __builtin_bswap64(number);
		memcpy((char *)ret + i, &number, sizeof(number));
	}
	return true;
}

#endif
