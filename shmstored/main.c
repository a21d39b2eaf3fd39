/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: shmstored, the host daemon. */
#include "actord.h"
#include "daemon.h"

int main(int argc, char **argv)
{
	return daemon_main(argc, argv, &actord_none);
}
