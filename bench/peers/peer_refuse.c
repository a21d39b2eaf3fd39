/* SPDX-License-Identifier: Apache-2.0 */
/* peer_refuse.c: why a peer cannot take part. */
#include <stdarg.h>
#include <stdio.h>

#include "peer.h"

int peer_refuse(struct peer_run *run, int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(run->reason, sizeof(run->reason), format, ap);
	va_end(ap);
	return error;
}
