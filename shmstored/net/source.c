/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: see source.h. */
#include "source.h"

#include <netinet/in.h>
#include <string.h>

struct source source_of(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;
	struct source s = {0};

	if (address->sa_family == AF_INET) {
		s.network = v4->sin_addr.s_addr;
	} else if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		uint32_t mapped;

		memcpy(&mapped, v6->sin6_addr.s6_addr + 12, sizeof(mapped));
		s.network = mapped;
	} else if (address->sa_family == AF_INET6) {
		memcpy(&s.network, &v6->sin6_addr, sizeof(s.network));
		s.v6 = true;
	}
	return s;
}

bool source_same(struct source a, struct source b)
{
	return a.network == b.network && a.v6 == b.v6;
}
