"""The drill of a restore: a server with two devices is backed up, lost and put back, and what the devices
held comes back. ``python deploy/drills/restore.py``
"""

from __future__ import annotations

from stage import DrillFailed, Stage, perform

OLD = "The dentist is on Friday"
LATER = "The parcel is at the neighbour's"
UNSENT = "Water the fern on Sunday"
DEAD = "The old door code is 4711"


def drill(place: Stage) -> None:
    """Each step, shown and checked."""
    place.step("A server and two devices")
    place.start_server()
    for home in ("phone", "laptop"):
        place.enrol(home)
    place.run(f'scrubjay --home phone add "{OLD}" "{DEAD}"')
    for home in ("phone", "laptop"):
        place.run(f"scrubjay --home {home} sync")

    place.step("Back up: everything but heads.json")
    place.stop_server()
    place.run("tar -C data --exclude=./heads.json -cf backup.tar .")
    place.start_server()

    place.step("People go on writing and deleting; the phone also offline")
    place.run(f'scrubjay --home phone add "{LATER}"')
    place.run("scrubjay --home phone sync")
    place.run("scrubjay --home laptop sync")
    place.run(
        f"scrubjay --home laptop delete $(scrubjay --home laptop list --where 'content = {DEAD}' --json"
        " | python -c 'import json, sys; print(json.load(sys.stdin)[\"id\"])')"
    )
    place.run("scrubjay --home laptop sync")
    place.run(f'scrubjay --home phone add "{UNSENT}"')

    place.step("Lose the databases, and put the backup in their place")
    place.stop_server()
    place.run("find data -mindepth 1 ! -name heads.json -delete")
    place.run("tar -C data -xpf backup.tar")

    place.step("Start: the server notices that it went back in time, and refuses")
    refused = place.run("python -m server serve", code=1)
    if "python -m server restored" not in refused:
        raise DrillFailed("the refusal does not say what to do")

    place.step("Say that it was restored, and start")
    place.run("python -m server restored")
    place.start_server()

    place.step("Devices sync: they give back what they hold, and load anew")
    for home in ("phone", "laptop", "phone"):
        place.run(f"scrubjay --home {home} sync")

    place.step("Look: all is there but what was deleted")
    for home in ("phone", "laptop"):
        place.expect(home, {OLD, LATER, UNSENT})


if __name__ == "__main__":
    perform(drill, "What the devices held is back, and what was deleted stays deleted.")
