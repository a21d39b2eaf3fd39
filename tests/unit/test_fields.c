/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of fields: each form as a document has it, the places of what is no member, and
 * a thing that is not there. */
#include <criterion/criterion.h>
#include <json-c/json.h>

#include "fields.h"

struct thing {
	uint64_t bytes;
	int64_t balance;
	uint32_t n_small;
	int level;
	bool open;
	const char *text;
	char name[8];
	uint64_t id, none, time_ns, wait_ms;
	int64_t mtime_ns;
};

static const struct thing thing = {.bytes = UINT64_MAX,
				   .balance = -3,
				   .n_small = 7,
				   .level = -1,
				   .open = true,
				   .text = "a\x01",
				   .name = "abc",
				   .id = 5,
				   .time_ns = 1999999999,
				   .wait_ms = 1500,
				   .mtime_ns = 1999600000};

#define OF struct thing
static const struct field of_thing[] = {
	SAME(bytes),
	PLACE("between"),
	SAME(balance),
	NUMBER(small),
	SAME(level),
	SAME(open),
	SAME(text),
	FIELD(name, "called"),
	FIELD_AS(FIELD_ID, id, "id"),
	FIELD_AS(FIELD_ID, none, "none"),
	FIELD_AS(FIELD_NS, time_ns, "time"),
	FIELD_AS(FIELD_MOMENT, none, "never"),
	FIELD_AS(FIELD_MS, wait_ms, "wait"),
	FIELD_AS(FIELD_REAL_NS, mtime_ns, "mtime"),
	FIELD(id, NULL),
};
#undef OF

static void expect(struct json_object *o, const char *text)
{
	cr_assert_str_eq(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN), text);
	cr_assert_eq(jsonmake_end(o), o);
	json_object_put(o);
}

Test(fields, each_form_is_written_as_a_document_has_it)
{
	struct json_object *o = jsonmake_new();

	fields_add(o, of_thing, &thing);
	expect(o, "{\"bytes\":18446744073709551615,\"between\":null,\"balance\":-3,\"small\":7,"
		  "\"level\":-1,\"open\":true,"
		  "\"text\":\"a\\\\x01\",\"called\":\"abc\",\"id\":5,\"none\":null,\"time\":1.999,"
		  "\"never\":null,\"wait\":"
		  "1.500,"
		  "\"mtime\":2.000}");
}

Test(fields, a_place_is_kept_for_another_value)
{
	struct json_object *o = jsonmake_new();

	fields_of(o, &thing, SAME(level), PLACE("between"), SAME(open));
	jsonmake_u64(o, "between", 2);
	expect(o, "{\"level\":-1,\"between\":2,\"open\":true}");
}

Test(fields, a_thing_that_is_not_there_has_null_members)
{
	const struct thing *none = NULL;
	struct json_object *o = jsonmake_new();

	fields_of(o, none, SAME(bytes), FIELD_AS(FIELD_ID, id, "id"), SAME(text));
	expect(o, "{\"bytes\":null,\"id\":null,\"text\":null}");
}
