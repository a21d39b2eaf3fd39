/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c: see fields.h. */
#include "fields.h"

#include <shmstore/inspect.h>

#include "tier.def"

static void write_member(struct json_object *o, const struct field *f, const void *at)
{
	switch ((enum field_form)f->form) {
	case FIELD_U64:
	case FIELD_ID:
		jsonmake_u64(o, f->name, *(const uint64_t *)at);
		return;
	case FIELD_I64:
		jsonmake_i64(o, f->name, *(const int64_t *)at);
		return;
	case FIELD_U32:
		jsonmake_u64(o, f->name, *(const uint32_t *)at);
		return;
	case FIELD_INT:
		jsonmake_i64(o, f->name, *(const int *)at);
		return;
	case FIELD_FLAG:
		jsonmake_flag(o, f->name, *(const bool *)at);
		return;
	case FIELD_TEXT:
		jsonmake_text(o, f->name, *(const char *const *)at);
		return;
	case FIELD_ARRAY:
		jsonmake_text(o, f->name, at);
		return;
	case FIELD_PROSE:
		jsonmake_prose(o, f->name, *(const char *const *)at);
		return;
	case FIELD_PROSE_ARRAY:
		jsonmake_prose(o, f->name, at);
		return;
	case FIELD_REAL_NS:
		jsonmake_real(o, f->name, (double)*(const int64_t *)at / 1e9);
		return;
	case FIELD_MS:
		jsonmake_seconds(o, f->name, *(const int64_t *)at * 1000000);
		return;
	case FIELD_PLACE:
		jsonmake_null(o, f->name);
		return;
	case FIELD_NS:
	case FIELD_MOMENT:
	default:
		jsonmake_seconds(o, f->name, *(const int64_t *)at);
	}
}

void fields_write(struct json_object *o, const struct field *fields, size_t n, const void *thing)
{
	for (const struct field *f = fields; f < fields + n; f++) {
		const void *at = thing ? (const char *)thing + f->off : NULL;
		bool is_0 = thing && (f->form == FIELD_ID || f->form == FIELD_MOMENT) &&
			    !*(const uint64_t *)at;

		if (f->name && (!thing || is_0))
			jsonmake_null(o, f->name);
		else if (f->name)
			write_member(o, f, at);
	}
}

/* ---- the figures of a disk tier -------------------------------------------------------------- */

uint64_t tierfigures_available(const struct shmstore_tier_info *info)
{
	const struct shmstore_tier_config *c = &info->config;
	uint64_t disk = info->disk_free > c->min_free ? info->disk_free - c->min_free : 0;
	uint64_t limit = !c->max ? UINT64_MAX : c->max > info->used ? c->max - info->used : 0;

	return disk < limit ? disk : limit;
}

void tierfigures_add(struct json_object *o, const struct shmstore_tier_info *info)
{
	fields_add(o, of_tier, info);
	jsonmake_u64(o, "available", tierfigures_available(info));
	if (info->demoted)
		jsonmake_real(o, "ratio", (double)info->original / (double)info->demoted);
}
