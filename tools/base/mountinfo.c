/* SPDX-License-Identifier: Apache-2.0 */
/* mountinfo.c: parses /proc/self/mountinfo (proc(5)): "36 35 98:0 /root /point opts [tags...] - type source super". */
#include "mountinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "sysroot.h"

/* Undoes the kernel's \040 in place. */
static char *unescape(char *text)
{
	char *out = text;

	for (const char *in = text; *in; out++) {
		if (in[0] == '\\' && in[1] >= '0' && in[1] <= '3' && in[2] >= '0' && in[2] <= '7' && in[3] >= '0' &&
		    in[3] <= '7') {
			*out = (char)((in[1] - '0') << 6 | (in[2] - '0') << 3 | (in[3] - '0'));
			in += 4;
		} else {
			*out = *in++;
		}
	}
	*out = '\0';
	return text;
}

static char *copy(char *text)
{
	char *copied = strdup(unescape(text));

	if (!copied)
		message_no_memory();
	return copied;
}

static bool parse_line(char *line, struct mountinfo *ret)
{
	char *field[6], *type, *super, *save = NULL;

	for (size_t i = 0; i < 6; i++) {
		field[i] = strtok_r(i ? NULL : line, " ", &save);
		if (!field[i])
			return false;
	}
	char *tag = strtok_r(NULL, " ", &save);
	while (tag && strcmp(tag, "-") != 0)
		tag = strtok_r(NULL, " ", &save);
	type = tag ? strtok_r(NULL, " ", &save) : NULL;
	/* the source may be empty: then only one field follows */
	super = type ? strtok_r(NULL, " ", &save) : NULL;
	if (super && *save)
		super = strtok_r(NULL, " ", &save);
	if (!super)
		return false;
	*ret = (struct mountinfo){copy(field[3]), copy(field[4]), copy(type), copy(field[5]), copy(super)};
	return true;
}

void mountinfo_read(const struct admin *a, struct mountinfo_table *ret)
{
	char *text = sysroot_read(a, "/proc/self/mountinfo");
	char *save = NULL;

	*ret = (struct mountinfo_table){0, NULL};
	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		struct mountinfo *grown = realloc(ret->mounts, (ret->n_mounts + 1) * sizeof(*grown));
		if (!grown)
			message_no_memory();
		ret->mounts = grown;
		if (parse_line(line, &grown[ret->n_mounts]))
			ret->n_mounts++;
	}
	free(text);
}

void mountinfo_deinit(struct mountinfo_table *t)
{
	for (size_t i = 0; i < t->n_mounts; i++) {
		free(t->mounts[i].root);
		free(t->mounts[i].point);
		free(t->mounts[i].type);
		free(t->mounts[i].options);
		free(t->mounts[i].super_options);
	}
	free(t->mounts);
	*t = (struct mountinfo_table){0, NULL};
}

bool mountinfo_below(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/' && path[n + 1];
}

const struct mountinfo *mountinfo_find(const struct mountinfo_table *t, const char *path)
{
	const struct mountinfo *found = NULL;

	for (size_t i = 0; i < t->n_mounts; i++) {
		const struct mountinfo *m = &t->mounts[i];
		if (strcmp(path, m->point) != 0 && !mountinfo_below(path, m->point))
			continue;
		if (!found || strlen(m->point) >= strlen(found->point))
			found = m;
	}
	return found;
}

bool mountinfo_option(const char *options, const char *name, char *ret_value, size_t size)
{
	size_t n = strlen(name);

	for (const char *o = options; o; o = strchr(o, ',') ? strchr(o, ',') + 1 : NULL) {
		if (strncmp(o, name, n) != 0 || (o[n] && o[n] != ',' && o[n] != '='))
			continue;
		const char *value = o[n] == '=' ? o + n + 1 : "";
		if (size)
			snprintf(ret_value, size, "%.*s", o[n] == '=' ? (int)strcspn(value, ",") : 0, value);
		return true;
	}
	return false;
}
