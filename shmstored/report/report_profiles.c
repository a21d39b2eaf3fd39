/* SPDX-License-Identifier: Apache-2.0 */
/* report_profiles.c: what tasks of users used so far, for who may see it: the document of "shmstore-admin profile show" (profilereport.h). */
#include <json-c/json.h>

#include "host.h"
#include "jsonmake.h"
#include "profilereport.h"
#include "report.h"
#include "report_parts.h"

void report_profiles(const struct report_view *v, struct host *h, struct json_object *o)
{
	struct json_object *known = NULL;

	if (h->profiles && v->uid != REPORT_NOBODY)
		known = profilereport_make(h, v->uid == REPORT_ALL, v->uid);
	jsonmake_flag(o, "enabled", known != NULL);
	if (known)
		jsonmake_child(o, "known", known);
}
