/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c: the handler notes the signal and nothing else; it is there for one signal of
 * each kind (SA_RESETHAND). */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

static volatile sig_atomic_t came; /* its number; 0 = none */

static void note(int number)
{
	came = number;
}

void interrupt_catch(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND}, old;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		/* nohup stays nohup */
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

bool interrupt_pending(void)
{
	return came != 0;
}

void interrupt_finish(void)
{
	if (!came)
		return;
	fflush(stdout); /* what was said of what was done */
	signal(came, SIG_DFL);
	raise(came);
}
