/* SPDX-License-Identifier: Apache-2.0 */
/* human.h: sizes, numbers and ids as people write and read them. */
#ifndef HUMAN_H
#define HUMAN_H

#include <stdbool.h>
#include <stdint.h>

/* All texts are static, and of this thread: each stays until eight more were asked for. */

/* As snprintf(), cut after 31 bytes. */
const char *human_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "0", "512 B", "64 KiB", "1.50 GiB": three digits at least, never rounded up into the
 * next unit. */
const char *human_size(uint64_t bytes);
/* The same, or plain digits where exact is true. */
const char *human_bytes(uint64_t bytes, bool exact);
/* "5 s", "3 min", "2 h 10 min", "4 d 1 h": seconds, rounded down; below 0 is 0. */
const char *human_duration(double seconds);
/* "1 store", "2 stores". */
const char *human_count(uint64_t n, const char *noun);
/* A whole number, digits only. False where text is none, or it is above most. */
bool human_number(const char *text, uint64_t most, uint64_t *ret);
/* An id of the arbiter's, which is of one client and its own number: "3:7" for people, one number
 * in JSON. Contexts and tasks are numbered apart. */
const char *human_id(uint64_t id);
bool human_parse_id(const char *text, uint64_t *ret_id);
/* "4096", "64K", "1.5GiB", "8g": units are powers of 1024; "50%" is of whole. False where text
 * is no size, or over 2^63. */
bool human_parse(const char *text, uint64_t whole, uint64_t *ret_bytes);

#endif
