/* SPDX-License-Identifier: Apache-2.0 */
/* scndomains.c: the domains of SCN v1, a line each. CMakeLists.txt has them too, for the tests. */
#include <string.h>

#include "scn.h"

#define DOMAINS(X) X(gate) X(kill) X(mm) X(queue) X(prof) X(stage) X(ckpt)

#define DECLARE(name) extern const struct scn_domain scn_##name##_domain;
DOMAINS(DECLARE)

const struct scn_domain *scn_domain(const char *name)
{
#define ROW(domain) &scn_##domain##_domain,
	static const struct scn_domain *const domains[] = {DOMAINS(ROW)};

	for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++)
		if (!strcmp(domains[i]->name, name))
			return domains[i];
	return NULL;
}
