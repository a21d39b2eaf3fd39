/* SPDX-License-Identifier: Apache-2.0 */
/* admissiongate.h: admission behind a gate: while the gate is shut, only a task beside which nothing runs may begin. */
#ifndef ADMISSIONGATE_H
#define ADMISSIONGATE_H

#include "admission.h"

static inline struct admission_answer admission_try_gated(struct admission *a, bool shut,
							  const struct admission_ask *ask)
{
	struct admission_answer answer = admission_try(a, ask);

	if (shut && (answer.reason == ADMISSION_FITS || answer.reason == ADMISSION_FULL)) {
		answer.reason = ADMISSION_GATE;
		answer.admit = false;
	}
	return answer;
}

#endif
