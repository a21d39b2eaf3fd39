/* SPDX-License-Identifier: Apache-2.0 */
/* detail.c: one sentence and one path per thread. In the thread's own memory: an error is told without anything that can fail. */
#include "detail.h"

#include <shmstore/shmstore.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[512];
static _Thread_local char about[SHMSTORE_TICKET_PATH];

void shms_detail_clear(void)
{
	sentence[0] = '\0';
	about[0] = '\0';
}

int shms_detail(int error, const char *path, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(sentence, sizeof(sentence), format, ap);
	va_end(ap);
	snprintf(about, sizeof(about), "%s", path ? path : "");
	return error;
}

const char *shmstore_error_detail(void)
{
	return sentence;
}

const char *shmstore_error_path(void)
{
	return about;
}
