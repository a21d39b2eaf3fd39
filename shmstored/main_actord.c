/* SPDX-License-Identifier: Apache-2.0 */
/* main_actord.c: shmstore-actord, the host daemon with actors and other daemons. */
#include "daemon.h"
#include "door.h"

int main(int argc, char **argv)
{
	return daemon_main(argc, argv, &actord_whole);
}
